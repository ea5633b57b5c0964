"""The decision and the ledger as tables a person can act on."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from registry.service.results import Admitted
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import COMPONENTS, COORDINATES, Finding
from validators import explain

_STYLE = {"admitted": "green", "conditional": "yellow", "refused": "red"}
_LEDGER_COLUMNS = ("module", "input_ranks", "output_rank", "norm", "stored_error", "rounding_error")


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
    record = explain(finding.code)
    return Text(
        f"{finding.severity}: {finding.code} ({finding.subject}) expected {finding.expected}, "
        f"found {finding.observed}\n    repair: {record.recovery}"
    )


def ledger_table(measurement: JsonObject) -> Table:
    """The ledger, a row a module and one for all."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _LEDGER_COLUMNS:
        table.add_column(column.replace("_", " "), no_wrap=True)
    for row in _rows(measurement):
        table.add_row(*(_cell(row.get(column)) for column in _LEDGER_COLUMNS))
    return table


def _rows(measurement: JsonObject) -> list[JsonObject]:
    modules = measurement.get("modules")
    total = measurement.get("total")
    rows = [row for row in modules if isinstance(row, dict)] if isinstance(modules, list) else []
    return [*rows, {"module": "total", **total}] if isinstance(total, dict) else rows


def _cell(value: JsonValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "+".join(_cell(item) for item in value)
    return str(value)
