"""One pass, two digests: the same as each library alone, whatever the sizes of blocks and chunks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.errors import UsageProblemError
from registry.hashing import (
    BEHIND,
    BLOCK_BYTES,
    bytes_blocks,
    chunk_blocks,
    file_blocks,
    hash_blocks,
)
from registry.storage import hash_file
from schemas.digests import BlobDigests
from tests.registry.storage.contract import digest_of, pattern

LARGEST = 2 * BLOCK_BYTES + BLOCK_BYTES // 2
DATA = pattern(LARGEST)
EDGES = (0, 1, 2**19 - 1, 2**19, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, LARGEST)
places = st.one_of(st.sampled_from(EDGES), st.integers(0, LARGEST))


def expected(data: bytes) -> BlobDigests:
    return BlobDigests(digest_of(data), "sha256:" + hashlib.sha256(data).hexdigest(), len(data))


@settings(deadline=None, max_examples=25)
@given(size=places, cuts=st.lists(places, max_size=6))
def test_digests_do_not_depend_on_the_chunking(size: int, cuts: list[int]) -> None:
    data = DATA[:size]
    chunks = [data[start:end] for start, end in pairwise([0, *sorted(cuts), LARGEST])]
    assert hash_blocks(chunk_blocks(chunks)) == expected(data)
    assert hash_blocks(map(memoryview, chunks)) == expected(data)


@pytest.mark.parametrize("size", EDGES)
def test_a_file_is_hashed_whole_in_blocks(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(DATA[:size])
    steps: list[int] = []
    assert hash_file(file, progress=steps.append) == expected(DATA[:size])
    assert sum(steps) == size
    assert max(steps, default=0) <= BLOCK_BYTES


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_bytes_are_cut_into_blocks_without_loss(size: int) -> None:
    blocks = list(bytes_blocks(DATA[:size]))
    assert b"".join(blocks) == DATA[:size]
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


def test_every_sink_sees_every_byte_once_in_order() -> None:
    first, second = bytearray(), bytearray()
    hash_blocks(chunk_blocks([DATA]), first.extend, second.extend)
    assert first == second == DATA


def test_no_block_is_overwritten_before_the_slowest_has_read_it(tmp_path: Path) -> None:
    data = pattern((BEHIND + 3) * BLOCK_BYTES)
    (tmp_path / "file").write_bytes(data)
    seen = hashlib.sha256()

    def slowly(block: memoryview) -> None:
        time.sleep(0.02)
        seen.update(block)

    with (tmp_path / "file").open("rb", buffering=0) as source:
        assert hash_blocks(file_blocks(source), slowly) == expected(data)
    assert seen.digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("failing", ["reader", "sink"])
def test_an_error_of_either_side_ends_both(failing: str) -> None:
    asked = 0

    def blocks() -> Iterator[memoryview]:
        nonlocal asked
        for asked in range(100):
            if failing == "reader" and asked == BEHIND:
                raise OSError(failing)
            yield memoryview(DATA)[:BLOCK_BYTES]

    def full(_: memoryview) -> None:
        if failing == "sink":
            raise OSError(failing)

    with pytest.raises(OSError, match=failing):
        hash_blocks(blocks(), full)
    assert asked <= BEHIND + 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblemError, match="absent") as refusal:
        hash_file(tmp_path / "absent")
    assert refusal.value.code == "FILE_UNREADABLE"
