"""Factors out of their files: together where they lie together, and no byte beyond a file's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

from compose import ComposeRefusedError, FactorSource, TensorSource
from compose.reading import Files, read_pairs
from compose.tensors import raw_bytes

NAMES = {torch.bfloat16: "BF16", torch.float32: "F32"}


@pytest.fixture
def files() -> Iterator[Files]:
    with closing(Files()) as opened:
        yield opened


def write(path: Path, a: Tensor, b: Tensor) -> FactorSource:
    """One after the other, and nothing else."""
    path.write_bytes(bytes(raw_bytes(a)) + bytes(raw_bytes(b)))
    return FactorSource("m", a.shape[0], 1.0, _source(path, 0, a), _source(path, a.nbytes, b))


def _source(path: Path, offset: int, tensor: Tensor) -> TensorSource:
    return TensorSource(path, offset, tensor.nbytes, NAMES[tensor.dtype], tuple(tensor.shape))


def test_pairs_of_several_files_and_dtypes_come_as_stored(files: Files, tmp_path: Path) -> None:
    pairs = [
        (torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype), torch.tensor([[4.0], [5.0], [6.0]], dtype=other))
        for dtype, other in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16))
    ]
    factors = [write(tmp_path / str(number), *pair) for number, pair in enumerate(pairs)]
    for chosen in (slice(0, 2), slice(0, 1), slice(1, 2)):
        found = read_pairs(files, factors[chosen], ["one", "other"][chosen])
        assert [[tensor.tolist() for tensor in pair] for pair in found] == [
            [tensor.tolist() for tensor in pair] for pair in pairs[chosen]
        ]


@pytest.mark.parametrize("kept", [0, 5, 6, 11])
def test_a_file_cut_within_either_tensor_is_too_short(files: Files, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a"
    factor = write(path, *(torch.ones(shape, dtype=torch.bfloat16) for shape in ((1, 3), (3, 1))))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ComposeRefusedError) as refused:
        read_pairs(files, [factor], ["one"])
    assert refused.value.code == "FILE_TOO_SHORT"
    assert refused.value.problems[0].expected == f"at least {6 if kept < 6 else 12} bytes"
