"""Every row of the table of silent faults, asserted: PEFT's value, ours and the exact one, measured now."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import pytest
import torch
from torch import Tensor

from tests.parity import table
from tests.parity.table import Row


@pytest.fixture(scope="module")
def measured() -> Mapping[str, Row]:
    """All rows by the name of their function."""
    return {measure.__name__: row for measure, row in zip(table.MEASURES, table.rows(), strict=True)}


def ratio(value: object, exact: Tensor) -> float:
    """By how much two parallel vectors differ; they must be parallel."""
    assert isinstance(value, Tensor)
    factor = float(value @ exact / (exact @ exact))
    torch.testing.assert_close(value, factor * exact, rtol=1e-6, atol=1e-6)
    return factor


def test_every_row_of_ours_is_exact_or_refused(measured: Mapping[str, Row]) -> None:
    assert [row.case for row in measured.values() if not row.ours_is_right] == []


def test_peft_is_wrong_in_all_rows_but_the_repaired_one(measured: Mapping[str, Row]) -> None:
    assert [name for name, row in measured.items() if row.peft_is_right] == ["scaled_once"]


def test_peft_is_wrong_without_a_word(measured: Mapping[str, Row]) -> None:
    assert [name for name, row in measured.items() if row.said != "nothing"] == ["zero_weight"]
    assert "no pruning will be performed" in measured["zero_weight"].said


def test_rank_stabilised_members_come_out_by_the_root_of_the_output_rank(measured: Mapping[str, Row]) -> None:
    row = measured["rank_stabilised"]
    assert ratio(row.peft, row.exact) == pytest.approx(sqrt(8), rel=1e-6)
    assert row.registration == "accepts"


def test_dora_alone_is_not_itself_and_is_refused_here(measured: Mapping[str, Row]) -> None:
    row = measured["dora"]
    assert row.distance(row.peft) > 0.1
    assert (row.ours, row.registration) == ("DORA_NOT_ADDITIVE", "accepts")


def test_a_bias_of_b_is_dropped_and_refused_here(measured: Mapping[str, Row]) -> None:
    row = measured["lora_bias"]
    assert isinstance(row.peft, Tensor)
    assert not row.peft.any()
    assert row.exact.all()
    assert (row.ours, row.registration) == ("LORA_BIAS_NOT_COMPOSED", "accepts")


@pytest.mark.parametrize("name", ["first_on_some_layers", "first_with_exclusions"])
def test_layers_the_first_member_leaves_out_are_lost(measured: Mapping[str, Row], name: str) -> None:
    row = measured[name]
    assert isinstance(row.peft, Tensor)
    kept, lost = row.peft.chunk(2)
    torch.testing.assert_close(kept, row.exact.chunk(2)[0], rtol=1e-6, atol=1e-6)
    assert not lost.any()
    assert row.exact.chunk(2)[1].any()


def test_a_trained_head_is_the_bases_again(measured: Mapping[str, Row]) -> None:
    row = measured["trained_head"]
    assert isinstance(row.peft, Tensor)
    assert isinstance(row.ours, Tensor)
    assert torch.equal(row.ours, row.exact)
    # The base's pooler starts at weights of deviation 0.02, the trained one is a standard normal.
    assert float(row.peft.std()) < 0.05
    assert row.registration == "accepts"


def test_a_failed_merge_leaves_a_zero_adapter_that_a_retry_returns(measured: Mapping[str, Row]) -> None:
    row = measured["failed_merge"]
    assert isinstance(row.peft, Tensor)
    assert not row.peft.any()
    assert row.ours == "RANKS_DIFFER"


def test_a_member_without_a_weight_is_dropped(measured: Mapping[str, Row]) -> None:
    row = measured["missing_weight"]
    assert row.distance(row.peft) > 0.1
    assert row.ours == "SPEC_INVALID"


def test_a_member_of_weight_zero_halves_the_other(measured: Mapping[str, Row]) -> None:
    row = measured["zero_weight"]
    assert ratio(row.peft, row.exact) == pytest.approx(0.5, rel=1e-6)


def test_the_table_prints_every_row(measured: Mapping[str, Row]) -> None:
    lines = table.render(list(measured.values())).splitlines()
    assert len(lines) == 1 + len(table.MEASURES)
    assert [line.split("  ")[0] for line in lines[1:]] == [row.case for row in measured.values()]
