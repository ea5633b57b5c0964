"""The tensors of a base as they lie in their files, and the few small ones whose values say how others are packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.report import problem
from registry.formats.safetensors_file import TensorEntry
from schemas.digests import Digest, tensor_digest

LARGEST_SMALL: Final = 2**16
_CHANGED: Final = "Wait until nothing writes to the file, then read it again."


@dataclass(frozen=True)
class Stored:
    """Entries by tensor name, the file each lies in, and the digests of those that were hashed."""

    directory: Directory
    entries: Mapping[str, TensorEntry]
    files: Mapping[str, str]
    digests: Mapping[str, Digest]

    def small(self, name: str) -> tuple[bytes, Digest]:
        """The bytes of a small tensor with its digest, which is the one it was hashed with.

        Raises:
            RefusedError: `QUANT_STATE_INVALID` for one too large to be what it should be, `FILE_CHANGED`.
        """
        entry, file = self.entries[name], self.files[name]
        if entry.length > LARGEST_SMALL:
            expected = f"at most {LARGEST_SMALL} bytes"
            hint = "This is not what its name says; save the model again."
            raise RefusedError(problem("QUANT_STATE_INVALID", (file, name), expected, f"{entry.length}", hint))
        with self.directory.open(file) as stream:
            stream.seek(entry.offset)
            data = stream.read(entry.length)
        found = tensor_digest(entry.dtype, entry.shape, data)
        if len(data) != entry.length or self.digests.get(name, found) != found:
            expected, observed = "a file that stays as it is while it is read", "another tensor"
            raise RefusedError(problem("FILE_CHANGED", (file, name), expected, observed, _CHANGED))
        return data, found
