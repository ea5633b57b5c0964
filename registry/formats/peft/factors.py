"""One module's pair against the base and the config: orientation, rank, dtype and values."""

from __future__ import annotations

from typing import Final

from registry.formats.peft.config import CONFIG
from registry.formats.peft.keys import WEIGHTS
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedTensor
from schemas.errors import Path, Problem

FACTOR_DTYPES: Final = ("BF16", "F16", "F32", "F64")


def pair_problems(a: TensorEntry, b: TensorEntry, weight: tuple[int, int], rank: int) -> list[Problem]:
    """What is wrong with ``a [r, d_in]`` and ``b [d_out, r]`` beside a base weight ``[d_out, d_in]``.

    Problems: `FACTOR_NOT_MATRIX`, `FACTOR_EMPTY`, `FACTOR_DTYPE`, `FACTOR_DTYPE_MISMATCH`, `FACTOR_TRANSPOSED`,
    `FACTOR_SHAPE`, `RANK_MISMATCH`.
    """
    alone = form_problems(a) + form_problems(b)
    if alone:
        return alone
    d_out, d_in = weight
    problems = _orientation(a, (rank, d_in), fixed=1) + _orientation(b, (d_out, rank), fixed=0)
    if not problems and not a.shape[0] == b.shape[1] == rank:
        observed = f"lora_A has {a.shape[0]}, lora_B has {b.shape[1]}"
        hint = "Restore the config the adapter was trained with; its rank and patterns must be those of the tensors."
        problems.append(problem("RANK_MISMATCH", _path(a), f"rank {rank}, as {CONFIG} says", observed, hint))
    if a.dtype != b.dtype:
        hint = "Save both factors in one dtype."
        problems.append(problem("FACTOR_DTYPE_MISMATCH", _path(b), f"{a.dtype}, as lora_A", b.dtype, hint))
    return problems


def form_problems(entry: TensorEntry) -> list[Problem]:
    """What is wrong with a factor whatever its module: not a matrix, empty, or not floating."""
    if len(entry.shape) != 2:
        hint = "A factor of a Linear layer is a matrix; save the adapter again."
        return [problem("FACTOR_NOT_MATRIX", _path(entry), "two dimensions", shown(list(entry.shape)), hint)]
    if 0 in entry.shape:
        hint = "An empty factor adapts nothing: remove the module or save it with a rank of at least 1."
        return [problem("FACTOR_EMPTY", _path(entry), "at least one element", shown(list(entry.shape)), hint)]
    if entry.dtype not in FACTOR_DTYPES:
        hint = "Save the factors in one of these."
        return [problem("FACTOR_DTYPE", _path(entry), f"one of {', '.join(FACTOR_DTYPES)}", entry.dtype, hint)]
    return []


def value_problems(tensor: ScannedTensor) -> list[Problem]:
    """`NON_FINITE`: the first NaN or infinity of a factor, by flat index."""
    if tensor.first_not_finite is None:
        return []
    observed = f"NaN or infinity at flat index {tensor.first_not_finite}"
    hint = "The training diverged or the file is damaged; take an earlier checkpoint."
    return [problem("NON_FINITE", _path(tensor.entry), "finite numbers", observed, hint)]


def _orientation(entry: TensorEntry, expected: tuple[int, int], fixed: int) -> list[Problem]:
    """The dimension the base fixes must be in its place; the other one is the rank."""
    if entry.shape[fixed] == expected[fixed]:
        return []
    transposed = entry.shape == expected[::-1]
    code = "FACTOR_TRANSPOSED" if transposed else "FACTOR_SHAPE"
    hint = "Transpose the factor." if transposed else "This adapter was trained on a model of other dimensions."
    return [problem(code, _path(entry), shown(list(expected)), shown(list(entry.shape)), hint)]


def _path(entry: TensorEntry) -> Path:
    return (WEIGHTS, entry.name)
