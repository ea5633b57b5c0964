"""The number ledger: which check asserts each number of the documents."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from oracles.checks import Check, Value
from oracles.report import Report
from oracles.runner import run


@dataclass(frozen=True)
class Row:
    """Numbers (or words) separated by blanks, the section that prints them, and the oracle's check for them."""

    oracle: str
    check: str
    source: str
    numbers: str


def rows(oracle: str, source: str, numbers_by_check: dict[str, str]) -> tuple[Row, ...]:
    """The rows of one oracle and section: check name -> the numbers it asserts."""
    return tuple(Row(oracle, check, source, numbers) for check, numbers in numbers_by_check.items())


@cache
def report(oracle: str) -> Report:
    """The report of one oracle, computed once."""
    return run(oracle)


def leaves(value: Value) -> Iterator[Value]:
    """Every entry of a nested value."""
    if isinstance(value, tuple):
        for entry in value:
            yield from leaves(entry)
    else:
        yield value


def names_number(token: str, leaf: Value) -> bool:
    """Whether a checked value is the printed token: equal as text, or within half a unit of its last digit."""
    if str(leaf) == token:
        return True
    if isinstance(leaf, bool) or not isinstance(leaf, int | float):
        return False
    try:
        number = float(token)
    except ValueError:
        return False
    mantissa, _, exponent = token.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(leaf - number) <= (0.51 * unit if "." in token or exponent else 0.0)


def problem(row: Row, checks: tuple[Check, ...]) -> str | None:
    """Why a row is not asserted, or None."""
    found = [check for check in checks if check.name == row.check]
    if len(found) != 1:
        return f"{len(found)} checks are called {row.check!r}"
    check = found[0]
    if not check.passed:
        return f"{row.check!r} fails"
    if check.source != row.source:
        return f"{row.check!r} cites {check.source}, the ledger {row.source}"
    expected = list(leaves(check.expected)) + list(leaves(check.stated))
    absent = [token for token in row.numbers.split() if not any(names_number(token, leaf) for leaf in expected)]
    return f"{row.check!r} does not assert {' '.join(absent)}" if absent else None
