"""The canonical bytes of an adapter around its tensors' digests: adapters of one form differ in nothing else.

A digest is written as it is, between quotes, and no order in the document depends on one. So the same bytes with other
digests in these places are what the manifest with those digests is written as.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

from registry.formats.safetensors_file import TensorEntry
from schemas.digests import Digest

_TENSOR: Final = re.compile(rb'(?<="tensor":")blake3:[0-9a-f]{64}(?=")')
"""A digest behind its key. No text looks like this, since quotes in it are written with a backslash."""


@dataclass(frozen=True)
class Outline:
    """The bytes before, between and after the digests of the tensors `entries`, in this order."""

    pieces: tuple[bytes, ...]
    entries: tuple[TensorEntry, ...]

    @classmethod
    def of(cls, data: bytes, entries: Sequence[TensorEntry], digests: Sequence[Digest]) -> Self:
        """The outline of canonical bytes that name these tensors by these digests."""
        assert _TENSOR.findall(data) == [digest.encode() for digest in digests], "every tensor once, in this order"
        return cls(tuple(_TENSOR.split(data)), tuple(entries))

    def filled(self, digests: Iterable[Digest]) -> bytes:
        """The bytes with other digests, one for each of `entries`."""
        cells = chain(map(str.encode, digests), (b"",))
        return b"".join(chain.from_iterable(zip(self.pieces, cells, strict=True)))
