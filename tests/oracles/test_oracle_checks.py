"""A check's verdict, and the part of it that the semantic digest sees."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from oracles.checks import above, below, close, equal, worst_error
from oracles.report import build
from oracles.runner import run


def test_a_value_that_rounds_to_the_printed_digits_holds_and_one_unit_off_fails() -> None:
    assert close("x", 0.70710678, 0.7071, source="R 0x05D", digits=4).passed
    assert not close("x", 0.7072, 0.7071, source="R 0x05D", digits=4).passed


def test_another_structure_or_a_nan_never_holds() -> None:
    for value in ((1.0,), (1.0, 2.0, 3.0), 1.0, None, (1.0, math.nan)):
        assert not close("x", value, (1.0, 2.0), source="V 0x08", digits=1).passed
    assert not below("x", math.nan, 1.0, source="V 0x08").passed
    assert not above("x", math.nan, 1.0, source="V 0x08").passed


def test_an_exact_check_tells_booleans_text_and_order_apart() -> None:
    assert equal("x", ("a", True, 3), ("a", True, 3), source="C 0x02").passed
    assert not equal("x", ("a", False, 3), ("a", True, 3), source="C 0x02").passed
    assert not equal("x", (2, 1), (1, 2), source="C 0x02").passed
    assert not equal("x", True, 1, source="C 0x02").passed
    assert not equal("x", True, "True", source="C 0x02").passed


@given(st.floats(-4e-5, 4e-5))
def test_noise_inside_the_tolerance_never_reaches_the_printed_value(noise: float) -> None:
    check = close("x", (0.00005 + noise, -0.0), (0.0, 0.0), source="V 0x08", digits=4, tolerance=1e-4)
    assert check.printed == ("0.0000", "0.0000")


def test_a_failing_value_is_printed_as_it_is_without_a_negative_zero() -> None:
    assert close("x", (-1e-9, 2.0), (1.0, 1.0), source="V 0x08", digits=3).printed == ("0.000", "2.000")


def test_measured_errors_stay_out_of_the_semantic_digest_and_count_as_worst_error() -> None:
    small, large = (below("error", value, 1e-9, source="V 0x08F") for value in (1e-12, 3e-12))
    assert small.printed == large.printed
    assert worst_error((small, large)) == 3e-12
    assert worst_error(()) == 0.0


def test_the_semantic_digest_moves_with_a_verdict_but_not_with_noise() -> None:
    report = run("dora")
    noisy = tuple(replace(check, value=1e-20) if check.kind == "below" else check for check in report.checks)
    failing = (replace(report.checks[0], passed=False), *report.checks[1:])
    fixture = report.oracle.fixture_bytes()
    assert build(report.oracle, noisy, fixture, 0.0).semantic() == report.semantic()
    assert build(report.oracle, noisy, fixture, 0.0).digest() != report.digest()
    assert build(report.oracle, failing, fixture, 0.0).semantic() != report.semantic()


def test_a_report_without_checks_does_not_pass() -> None:
    report = run("dora")
    assert not replace(report, checks=()).passed


def test_seconds_are_part_of_neither_digest() -> None:
    report = run("dora")
    slower = replace(report, seconds=report.seconds + 1)
    assert (slower.semantic(), slower.digest()) == (report.semantic(), report.digest())
