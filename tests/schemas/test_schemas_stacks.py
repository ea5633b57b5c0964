"""Stacked experts: their shape from the experts a checkpoint stores, and nothing where those do not stack."""

from __future__ import annotations

import pytest

from schemas.stacks import STACKS, Shape

QWEN: dict[str, Shape] = {
    f"model.layers.1.mlp.experts.{expert}.{leaf}.weight": shape
    for expert in range(3)
    for leaf, shape in (("gate_proj", (5, 8)), ("up_proj", (5, 8)), ("down_proj", (8, 5)))
}
GATE_UP, DOWN = "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj"


def shape(module: str, weights: dict[str, Shape]) -> Shape | None:
    return STACKS["qwen3_moe"].shape(module, weights.get)


def test_leaves_follow_each_other_in_the_rows_of_a_stack() -> None:
    assert (shape(GATE_UP, QWEN), shape(DOWN, QWEN)) == ((3, 10, 8), (3, 8, 5))


@pytest.mark.parametrize(
    "weights",
    [
        {name: size for name, size in QWEN.items() if "up_proj" not in name},
        QWEN | {"model.layers.1.mlp.experts.2.up_proj.weight": (6, 8)},
        {},
    ],
    ids=["a leaf is missing", "an expert of another shape", "no experts"],
)
def test_what_does_not_stack_has_no_shape(weights: dict[str, Shape]) -> None:
    assert shape(GATE_UP, weights) is None


@pytest.mark.parametrize("module", ["model.layers.1.mlp.gate", "model.layers.1.xmlp.experts.down_proj"])
def test_another_module_is_no_stack(module: str) -> None:
    assert shape(module, QWEN) is None


def test_a_stack_at_the_root_is_found() -> None:
    weights: dict[str, Shape] = {f"mlp.experts.0.{leaf}.weight": (2, 3) for leaf in ("gate_proj", "up_proj")}
    assert shape("mlp.experts.gate_up_proj", weights) == (1, 4, 3)
