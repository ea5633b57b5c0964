"""Every number of the ledger is asserted by a passing check that cites the same section."""

from dataclasses import replace

import pytest

from oracles.registry import names
from tests.oracles.ledger import Row, problem, report
from tests.oracles.printed import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.oracle}: {row.check}")
def test_a_passing_check_asserts_each_printed_number(row: Row) -> None:
    assert problem(row, report(row.oracle).checks) is None


def test_every_listed_oracle_has_ledger_rows() -> None:
    assert {row.oracle for row in ROWS} == set(names())


def test_a_number_no_check_asserts_is_reported() -> None:
    row = Row("dora", "row norms c", "V 0x08F", "5.010304381972")
    assert problem(row, report("dora").checks) == "'row norms c' does not assert 5.010304381972"


def test_a_row_that_cites_another_section_is_reported() -> None:
    row = Row("dora", "row norms c", "V 0x08A", "5.010304381971")
    assert problem(row, report("dora").checks) == "'row norms c' cites V 0x08F, the ledger V 0x08A"


def test_a_failing_check_asserts_nothing() -> None:
    row = Row("dora", "m0", "V 0x08F", "5")
    checks = tuple(replace(check, passed=False) for check in report("dora").checks)
    assert problem(row, checks) == "'m0' fails"
