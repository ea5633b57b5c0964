"""The decision and the ledger as tables a person can act on."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from registry.service.results import Admitted
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import COMPONENTS, COORDINATES, Finding
from schemas.digests import PREFIX
from schemas.names import short
from validators import problem_of

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


def decision_table(answer: Admitted) -> Group:
    """Outcome, vector, predicates and findings."""
    decision = answer.decision
    vector = Table("coordinate", "status", "reason", box=None, pad_edge=False, header_style="bold")
    for coordinate in COORDINATES:
        status = getattr(decision.vector, coordinate)
        vector.add_row(coordinate, status.status, status.reason)
    predicates = "  ".join(f"P_{name} {getattr(decision.predicates, name)}" for name in COMPONENTS)
    outcome = Text.assemble(("outcome  ", "bold"), (decision.outcome, _STYLE[decision.outcome]))
    return Group(outcome, vector, Text(predicates), *(_finding(finding) for finding in decision.findings))


def _finding(finding: Finding) -> Text:
    problem = problem_of(finding)
    where = f" at {problem.pointer}" if problem.path else ""
    subject = f" of {short(finding.subject)}" if finding.subject.startswith(PREFIX) else ""
    return Text(
        f"{finding.severity}: {problem.code}{where}{subject}: expected {problem.expected}, found {problem.observed}"
        f"\n    repair: {problem.hint}"
    )


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
