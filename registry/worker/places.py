"""Tensors between the service, which knows digests and extents, and the arithmetic, which knows files."""

from __future__ import annotations

from collections.abc import Mapping

from compose.request import TensorSource, WrittenTensor
from registry.service.composer import Extent, PlacedTensor
from schemas.base import TensorRef
from schemas.digests import Digest


def source(ref: TensorRef, extents: Mapping[Digest, Extent]) -> TensorSource:
    """A tensor where it lies."""
    extent = extents[ref.tensor]
    return TensorSource(extent.path, extent.offset, extent.length, ref.dtype, ref.shape)


def placed(item: WrittenTensor) -> PlacedTensor:
    """A written tensor as the service knows it."""
    return PlacedTensor(item.tensor.tensor, item.tensor.dtype, item.tensor.shape, item.offset, item.length)
