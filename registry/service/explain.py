"""What a code or a recorded failure means, who repairs it and how."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Literal

import yaml
from pydantic import RootModel, StringConstraints

from registry.errors import NotFoundError, Problem
from schemas.canonical import JsonObject
from schemas.catalogue import Failure, by_id
from schemas.decision import Code
from schemas.model import Record, validate
from validators import CODES, CodeRecord, CodeUnknownError

Who = Literal["caller", "adapter", "base", "operator", "program"]
Line = Annotated[str, StringConstraints(min_length=8, max_length=200, pattern=r"^[A-Z`].*[.]$")]


class CodeNote(Record):
    """A code that is no finding: what it means and how it is repaired."""

    means: Line
    repair: Line


_Groups = RootModel[dict[Who, dict[Code, CodeNote]]]
"""Notes by who repairs them: the caller, the author of the adapter, who registers the base, who runs the registry, or
the program's own authors."""


@cache
def notes() -> Mapping[str, tuple[Who, CodeNote]]:
    """Every code that is no finding, with who repairs it, in the order of the alphabet."""
    text = files(__package__).joinpath("codes.yaml").read_text(encoding="utf-8")
    groups = validate(_Groups, yaml.safe_load(text)).root
    flat = {code: (who, note) for who, group in groups.items() for code, note in group.items()}
    return MappingProxyType(dict(sorted(flat.items())))


def explain(name: str) -> JsonObject:
    """The fields to show about a finding's code, another code, or a failure of the catalogue.

    Raises:
        CodeUnknownError: `CODE_UNKNOWN`.
    """
    if name in CODES:
        return _finding(CODES[name])
    if name in notes():
        who, note = notes()[name]
        return {"code": name, "meaning": note.means, "owner": who, "recovery": note.repair}
    if name in by_id():
        return by_id()[name].document()
    raise CodeUnknownError(
        Problem(
            code="CODE_UNKNOWN",
            expected="a code, or the name of a failure",
            observed=name[:120],
            hint="Copy it from a message or a decision; all of them stand in the reference.",
        )
    )


def failure(name: str) -> Failure:
    """One failure of the catalogue. Raises NotFoundError `FAILURE_UNKNOWN`."""
    found = by_id().get(name)
    if found is None:
        raise NotFoundError(
            Problem(
                code="FAILURE_UNKNOWN",
                expected="the name of a failure of the catalogue",
                observed=name[:120],
                hint="The list of failures and the reference have all of them.",
            )
        )
    return found


def _finding(record: CodeRecord) -> JsonObject:
    return {
        "code": record.code,
        "severity": record.severity,
        "predicate": f"P_{record.predicate}",
        "coordinate": f"{record.coordinate} becomes {record.status}",
        "invariant": record.invariant,
        "example": by_id()[record.failure].fault,
        "consequence": record.consequence,
        "owner": record.owner,
        "recovery": record.recovery,
        "failure": record.failure,
    }
