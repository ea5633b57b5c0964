"""Weights changed in place: every layout of a delta, one rounding, DoRA's rows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from compose import ComposeRefusedError, TensorSource
from compose.release import TILE, DeltaSource, Patch, Patched, release
from schemas.digests import tensor_digest
from tests.compose.building import read_sources


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


class Model:
    """A file with weight ``w`` and a file with the tensors of one factor."""

    def __init__(self, folder: Path, weight: Tensor, **factor: Tensor) -> None:
        self.path, self.weight, self.factor = folder / "model.safetensors", weight, factor
        save_file({"before": torch.ones(3), "w": weight, "z": torch.ones(2)}, self.path)
        save_file(factor, folder / "factor.safetensors")
        self.sources: dict[str, TensorSource] = read_sources(folder / "factor.safetensors")
        self.place = read_sources(self.path)["w"]

    def delta(self, scale: float = 1.0, **fields: Any) -> DeltaSource:
        """The factor as the arithmetic takes it."""
        a, b, e, magnitude = (self.sources.get(name) for name in ("a", "b", "e", "magnitude"))
        assert a is not None
        assert b is not None
        return DeltaSource("m", a, b, scale, e=e, magnitude=magnitude, **fields)

    def changed(self, *deltas: DeltaSource, whole: TensorSource | None = None) -> tuple[Patched, Tensor]:
        """Run it and read the weight back with safetensors' own reader."""
        (patched,) = release((Patch("w", self.place, deltas, whole),), workers=2)
        tensors = load_file(self.path)
        assert torch.equal(tensors["before"], torch.ones(3))
        assert torch.equal(tensors["z"], torch.ones(2))
        return patched, tensors["w"]


def check(patched: Patched, found: Tensor, weight: Tensor, exact: Tensor) -> None:
    """One rounding of the exact weight, measured."""
    room = 1e-13 if found.dtype == torch.float64 else 0.0
    # numpy rounds float64 to float16 in one step, torch in two.
    rounded = torch.from_numpy(exact.numpy().astype(found.numpy().dtype))
    torch.testing.assert_close(found, rounded, rtol=room, atol=room)
    assert patched.change == pytest.approx(float(torch.linalg.norm(exact - weight.double())), rel=1e-9)
    assert patched.rounding == pytest.approx(float(torch.linalg.norm(exact - found.double())), rel=1e-9, abs=1e-12)
    data = found.contiguous().view(torch.uint8).numpy().tobytes()
    assert patched.tensor.tensor == tensor_digest(patched.tensor.dtype, patched.tensor.shape, data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (TILE // 500 + 3, 500)])
def test_a_linear_weight_gets_its_delta_in_one_tile_or_several(
    tmp_path: Path, dtype: torch.dtype, rows: int, columns: int
) -> None:
    model = Model(tmp_path, draw(rows, columns, dtype=dtype), a=draw(2, columns, seed=1), b=draw(rows, 2, seed=2))
    patched, found = model.changed(model.delta(0.5))
    check(patched, found, model.weight, model.weight.double() + 0.5 * model.factor["b"] @ model.factor["a"])


def test_bfloat16_rounds_the_sum_once(tmp_path: Path) -> None:
    # 1 + 2^-8 + 2^-30 lies above the middle of two neighbours; float32 on the way would round it to the middle.
    model = Model(
        tmp_path, torch.ones(1, 1, dtype=torch.bfloat16), a=torch.full((1, 1), 1.0).double(),
        b=torch.full((1, 1), 2.0**-8 + 2.0**-30).double(),
    )  # fmt: skip
    patched, found = model.changed(model.delta())
    assert found.item() == 1 + 2.0**-7
    assert patched.rounding == pytest.approx(2.0**-8 - 2.0**-30, rel=1e-9)


def test_tables_and_conv1d_are_stored_input_first(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(9, 4), a=draw(2, 9, seed=1), b=draw(4, 2, seed=2))
    patched, found = model.changed(model.delta(2.0, order="(B@A)^T"))
    check(patched, found, model.weight, model.weight + 2.0 * (model.factor["b"] @ model.factor["a"]).T)


def test_a_convolution_contracts_over_the_rank(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(5, 3, 2, 2), a=draw(2, 3, 2, 2, seed=1), b=draw(5, 2, 1, 1, seed=2))
    patched, found = model.changed(model.delta(0.25))
    delta = torch.einsum("or,rikl->oikl", model.factor["b"][:, :, 0, 0], model.factor["a"])
    check(patched, found, model.weight, model.weight + 0.25 * delta)


@pytest.mark.parametrize(("shape", "layout"), [((3, 4, 5), "eoi"), ((3, 5, 4), "eio"), ((3, 4, 4), "eoi")])
def test_stacked_experts_have_the_expert_outside_in_a_and_inside_in_b(
    tmp_path: Path, shape: tuple[int, ...], layout: str
) -> None:
    sides = {"o": shape[layout.index("o")], "i": shape[layout.index("i")]}
    model = Model(tmp_path, draw(*shape), a=draw(2 * 3, sides["i"], seed=1), b=draw(sides["o"], 2 * 3, seed=2))
    patched, found = model.changed(model.delta(order="B[o,r,e]A[e,r,i]"))
    a, b = model.factor["a"].reshape(3, 2, -1), model.factor["b"].reshape(-1, 2, 3)
    check(patched, found, model.weight, model.weight + torch.einsum(f"ore,eri->{layout}", b, a))


def test_one_expert_in_two_dimensions_is_a_linear_weight(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(4, 5), a=draw(2, 5, seed=1), b=draw(4, 2, seed=2))
    patched, found = model.changed(model.delta(order="B[o,r,e]A[e,r,i]"))
    check(patched, found, model.weight, model.weight + model.factor["b"] @ model.factor["a"])


def test_triplets_scale_the_rows_of_a_and_two_factors_add(tmp_path: Path) -> None:
    model = Model(
        tmp_path, draw(6, 5), a=draw(2, 5, seed=1), b=draw(6, 2, seed=2), e=torch.tensor([[2.0], [-1.0]]).double()
    )
    patched, found = model.changed(model.delta(0.5), model.delta(1.0))
    delta = model.factor["b"] @ (model.factor["e"] * model.factor["a"])
    assert torch.allclose(found, model.weight + 1.5 * delta, rtol=1e-14, atol=1e-14)
    assert patched.change == pytest.approx(1.5 * float(torch.linalg.norm(delta)), rel=1e-9)


def test_dora_gives_every_row_its_magnitude(tmp_path: Path) -> None:
    magnitude = draw(6, seed=3).abs() + 0.1
    model = Model(tmp_path, draw(6, 5), a=draw(2, 5, seed=1), b=draw(6, 2, seed=2), magnitude=magnitude)
    _, found = model.changed(model.delta(0.5))
    whole = model.weight + 0.5 * model.factor["b"] @ model.factor["a"]
    assert torch.allclose(torch.linalg.norm(found, dim=1), magnitude, rtol=1e-14)
    assert torch.allclose(found, magnitude[:, None] * whole / torch.linalg.norm(whole, dim=1, keepdim=True), rtol=1e-14)


def test_a_row_without_direction_is_refused_by_its_number(tmp_path: Path) -> None:
    weight = draw(4, 5)
    weight[2] = 0.0
    zero = torch.zeros(4, 2).double()
    model = Model(tmp_path, weight, a=draw(2, 5, seed=1), b=zero, magnitude=torch.ones(4).double())
    with pytest.raises(ComposeRefusedError) as refused:
        model.changed(model.delta())
    assert (refused.value.code, refused.value.problems[0].path) == ("ROW_NORM_ZERO", ("w", 2))


def test_a_replacement_takes_the_whole_place(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(4, 5, dtype=torch.float16), head=draw(4, 5, seed=4))
    patched, found = model.changed(whole=model.sources["head"])
    check(patched, found, model.weight, model.factor["head"])


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [((2, 4), (7, 2), "B@A"), ((2, 5), (7, 2), "(B@A)^T"), ((2, 4), (7, 2), "B[o,r,e]A[e,r,i]")],
)
def test_a_delta_of_other_sides_is_refused(tmp_path: Path, a: tuple[int, int], b: tuple[int, int], order: Any) -> None:
    model = Model(tmp_path, draw(7, 5), a=draw(*a), b=draw(*b))
    with pytest.raises(ComposeRefusedError) as refused:
        model.changed(model.delta(order=order))
    assert refused.value.code == "FACTOR_SHAPE"


def test_what_is_not_finite_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(3, 3, dtype=torch.float16), a=draw(1, 3, seed=1), b=draw(3, 1, seed=2))
    with pytest.raises(ComposeRefusedError) as refused:
        model.changed(model.delta(1e9))
    assert refused.value.code == "STORE_OVERFLOW"
    model = Model(tmp_path, draw(3, 3), a=draw(1, 3) / 0.0, b=draw(3, 1))
    with pytest.raises(ComposeRefusedError) as refused:
        model.changed(model.delta())
    assert refused.value.code == "TENSOR_NOT_FINITE"


def test_a_copy_that_was_cut_is_named_by_its_place(tmp_path: Path) -> None:
    model = Model(tmp_path, draw(7, 5), a=draw(2, 5, seed=1), b=draw(7, 2, seed=2))
    with model.path.open("r+b") as file:
        file.truncate(model.place.offset + 8)
    with pytest.raises(EOFError, match=f"byte {model.place.offset + 8}"):
        model.changed(model.delta())
