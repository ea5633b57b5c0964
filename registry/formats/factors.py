"""One factor against a layer of the base: form, orientation, rank, dtype, extras and values.

Shapes: a layer takes d_in numbers and gives d_out. A factor is ``a [r, d_in]`` and ``b [d_out, r]``, for a convolution
``a [r, d_in, kh, kw]`` and ``b [d_out, r, 1, 1]``, for a stacked parameter of E experts ``a [r E, d_in]`` and
``b [d_out, r E]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from registry.formats.base.modules import Layer
from registry.formats.draft import Piece
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedTensor
from schemas.adapter import Order
from schemas.errors import Problem

FACTOR_DTYPES: Final = ("BF16", "F16", "F32", "F64")
_SHAPES_HINT: Final = "This adapter was trained on a model of other dimensions."
_RANK_HINT: Final = (
    "Restore the config the adapter was trained with; its rank and patterns must be those of the tensors."
)


def order_of(layer: Layer) -> Order:
    """How a and b make the delta in the layout of the layer's weight."""
    if layer.kind == "parameter" and len(layer.shape) == 3:
        return "B[o,r,e]A[e,r,i]"
    return "(B@A)^T" if layer.kind in {"embedding", "conv1d"} else "B@A"


def factor_problems(piece: Piece, layer: Layer | None) -> list[Problem]:
    """What is wrong with a factor beside its layer, or alone when the base has none.

    Problems: `FACTOR_NOT_MATRIX`, `FACTOR_EMPTY`, `FACTOR_DTYPE`, `FACTOR_DTYPE_MISMATCH`, `FACTOR_TRANSPOSED`,
    `FACTOR_SHAPE`, `FACTOR_AMBIGUOUS`, `RANK_MISMATCH`.
    """
    a, b = piece.tensors["a"], piece.tensors["b"]
    dimensions = 4 if layer is not None and layer.kind == "conv2d" else 2
    empty = "E" in piece.tensors
    alone = _form_problems(a, dimensions, empty=empty) + _form_problems(b, dimensions, empty=empty)
    if layer is None or alone:
        return alone
    if layer.kind == "parameter" and len(layer.shape) == 3:
        return _stacked_problems(piece, layer)
    d_out, d_in, kernel = _sides(layer)
    d_in //= piece.pooled
    ones = tuple(1 for _ in kernel)
    rank = a.shape[0] if piece.rank is None else piece.rank
    problems = _orientation(a, (rank, d_in, *kernel), fixed=1) + _orientation(b, (d_out, rank, *ones), fixed=0)
    if not problems:
        problems = _rank_problems(piece, a.shape[0], b.shape[1])
    problems += _same_dtype(a, b)
    return problems or _extra_problems(piece.tensors, d_out, a.shape[0], ones)


def rank_in(piece: Piece, layer: Layer) -> int:
    """The rank the tensors have: rows of a, of one expert where they are stacked."""
    rows = piece.tensors["a"].shape[0]
    return rows // layer.shape[0] if order_of(layer) == "B[o,r,e]A[e,r,i]" else rows


def value_problems(tensor: ScannedTensor) -> list[Problem]:
    """`NON_FINITE`: the first NaN or infinity of a factor, by flat index."""
    if tensor.first_not_finite is None:
        return []
    observed = f"NaN or infinity at flat index {tensor.first_not_finite}"
    hint = "The training diverged or the file is damaged; take an earlier checkpoint."
    return [problem("NON_FINITE", tensor.entry.place, "finite numbers", observed, hint)]


def _sides(layer: Layer) -> tuple[int, int, tuple[int, ...]]:
    """d_out, d_in and kernel of a layer by the shape of its weight."""
    first, second, *kernel = layer.shape
    turned = layer.kind in {"embedding", "conv1d"}
    return (second, first, ()) if turned else (first, second, tuple(kernel))


def _form_problems(entry: TensorEntry, dimensions: int, *, empty: bool) -> list[Problem]:
    """What is wrong with a factor whatever its sizes: not a matrix, empty, or not floating."""
    if len(entry.shape) != dimensions:
        hint = "A factor of a Linear layer is a matrix, of a convolution a kernel; save the adapter again."
        observed = shown(list(entry.shape))
        return [problem("FACTOR_NOT_MATRIX", entry.place, f"{dimensions} dimensions", observed, hint)]
    if 0 in entry.shape and not empty:
        hint = "An empty factor adapts nothing: remove the module or save it with a rank of at least 1."
        return [problem("FACTOR_EMPTY", entry.place, "at least one element", shown(list(entry.shape)), hint)]
    if entry.dtype not in FACTOR_DTYPES:
        hint = "Save the factors in one of these."
        return [problem("FACTOR_DTYPE", entry.place, f"one of {', '.join(FACTOR_DTYPES)}", entry.dtype, hint)]
    return []


def _orientation(entry: TensorEntry, expected: tuple[int, ...], fixed: int) -> list[Problem]:
    """The dimensions the base fixes must be in their place; the other one is the rank."""
    free = 1 - fixed
    if entry.shape[:free] + entry.shape[free + 1 :] == expected[:free] + expected[free + 1 :]:
        return []
    transposed = len(expected) == 2 and entry.shape == expected[::-1]
    code = "FACTOR_TRANSPOSED" if transposed else "FACTOR_SHAPE"
    hint = "Transpose the factor." if transposed else _SHAPES_HINT
    return [problem(code, entry.place, shown(list(expected)), shown(list(entry.shape)), hint)]


def _rank_problems(piece: Piece, in_a: int, in_b: int) -> list[Problem]:
    rank = in_a if piece.rank is None else piece.rank
    if in_a == in_b == rank:
        return []
    place, observed = piece.tensors["a"].place, f"a has {in_a}, b has {in_b}"
    return [problem("RANK_MISMATCH", place, f"rank {rank} in both factors", observed, _RANK_HINT)]


def _same_dtype(a: TensorEntry, b: TensorEntry) -> list[Problem]:
    if a.dtype == b.dtype:
        return []
    hint = "Save both factors in one dtype."
    return [problem("FACTOR_DTYPE_MISMATCH", b.place, f"{a.dtype}, as its other factor", b.dtype, hint)]


def _stacked_problems(piece: Piece, layer: Layer) -> list[Problem]:
    """A stacked parameter is [E, d_out, d_in] or [E, d_in, d_out]; shapes tell which unless they are square.

    Square ones are told by the model type, where the writer goes by it too.
    """
    a, b = piece.tensors["a"], piece.tensors["b"]
    experts, first, second = layer.shape
    if first == second and not (layer.oriented and piece.oriented):
        hint = "Save it with PEFT 0.19 or later on a model type with a known layout: a square matrix does not tell."
        return [problem("FACTOR_AMBIGUOUS", a.place, "experts that are not square", shown(list(layer.shape)), hint)]
    if (b.shape[0], a.shape[1]) not in {(first, second), (second, first)}:
        expected = f"{first} and {second} beside the rank"
        return [problem("FACTOR_SHAPE", a.place, expected, shown([*b.shape, *a.shape]), _SHAPES_HINT)]
    if a.shape[0] % experts:
        return [problem("FACTOR_SHAPE", a.place, f"rows for {experts} experts", str(a.shape[0]), _SHAPES_HINT)]
    return _rank_problems(piece, a.shape[0] // experts, b.shape[1] // experts) + _same_dtype(a, b)


def _extra_problems(tensors: Mapping[str, TensorEntry], d_out: int, rank: int, ones: tuple[int, ...]) -> list[Problem]:
    """Extras have one shape: a magnitude or bias per output, E and diag per rank."""
    expected = {
        "magnitude": (1, d_out, *ones) if ones else (d_out,),
        "bias": (d_out,),
        "E": (rank, 1),
        "ranknum": (),
        "diag": (rank,),
    }
    return [
        problem("FACTOR_SHAPE", entry.place, shown(list(expected[role])), shown(list(entry.shape)), _SHAPES_HINT)
        for role, entry in tensors.items()
        if role in expected and entry.shape != expected[role]
    ]
