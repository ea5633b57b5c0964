"""Request and answer bodies that are not results of a use case themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from schemas.model import Record
from schemas.spec import CompositionSpec


def tupled(value: object) -> object:
    """JSON arrays as tuples, which is what strict records take."""
    if isinstance(value, list):
        return tuple(tupled(item) for item in value)
    if isinstance(value, dict):
        return {key: tupled(item) for key, item in value.items()}
    return value


class PublishIn(Record):
    """What a new generation serves."""

    refs: tuple[str, ...] = Field(min_length=1)
    reason: str = "release"


class RollbackIn(Record):
    """Which generation to serve again; null for the one before the head."""

    to: int | None = Field(default=None, ge=1)
    reason: str = "rollback"


SpecBody = Annotated[CompositionSpec, BeforeValidator(tupled)]
PublishBody = Annotated[PublishIn, BeforeValidator(tupled)]


class HealthOut(Record):
    """Alive."""

    status: Literal["ok"]


class ProblemItem(Record):
    """One thing that is wrong; `path` is a JSON pointer."""

    code: str
    path: str
    expected: str
    observed: str
    hint: str


class ProblemOut(Record):
    """RFC 9457 problem+json; a refused composition also carries its stored `decision`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[ProblemItem, ...]
    head: str | None = None
    admission: str | None = None
    decision: dict[str, Any] | None = None


PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {
        "model": ProblemOut,
        "description": "A problem of the request",
        "content": {"application/problem+json": {}},
    },
    "5XX": {
        "model": ProblemOut,
        "description": "A problem of the service",
        "content": {"application/problem+json": {}},
    },
}
