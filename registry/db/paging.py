"""Keyset pages: no counting, no offset; the token says where the last page ended."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from registry.db.session import Reader
from registry.errors import Problem, UsageProblemError

T = TypeVar("T")
U = TypeVar("U")
LARGEST: Final = 1000


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some results and the token of the page after them; None at the end."""

    items: tuple[T, ...]
    next: str | None

    def map(self, convert: Callable[[T], U]) -> Page[U]:
        """The same page with every item converted."""
        return Page(tuple(convert(item) for item in self.items), self.next)


def page(
    reader: Reader,
    statement: Select[T],
    keys: Sequence[InstrumentedAttribute[Any]],
    after: str | None,
    limit: int,
    *,
    newest_first: bool = False,
) -> Page[T]:
    """One page of `statement`, ordered by `keys`, which together are unique.

    Raises:
        UsageProblemError: `PAGE_TOKEN_INVALID`.
    """
    size = max(1, min(limit, LARGEST))
    if after is not None:
        place, position = tuple_(*keys), tuple_(*_decode(after, keys))
        statement = statement.where(place < position if newest_first else place > position)
    order = [key.desc() if newest_first else key.asc() for key in keys]
    found = reader.all(statement.order_by(*order).limit(size + 1))
    if len(found) <= size:
        return Page(found, None)
    return Page(found[:size], _encode([getattr(found[size - 1], key.key) for key in keys]))


def _encode(values: list[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _decode(token: str, keys: Sequence[InstrumentedAttribute[Any]]) -> list[str | int]:
    try:
        values = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError) as error:
        raise UsageProblemError(_invalid(token)) from error
    types = [key.type.python_type for key in keys]
    if not isinstance(values, list) or [type(value) for value in values] != types:
        raise UsageProblemError(_invalid(token))
    return values


def _invalid(token: str) -> Problem:
    return Problem(
        code="PAGE_TOKEN_INVALID",
        path=("after",),
        expected="the `next` token of an earlier page of this list",
        observed=repr(token)[:120],
        hint="Start from the first page.",
    )
