"""A check: one named comparison with its tolerance, its source and the digits its source prints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from oracles.differences import Difference

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"
Kind: TypeAlias = Literal["close", "equal", "below", "above"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison.

    `close` holds a number, vector or matrix against printed values; `equal` is exact; `below` and `above` hold a
    measured magnitude against a bound. `digits` is the number of printed decimals. `stated` is set where the
    document's own statement fails when executed: then `expected` is the true value and `stated` the document's.
    """

    name: str
    kind: Kind
    passed: bool
    value: Value
    expected: Value
    source: str
    tolerance: float = 0.0
    digits: int | None = None
    stated: Value = None

    @property
    def printed(self) -> Value:
        """The value as the semantic digest sees it, the same on every machine.

        A passing `close` check equals its printed expectation, so that is what is stated (a value near a rounding
        boundary cannot flip). A measured magnitude depends on the machine: only its bound is stated.
        """
        if self.kind in ("below", "above"):
            return self.expected
        return decimals(self.expected if self.passed else self.value, self.digits)


def decimals(value: Value, digits: int | None) -> Value:
    """Floats as text with `digits` decimals (shortest form when None), without a negative zero."""
    if isinstance(value, tuple):
        return tuple(decimals(entry, digits) for entry in value)
    if isinstance(value, float) or (digits is not None and isinstance(value, int) and not isinstance(value, bool)):
        return repr(float(value) + 0.0) if digits is None else f"{round(value, digits) + 0.0:.{digits}f}"
    return value


def gap(value: Value, expected: Value) -> float:
    """The largest absolute difference of two nested values; infinite when their structure differs."""
    if isinstance(value, tuple) and isinstance(expected, tuple):
        if len(value) != len(expected):
            return math.inf
        return max((gap(x, y) for x, y in zip(value, expected, strict=True)), default=0.0)
    if isinstance(value, bool) or isinstance(expected, bool):
        return 0.0 if value is expected else math.inf
    if isinstance(value, int | float) and isinstance(expected, int | float):
        difference = abs(value - expected)
        return math.inf if math.isnan(difference) else difference
    return 0.0 if value == expected else math.inf


def close(
    name: str,
    value: Value,
    expected: Value,
    *,
    source: str,
    digits: int,
    tolerance: float | None = None,
    stated: Value = None,
) -> Check:
    """`value` rounds to the printed `expected`; the tolerance defaults to half a unit of the last printed digit."""
    allowed = 0.51 * 10.0**-digits if tolerance is None else tolerance
    return Check(
        name=name,
        kind="close",
        passed=gap(value, expected) <= allowed,
        value=value,
        expected=expected,
        source=source,
        tolerance=allowed,
        digits=digits,
        stated=stated,
    )


def equal(name: str, value: Value, expected: Value, *, source: str, stated: Value = None) -> Check:
    """`value` is exactly `expected`: counts, names, orders, verdicts, and floats that must be exact."""
    return Check(
        name=name,
        kind="equal",
        passed=gap(value, expected) == 0.0,
        value=value,
        expected=expected,
        source=source,
        stated=stated,
    )


def below(name: str, value: float, bound: float, *, source: str) -> Check:
    """A measured error is at most `bound`."""
    return Check(name=name, kind="below", passed=value <= bound, value=value, expected=bound, source=source)


def above(name: str, value: float, bound: float, *, source: str) -> Check:
    """A measured difference is at least `bound`: the witness that two things are not the same."""
    return Check(name=name, kind="above", passed=value >= bound, value=value, expected=bound, source=source)


def gradient(name: str, difference: Difference, bound: float, *, source: str) -> Check:
    """An analytic gradient agrees with central differences within `bound`; the value is the worst error."""
    return below(f"{name} ({difference.coordinates} coordinates)", difference.worst, bound, source=source)


def worst_error(checks: Sequence[Check]) -> float:
    """The largest measured error among the `below` checks; 0 when there is none."""
    return max((float(c.value) for c in checks if c.kind == "below" and isinstance(c.value, float)), default=0.0)
