"""The results page: what each oracle proves, its numbers, and what it does not prove, as Markdown."""

import sys
from collections.abc import Mapping, Sequence

from oracles.checks import Check, Value
from oracles.mutation import Closure, close_mutations
from oracles.registry import load, names
from oracles.report import CLAIMS, Report
from oracles.runner import run_all

_DOCUMENTS = {
    "V": "the low-rank design space",
    "C": "conditional compute",
    "R": "routed, shared and continual adapters",
}


def render(reports: Sequence[Report], closures: Mapping[str, Closure]) -> str:
    """The whole page; `closures` may lack oracles whose mutations were not run."""
    lines = [
        "# Oracle results",
        "",
        "This page is generated. Sources: "
        + "; ".join(f"{letter} is the document on {title}" for letter, title in _DOCUMENTS.items())
        + ".",
        "No oracle claims any of: " + ", ".join(claim.replace("_", " ") for claim in CLAIMS) + ".",
        "",
        "| oracle | source | checks | worst error | mutations rejected | without role | the document's count |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_summary(report, closures.get(report.oracle.name)) for report in reports]
    for report in reports:
        lines += ["", *_section(report)]
    return "\n".join(lines) + "\n"


def _summary(report: Report, closure: Closure | None) -> str:
    oracle = report.oracle
    passed = f"{len(report.checks) - len(report.failed)} of {len(report.checks)}"
    mutations = ("not run", "not run")
    if closure is not None:
        mutations = (f"{closure.rejected} of {closure.generated}", str(closure.without_role))
    counted = "not stated" if oracle.document_mutations is None else str(oracle.document_mutations)
    first, last = oracle.sections[0], oracle.sections[-1]
    sections = first if first == last else f"{first} to {last}"
    cells = (oracle.name, f"{oracle.document} {sections}", passed, magnitude(report.worst_error), *mutations, counted)
    return "| " + " | ".join(cells) + " |"


def _section(report: Report) -> list[str]:
    oracle = report.oracle
    lines = [f"## {oracle.name}", "", "Proves:", "", *(f"- {item}" for item in oracle.proves)]
    lines += ["", "Does not prove:", "", *(f"- {item}" for item in oracle.does_not_prove)]
    if oracle.own:
        lines += ["", f"Fixture values the document does not print: {', '.join(oracle.own)}."]
    for check in report.disagreements:
        lines += ["", f"The document's statement fails when executed ({check.source}, {check.name}): it states "]
        lines[-1] += f"{shown(check.stated)}; the true value is {shown(check.expected)}."
    lines += ["", "| check | source | value | verdict |", "| --- | --- | --- | --- |"]
    return lines + [_check(check) for check in report.checks]


def _check(check: Check) -> str:
    bound = {"below": f"at most {shown(check.expected)}", "above": f"at least {shown(check.expected)}"}
    value = bound.get(check.kind, shown(check.printed))
    cells = (check.name, check.source, value, "holds" if check.passed else "FAILS")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def magnitude(value: float) -> str:
    """The power of ten a measured error stays below, which does not change from machine to machine as digits do."""
    return "0" if value == 0.0 else f"below 1e{int(f'{value:e}'.partition('e')[2]) + 1}"


def shown(value: Value) -> str:
    """A nested value on one line."""
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(entry) for entry in value) + "]"
    return "none" if value is None else str(value)


def main() -> None:
    """Write the page of all oracles, mutation closures included, to stdout: `python -m oracles.page`."""
    closures = {name: close_mutations(load(name)) for name in names()}
    sys.stdout.write(render(list(run_all(names())), closures))


if __name__ == "__main__":
    main()
