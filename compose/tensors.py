"""Tensors in and out of bytes: mapped reading at an offset, and rounding once on the way out."""

from __future__ import annotations

import mmap
from math import prod
from typing import Final

import numpy as np
import torch
from torch import Tensor

from compose.errors import ComposeRefusedError, refusal
from compose.request import TensorSource
from schemas.digests import DTYPE_BYTES
from schemas.methods import DtypeChoices

FLOATS: Final[dict[str, torch.dtype]] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""The dtypes the engine computes with, by their safetensors names."""

STORE: Final = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""safetensors names of the dtypes a composition may be stored in."""


def store_dtype(choices: DtypeChoices) -> torch.dtype:
    """The dtype the factors are rounded to, once."""
    return FLOATS[STORE[choices.store]]


def work_dtype(choices: DtypeChoices) -> torch.dtype:
    """The dtype of the arithmetic."""
    return FLOATS[STORE[choices.work]]


def map_tensor(source: TensorSource) -> Tensor:
    """Map one tensor of a file; its pages leave memory with it. The map is private: nothing reaches the file.

    Raises:
        ComposeRefusedError: `DTYPE_UNSUPPORTED`, `TENSOR_LENGTH` or `FILE_TOO_SHORT`.
    """
    dtype = float_dtype(source)
    block = map_bytes(source)
    if source.offset % dtype.itemsize:
        block = bytearray(block)
    return torch.frombuffer(block, dtype=dtype).reshape(source.shape)


def float_dtype(source: TensorSource) -> torch.dtype:
    """The dtype of a tensor the engine computes with.

    Raises:
        ComposeRefusedError: `DTYPE_UNSUPPORTED`.
    """
    dtype = FLOATS.get(source.dtype)
    if dtype is None:
        raise refusal(
            "DTYPE_UNSUPPORTED", str(source.path), expected=", ".join(FLOATS), observed=source.dtype,
            hint="Convert the adapter to a floating dtype first.",
        )  # fmt: skip
    return dtype


def whole_length(source: TensorSource) -> int:
    """A tensor's length in bytes, as its dtype and shape say too.

    Raises:
        ComposeRefusedError: `TENSOR_LENGTH`.
    """
    expected = prod(source.shape) * DTYPE_BYTES[source.dtype]
    if expected != source.length or not expected:
        raise refusal(
            "TENSOR_LENGTH", str(source.path),
            expected=f"{expected} bytes for {source.dtype} {list(source.shape)}, not 0",
            observed=f"{source.length} bytes", hint="Register the file again: its header and index disagree.",
        )  # fmt: skip
    return expected


def too_short(source: TensorSource, size: int) -> ComposeRefusedError:
    """`FILE_TOO_SHORT`: the file of `size` bytes ends before the tensor does."""
    return refusal(
        "FILE_TOO_SHORT", str(source.path), expected=f"at least {source.offset + source.length} bytes",
        observed=f"{size} bytes", hint="Fetch the file again; it was cut.",
    )  # fmt: skip


def map_bytes(source: TensorSource) -> memoryview | bytearray:
    """The raw bytes of a tensor, mapped.

    Raises:
        ComposeRefusedError: `TENSOR_LENGTH` or `FILE_TOO_SHORT`.
    """
    length = whole_length(source)
    start = source.offset - source.offset % mmap.ALLOCATIONGRANULARITY
    with source.path.open("rb") as file:
        size = file.seek(0, 2)
        # A map over the end of a file raises a signal, not an error, when it is touched.
        if source.offset + length > size:
            raise too_short(source, size)
        mapped = mmap.mmap(file.fileno(), source.offset - start + length, access=mmap.ACCESS_COPY, offset=start)
    return memoryview(mapped)[source.offset - start :]


def all_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinity: the bits of none, read as integers, reach those of infinity."""
    width, infinity = _INFINITY[tensor.dtype]
    bits = np.frombuffer(raw_bytes(tensor), dtype=f"i{width}")
    # Signed, all negative values are below the others, unsigned above them.
    least = np.iinfo(bits.dtype).min
    return int(bits.max(initial=least)) < infinity and int(bits.view(f"u{width}").max(initial=0)) < infinity - least


_INFINITY: Final = {
    torch.float64: (8, 0x7FF << 52),
    torch.float32: (4, 0xFF << 23),
    torch.float16: (2, 0x1F << 10),
    torch.bfloat16: (2, 0xFF << 7),
}
"""Bytes of a value and the bits of infinity."""


def check_finite(tensor: Tensor, name: str) -> None:
    """Refuse NaN and infinity.

    Raises:
        ComposeRefusedError: `TENSOR_NOT_FINITE` with the tensor's name and the first index.
    """
    if all_finite(tensor):
        return
    index = (~torch.isfinite(tensor)).nonzero()[0].tolist()
    raise refusal(
        "TENSOR_NOT_FINITE", name, *index, expected="finite numbers",
        observed=f"{tensor[tuple(index)].item()} first at index {index}",
        hint="Train or export the adapter again; nothing can be computed from it.",
    )  # fmt: skip


def round_once(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to the nearest value of `dtype`, ties to even, once.

    torch rounds float64 to a 16-bit dtype by way of float32, which rounds twice. Rounding to odd in between keeps the
    second rounding right (Boldo and Melquiond 2008): float32 has more than two bits to spare over either.
    """
    if tensor.dtype != torch.float64 or dtype.itemsize > 2:
        return tensor.to(dtype)
    near = _round_to_odd(tensor)
    # Below its normal numbers float32 has fewer bits than were made odd.
    if float(near.abs().min()) < torch.finfo(torch.float32).tiny:
        near = _round_to_odd_anywhere(tensor)
    return near.to(dtype)


_BELOW: Final = (1 << 29) - 1
"""The bits of a float64 that a normal float32 has not."""


def _round_to_odd(tensor: Tensor) -> Tensor:
    """float64 to float32: exact values stay, others take the neighbour with an odd last bit; for normal results."""
    bits = tensor.contiguous().view(torch.int64)
    odd = bits & _BELOW
    # Carries into the last bit that stays unless nothing is lost.
    odd += _BELOW
    odd |= bits
    odd &= ~_BELOW
    return odd.view(torch.float64).to(torch.float32)


def _round_to_odd_anywhere(tensor: Tensor) -> Tensor:
    """The same by comparing with what float32 keeps, several times slower."""
    near = tensor.to(torch.float32)
    back = near.to(torch.float64)
    bits = near.view(torch.int32)
    # Sign and magnitude: one unit less in the bits is one step towards zero, also from infinity.
    towards_zero = bits - (back.abs() > tensor.abs()).to(torch.int32)
    return torch.where(back == tensor, bits, towards_zero | 1).view(torch.float32)


def raw_bytes(tensor: Tensor) -> memoryview:
    """The contiguous little-endian bytes of a tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data
