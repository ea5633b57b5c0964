"""The additivity witness: the document's residual, and what has none (R 0x05G)."""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import pytest
import torch

from compose.witness import Branch, Gate, residual, routed

E1, E2 = torch.eye(2, dtype=torch.float64)
FIRST = Branch(E1[None, :], E1[:, None], 1.0)
SECOND = Branch(E2[None, :], E2[:, None], 1.0)


def gate(**changes: Any) -> Gate:
    """A softmax over two branches that reads the input through the identity."""
    fields: dict[str, Any] = {
        "rows": torch.eye(2, dtype=torch.float64),
        "reads": "input",
        "activation": "softmax",
        "k": None,
        "threshold": None,
        "over_selected": False,
    }
    return Gate(**fields | changes)


def test_the_documents_router_has_the_documents_residual() -> None:
    function = routed([FIRST, SECOND], gate())
    defect = function(E1 + E2) - function(E1) - function(E2)
    expected = 0.5 - exp(1) / (exp(1) + 1)
    assert defect.tolist() == pytest.approx([expected, expected], abs=1e-12)
    assert expected == pytest.approx(-0.2311, abs=5e-5)
    assert residual([FIRST, SECOND], gate()) == pytest.approx(sqrt(2) * abs(expected), abs=1e-12)
    assert residual([FIRST, SECOND], gate()) == pytest.approx(0.3268, abs=5e-5)


def test_uniform_gates_are_one_matrix() -> None:
    assert residual([FIRST, SECOND], gate(rows=None, activation="uniform")) == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 1, "over_selected": True},
        {"activation": "sigmoid"},
        {"activation": "raw"},
        {"activation": "raw", "threshold": 0.5},
        {"reads": "branch_output"},
    ],
)
def test_every_gate_that_reads_its_input_has_a_counterexample(changes: Any) -> None:
    assert residual([FIRST, SECOND], gate(**changes)) > 0.1


def test_the_best_of_equal_logits_is_the_earlier_candidate() -> None:
    function = routed([FIRST, SECOND], gate(k=1, over_selected=True))
    assert function(E1 + E2).tolist() == [1.0, 0.0]


def test_a_no_op_takes_weight_and_adds_nothing() -> None:
    rows = torch.zeros((3, 2), dtype=torch.float64)
    function = routed([None, FIRST, SECOND], gate(rows=rows))
    assert function(E1).tolist() == pytest.approx([1 / 3, 0.0])


def test_the_scale_of_a_branch_is_part_of_its_update() -> None:
    doubled = Branch(FIRST.a, FIRST.b, 2.0)
    assert doubled(E1).tolist() == [2.0, 0.0]
