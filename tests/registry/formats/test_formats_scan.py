"""A file larger than a block: digests and values of its tensors do not depend on where a block ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from registry.formats.directory import open_directory
from registry.formats.scan import scan_file
from registry.hashing import BLOCK_BYTES
from schemas.digests import blob_digest, tensor_digest

FILE = "model.safetensors"


@pytest.mark.parametrize("shift", range(4))
def test_tensors_are_hashed_and_checked_across_the_ends_of_blocks(tmp_path: Path, shift: int) -> None:
    """Bytes before the numbers let blocks end within one."""
    numbers = np.zeros(BLOCK_BYTES // 4 + 100, np.float32)
    numbers[BLOCK_BYTES // 4 + 7] = np.nan
    parts = [
        ("U8", (shift,), bytes([1] * shift)),
        ("F32", (0, 3), b""),
        ("F32", (len(numbers),), bytes(4 * len(numbers))),
        ("F32", (len(numbers),), numbers.tobytes()),
    ]
    path = tmp_path / FILE
    path.write_bytes(_file(parts))
    scanned = scan_file(open_directory(tmp_path), FILE, values=True)
    assert [tensor.digest for tensor in scanned.tensors] == [tensor_digest(*part) for part in parts]
    assert [tensor.first_not_finite for tensor in scanned.tensors] == [None, None, None, BLOCK_BYTES // 4 + 7]
    assert [tensor.all_zero for tensor in scanned.tensors] == [not shift, True, True, False]
    assert scanned.file.digests.digest == blob_digest(path.read_bytes())


def _file(parts: list[tuple[str, tuple[int, ...], bytes]]) -> bytes:
    header, end = {}, 0
    for number, (dtype, shape, data) in enumerate(parts):
        header[f"t{number}"] = {"dtype": dtype, "shape": shape, "data_offsets": (end, end + len(data))}
        end += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in parts)
