"""The results page says what was proved, what was not, and where a document is wrong."""

from dataclasses import replace

from oracles.checks import close
from oracles.mutation import close_mutations
from oracles.page import magnitude, render
from oracles.registry import load
from oracles.runner import run


def test_the_page_shows_numbers_limits_and_mutation_counts() -> None:
    page = render([run("composition_merge")], {"composition_merge": close_mutations(load("composition_merge"))})
    assert "| composition_merge | R 0x05A to 0x05H |" in page
    assert "| 312 of 312 | 13 | 128 |" in page
    assert "| TIES merge | R 0x05E | [4.0, -3.0, -2.5, 0.0] | holds |" in page
    assert "- that any merged adapter keeps the quality of its members" in page


def test_a_statement_that_fails_when_executed_is_printed_beside_the_true_value() -> None:
    report = run("dora")
    wrong = close("sum", 3.0, 3.0, source="V 0x08", digits=1, stated=4.0)
    page = render([replace(report, checks=(*report.checks, wrong))], {})
    assert "fails when executed (V 0x08, sum): it states 4.0; the true value is 3.0." in page


def test_the_page_is_the_same_on_machines_whose_measured_errors_differ_in_digits() -> None:
    assert magnitude(2.65e-11) == magnitude(4.4e-11) == "below 1e-10"
    assert magnitude(0.0) == "0"
