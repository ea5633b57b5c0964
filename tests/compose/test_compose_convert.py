"""Conversions of factors: the delta is what the rule says, the bytes are exact where nothing is rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from compose import ComposeRefusedError
from compose.convert import ConvertFactor, ConvertRequest, ConvertResult, TermSource, convert
from compose.gauge import balanced
from tests.compose.building import matrix, random_pair, read_sources

D_OUT, D_IN = 5, 7


def written(folder: Path, tensors: dict[str, Tensor], **factor: Any) -> tuple[ConvertResult, dict[str, Tensor]]:
    """Convert terms `a0, b0[, e0], a1, b1, ...` into one factor `m`."""
    save_file(tensors, folder / "in.safetensors")
    sources = read_sources(folder / "in.safetensors")
    signs = factor.pop("signs", (1,) * sum(name.startswith("a") for name in tensors))
    terms = tuple(
        TermSource(sources[f"a{i}"], sources[f"b{i}"], sources.get(f"e{i}"), sign) for i, sign in enumerate(signs)
    )
    made = ConvertFactor("m", terms, (D_OUT, D_IN), **{"dtype": "F64", **factor})
    result = convert(ConvertRequest((made,)), folder / "out.safetensors")
    return result, load_file(folder / "out.safetensors")


def pair(seed: int, rank: int = 2, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return random_pair(rank, D_OUT, D_IN, seed, dtype)


def test_a_trained_pair_minus_its_start_is_exact_at_twice_the_rank(tmp_path: Path) -> None:
    (a, b), (a0, b0) = pair(1, dtype=torch.float32), pair(2, dtype=torch.float32)
    _, out = written(tmp_path, {"a0": a, "b0": b, "a1": a0, "b1": b0}, signs=(1, -1), dtype="F32")
    assert torch.equal(out["m.lora_A"], torch.cat([a, -a0]))
    assert torch.equal(out["m.lora_B"], torch.cat([b, b0], dim=1))


def test_masked_triplets_fall_away_and_the_scale_is_baked_once(tmp_path: Path) -> None:
    a, b = pair(3, rank=3)
    e = matrix([[2.0], [0.0], [-0.5]])
    result, out = written(tmp_path, {"a0": a, "b0": b, "e0": e}, scale=0.75, into="a")
    assert torch.equal(out["m.lora_B"], b[:, [0, 2]])
    assert torch.allclose(out["m.lora_B"] @ out["m.lora_A"], 0.75 * b @ (a * e), rtol=1e-14)
    assert result.ledger["total"] == {
        "norm": pytest.approx(float(torch.linalg.norm(0.75 * b @ (a * e)))),
        "rounding": 0,
    }


def test_a_factor_whose_triplets_are_all_masked_is_not_written(tmp_path: Path) -> None:
    a, b = pair(4)
    result, out = written(tmp_path, {"a0": a, "b0": b, "e0": torch.zeros(2, 1, dtype=torch.float64)})
    assert (out, result.tensors, result.ledger["total"]) == ({}, (), {"norm": 0.0, "rounding": 0.0})


def test_padding_adds_zero_rows_and_no_delta(tmp_path: Path) -> None:
    a, b = pair(5)
    _, out = written(tmp_path, {"a0": a, "b0": b}, rank=4)
    assert torch.equal(out["m.lora_A"][:2], a)
    assert not out["m.lora_A"][2:].any()
    assert not out["m.lora_B"][:, 2:].any()


def test_no_terms_give_zeros_of_the_rank(tmp_path: Path) -> None:
    _, out = written(tmp_path, {"unused": torch.ones(1)}, rank=3, dtype="BF16")
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in out.items()} == {
        "m.lora_A": ((3, D_IN), torch.bfloat16),
        "m.lora_B": ((D_OUT, 3), torch.bfloat16),
    }
    assert not any(tensor.any() for tensor in out.values())


def test_a_cast_rounds_once_and_says_how_much(tmp_path: Path) -> None:
    a, b = pair(6)
    result, out = written(tmp_path, {"a0": a, "b0": b}, dtype="BF16")
    assert torch.equal(out["m.lora_A"], a.to(torch.float32).to(torch.bfloat16))
    stored = out["m.lora_B"].double() @ out["m.lora_A"].double()
    total = result.ledger["total"]
    assert isinstance(total, dict)
    assert total["rounding"] == pytest.approx(float(torch.linalg.norm(stored - b @ a)), rel=1e-6)
    assert 1e-4 < float(str(total["rounding"])) / float(str(total["norm"])) < 1e-2


def test_a_wider_dtype_changes_no_number(tmp_path: Path) -> None:
    a, b = pair(7, dtype=torch.bfloat16)
    result, out = written(tmp_path, {"a0": a, "b0": b}, dtype="F32")
    assert torch.equal(out["m.lora_A"].to(torch.bfloat16), a)
    assert torch.equal(out["m.lora_B"].to(torch.bfloat16), b)
    total = result.ledger["total"]
    assert isinstance(total, dict)
    assert total["rounding"] == 0


def test_an_overflow_of_the_stored_dtype_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    a, b = pair(8)
    with pytest.raises(ComposeRefusedError, match="STORE_OVERFLOW"):
        written(tmp_path, {"a0": a * 1e6, "b0": b}, dtype="F16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.safetensors"]


def test_a_number_that_is_not_finite_is_named(tmp_path: Path) -> None:
    a, b = pair(9)
    b[3, 1] = torch.nan
    with pytest.raises(ComposeRefusedError, match="TENSOR_NOT_FINITE") as refused:
        written(tmp_path, {"a0": a, "b0": b})
    assert refused.value.problems[0].path == ("m.lora_B", 3, 1)


def test_whole_tensors_are_carried_byte_for_byte(tmp_path: Path) -> None:
    head = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    save_file({"head": head}, tmp_path / "in.safetensors")
    source = read_sources(tmp_path / "in.safetensors")["head"]
    result = convert(ConvertRequest((), {"classifier.weight": source}), tmp_path / "out.safetensors")
    assert torch.equal(load_file(tmp_path / "out.safetensors")["classifier.weight"], head)
    assert [(item.module, item.role) for item in result.tensors] == [("classifier.weight", "full")]


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_the_balanced_gauge_keeps_the_delta_and_forgets_the_gauge(seed: int, rank: int) -> None:
    a, b = pair(seed, rank)
    generator = torch.Generator().manual_seed(seed)
    turn = torch.eye(rank, dtype=torch.float64) + 0.3 * torch.rand(rank, rank, generator=generator, dtype=torch.float64)
    one_b, one_a = balanced(b, a)
    two_b, two_a = balanced(b @ torch.linalg.inv(turn), turn @ a)
    size = float(torch.linalg.norm(b @ a))
    assert float(torch.linalg.norm(one_b @ one_a - b @ a)) <= 1e-12 * size
    assert float(torch.linalg.norm(two_b @ two_a - b @ a)) <= 1e-9 * size
    # Equal squares on both sides, sorted: the diagonal of singular values.
    assert torch.allclose(one_b.T @ one_b, one_a @ one_a.T, atol=1e-9 * size)
    gaps = torch.linalg.svdvals(b @ a)[:rank]
    if float((gaps[:-1] - gaps[1:]).min() if rank > 1 else 1.0) > 1e-3 and float(gaps[-1]) > 1e-3:
        assert torch.allclose(one_a, two_a, atol=1e-6 * size)


def test_balancing_a_zero_pair_keeps_its_rank() -> None:
    b, a = balanced(torch.zeros(D_OUT, 6, dtype=torch.float64), pair(1, 6)[0])
    assert (b.shape, a.shape) == ((D_OUT, 6), (6, D_IN))
    assert not b.any()
