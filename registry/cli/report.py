"""The decision and the ledger as tables a person can act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from registry.client import Registry
from registry.service.results import Admitted
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import COMPONENTS, COORDINATES, Finding, Severity
from schemas.digests import PREFIX, Digest
from schemas.names import short
from validators import explain, problem_of

_STYLE = {"admitted": "green", "conditional": "yellow", "refused": "red"}
_LEDGER_COLUMNS = (
    "input_ranks",
    "output_rank",
    "norm",
    "error",
    "rounding",
    "deviation",
    "discarded_energy",
    "cross_term_norm",
    "gauge_sensitivity",
    "sign_conflict",
    "retained",
)
_MOST_ROWS = 24
_MOST_PLACES = 3
_SEVERITIES: Final[tuple[Severity, ...]] = ("refuse", "condition", "note")


def decision_table(answer: Admitted, names: Mapping[Digest, str] = MappingProxyType({})) -> Group:
    """Outcome, vector, predicates, and what is to be done: the findings code by code, the gravest first.

    `names` are those of members and bases; a digest without one is shown shortened.
    """
    decision = answer.decision
    vector = Table("coordinate", "status", "evidence", "reason", box=None, pad_edge=False, header_style="bold")
    for coordinate in COORDINATES:
        status = getattr(decision.vector, coordinate)
        vector.add_row(coordinate, status.status, status.evidence, status.reason)
    predicates = "  ".join(f"P_{name} {getattr(decision.predicates, name)}" for name in COMPONENTS)
    outcome = Text.assemble(("outcome  ", "bold"), (decision.outcome, _STYLE[decision.outcome]))
    return Group(outcome, vector, Text(predicates), *_by_code(decision.findings, names))


def names_of(registry: Registry, answer: Admitted) -> dict[Digest, str]:
    """A `NAME@VERSION` for each digest that findings are about, where it has one."""
    digests = {item.subject for item in answer.decision.findings if item.subject.startswith(PREFIX)}
    refs = {digest: registry.show(digest).refs for digest in digests}
    return {digest: found[-1] for digest, found in refs.items() if found}


def _by_code(findings: Sequence[Finding], names: Mapping[Digest, str]) -> Iterator[Text]:
    """Each code once with its places and its repair: a model has hundreds of places and one thing to do about them."""
    grouped: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda item: _SEVERITIES.index(item.severity)):
        grouped.setdefault(finding.code, []).append(finding)
    for code, found in grouped.items():
        record = explain(code)
        yield Text(f"{record.severity} {code}: {record.invariant}")
        yield from (Text(f"  {_place(item, names)}") for item in found[:_MOST_PLACES])
        if len(found) > _MOST_PLACES:
            yield Text(f"  … {len(found) - _MOST_PLACES} more: -o json")
        yield Text(f"  repair ({record.owner}): {record.recovery}")


def _place(finding: Finding, names: Mapping[Digest, str]) -> str:
    where = problem_of(finding).pointer
    named = finding.subject.startswith(PREFIX)
    subject = names.get(finding.subject, short(finding.subject)) if named else finding.subject
    return f"{subject} at {where}: expected {finding.expected}, found {finding.observed}"


def ledger_table(measurement: JsonObject) -> Table:
    """The ledger, a row a module and one for all; figures that do not belong to the method are left out."""
    modules = {name: row for name, row in _mapping(measurement.get("modules")).items() if isinstance(row, dict)}
    total = _mapping(measurement.get("total"))
    columns = [key for key in _LEDGER_COLUMNS if any(row.get(key) not in (None, []) for row in modules.values())]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("module", *columns):
        table.add_column(column.replace("_", " "), no_wrap=True)
    for name, row in list(modules.items())[:_MOST_ROWS]:
        table.add_row(name, *(_cell(row.get(column)) for column in columns))
    if len(modules) > _MOST_ROWS:
        table.add_row(f"… {len(modules) - _MOST_ROWS} more: -o json")
    table.add_row(f"total of {len(modules)} modules", *(_cell(total.get(column)) for column in columns))
    return table


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _cell(value: JsonValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "+".join(_cell(item) for item in value) or "-"
    return str(value)
