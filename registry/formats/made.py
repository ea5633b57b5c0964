"""Files a reader makes: stored tensors in the common arrangement, and numbers that only a config held.

Bytes are moved, never computed with. The files lie in the scratch folder of one reading; registration keeps them beside
the originals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.formats.directory import open_directory
from registry.formats.safetensors_file import TensorEntry
from registry.formats.safetensors_write import write_safetensors
from registry.formats.scan import file_header
from schemas.base import TensorRef
from schemas.digests import tensor_digest

ROWS_FILE: Final = "token_rows.safetensors"


@dataclass(frozen=True)
class MadeTensor:
    """A tensor's dtype as safetensors names it, its shape, and its contiguous little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def ref(self) -> TensorRef:
        """The tensor by content."""
        return TensorRef(tensor=tensor_digest(self.dtype, self.shape, self.data), dtype=self.dtype, shape=self.shape)


def write_made(scratch: Path, file: str, tensors: Mapping[str, MadeTensor]) -> dict[str, TensorEntry]:
    """Write tensors into a new file of the scratch folder.

    Returns:
        Their entries by name, as the header of the new file has them.
    """
    data = {tensor.ref: tensor.data for tensor in tensors.values()}
    scratch.mkdir(mode=0o700, exist_ok=True)
    write_safetensors(scratch / file, {name: tensor.ref for name, tensor in tensors.items()}, data.__getitem__)
    return {entry.name: entry for entry in file_header(open_directory(scratch), file).tensors}
