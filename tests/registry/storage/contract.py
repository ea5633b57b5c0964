"""What every blob store promises; the same tests run over a folder, memory and S3."""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from blake3 import blake3

from registry.errors import DigestMismatchError, NotFoundError, RefusedError, UsageProblemError
from registry.storage import BlobStore
from schemas.digests import BlobDigests

ABC_DIGEST = "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
ABC_SHA256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""Published test vectors of both functions for the bytes ``abc``."""

ABSENT = "blake3:" + "0" * 64
NOT_DIGESTS = [
    "",
    "abc",
    "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    "blake3:6437b3ac",
    "blake3:" + "A" * 64,
    "blake3:" + "0" * 64 + "\n",
    "blake3:../../../../../../../../../../../../../../../../../../../../etc/pass",
    "blake3:/etc/passwd",
    "sha256:" + "0" * 64,
]
READERS: list[Callable[[BlobStore, str], object]] = [
    lambda store, digest: store.size(digest),
    lambda store, digest: store.read(digest),
    lambda store, digest: store.read(digest, 0, 0),
    lambda store, digest: store.verify(digest),
    lambda store, digest: list(store.stream_verified(digest)),
    lambda store, digest: store.local_path(digest),
]
OTHERS: list[Callable[[BlobStore, str], object]] = [
    lambda store, digest: store.has(digest),
    lambda store, digest: store.delete(digest),
    lambda store, digest: store.put_stream([b"abc"], expect=digest),
]


def digest_of(data: bytes) -> str:
    """The blob digest from the library alone."""
    return "blake3:" + blake3(data).hexdigest()


def blob_digests(data: bytes) -> BlobDigests:
    """Both digests from the libraries alone."""
    return BlobDigests(digest_of(data), f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def pattern(size: int) -> bytes:
    """Bytes without a period that a block could share."""
    return hashlib.shake_128(size.to_bytes(8, "big")).digest(size)


class BlobStoreContract:
    """Subclasses give the `store` fixture and say how to put other bytes in a blob's place."""

    @abstractmethod
    def plant(self, store: BlobStore, digest: str, data: bytes) -> None:
        """Write bytes at the address of a blob behind the store's back."""

    @abstractmethod
    def plant_stranger(self, store: BlobStore) -> None:
        """Put a file that is no blob among the blobs."""

    def test_put_gives_both_published_digests(self, store: BlobStore) -> None:
        digests = store.put_bytes(b"abc")
        assert (digests.digest, digests.sha256, digests.size) == (ABC_DIGEST, ABC_SHA256, 3)

    @pytest.mark.parametrize("size", [0, 1, 4 * 2**20 - 1, 4 * 2**20, 9 * 2**20 + 1])
    def test_file_stream_and_bytes_are_one_blob(self, store: BlobStore, tmp_path: Path, size: int) -> None:
        data = pattern(size)
        file = tmp_path / "file"
        file.write_bytes(data)
        chunks = (data[start : start + 1_000_003] for start in range(0, size, 1_000_003))
        puts = [store.put_file(file), store.put_stream(chunks), store.put_bytes(data)]
        assert {put.digest for put in puts} == {digest_of(data)}
        assert {put.sha256 for put in puts} == {"sha256:" + hashlib.sha256(data).hexdigest()}
        assert [(entry.digest, entry.size) for entry in store.entries()] == [(digest_of(data), size)]
        assert store.read(digest_of(data)) == data
        assert b"".join(store.stream_verified(digest_of(data))) == data
        assert store.local_path(digest_of(data)).read_bytes() == data
        assert store.verify(digest_of(data)) == puts[0]

    def test_a_file_moved_out_of_scratch_is_the_blob_that_a_put_makes(self, store: BlobStore, tmp_path: Path) -> None:
        data = pattern(4 * 2**20 + 1)
        (tmp_path / "file").write_bytes(data)
        with store.scratch.folder() as folder:
            (folder / "file").write_bytes(data)
            moved = store.move_file(folder / "file")
        assert store.read(moved.digest) == data
        assert store.put_file(tmp_path / "file") == moved

    def test_put_reports_every_byte_of_progress(self, store: BlobStore, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(pattern(9 * 2**20))
        steps: list[int] = []
        store.put_file(file, progress=steps.append)
        assert sum(steps) == 9 * 2**20
        assert len(steps) > 1

    def test_many_files_are_put_at_once(self, store: BlobStore, tmp_path: Path) -> None:
        wanted = {}
        for number in range(40):
            file = tmp_path / str(number)
            file.write_bytes(pattern(1000 + number))
            wanted[digest_of(pattern(1000 + number))] = file
        store.put_files(wanted)
        assert {entry.digest for entry in store.entries()} >= wanted.keys()
        assert all(store.read(digest) == file.read_bytes() for digest, file in wanted.items())
        assert store.sweep_staging(0) == 0

    def test_files_on_a_shelf_are_put_with_the_others_and_the_rest_of_it_is_gone(
        self, store: BlobStore, tmp_path: Path
    ) -> None:
        (tmp_path / "lying").write_bytes(b"lying")
        digests = {data: blob_digests(data) for data in (b"wanted", b"unwanted")}
        with store.shelf() as shelf:
            for data, known in digests.items():
                shelf.put(known.digest, data)
            shelf.settle()
            staged = shelf.find(digests[b"wanted"])
            assert staged is not None
            store.put_files({digest_of(b"lying"): tmp_path / "lying"}, [staged])
            assert shelf.find(digests[b"wanted"]) is None
        assert {entry.digest for entry in store.entries()} == {digest_of(b"lying"), digest_of(b"wanted")}
        assert store.read(digest_of(b"wanted")) == b"wanted"
        assert list(staged.path.parent.parent.iterdir()) == []

    def test_many_files_of_which_one_changed_are_refused_by_naming_it(self, store: BlobStore, tmp_path: Path) -> None:
        wanted = {}
        for number in range(4):
            file = tmp_path / str(number)
            file.write_bytes(pattern(2000 + number))
            wanted[digest_of(pattern(2000 + number))] = file
        (changed,) = [digest for digest, file in wanted.items() if file.name == "2"]
        wanted[changed].write_bytes(b"other")
        with pytest.raises(DigestMismatchError) as caught:
            store.put_files(wanted)
        assert caught.value.problems[0].expected == changed
        assert not store.has(changed)
        assert store.sweep_staging(0) == 0

    def test_chunks_may_share_one_buffer(self, store: BlobStore) -> None:
        buffer = bytearray(3)

        def chunks() -> Iterator[memoryview]:
            for chunk in (b"abc", b"def"):
                buffer[:] = chunk
                yield memoryview(buffer)

        assert store.put_stream(chunks()).digest == digest_of(b"abcdef")

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, None), (0, 3), (1, 1), (3, 0), (3, None), (2, None), (0, 0), (1, None)]
    )
    def test_read_gives_exactly_the_range(self, store: BlobStore, offset: int, length: int | None) -> None:
        store.put_bytes(b"abc")
        end = None if length is None else offset + length
        assert store.read(ABC_DIGEST, offset, length) == b"abc"[offset:end]

    @pytest.mark.parametrize(("offset", "length"), [(0, 4), (3, 1), (4, 0), (4, None), (-1, 1), (1, -1), (0, 2**70)])
    def test_read_refuses_a_range_the_blob_does_not_have(
        self, store: BlobStore, offset: int, length: int | None
    ) -> None:
        store.put_bytes(b"abc")
        with pytest.raises(RefusedError) as refusal:
            store.read(ABC_DIGEST, offset, length)
        assert refusal.value.code == "BLOB_RANGE"

    @pytest.mark.parametrize("read", READERS)
    def test_a_missing_blob_is_named(self, store: BlobStore, read: Callable[[BlobStore, str], object]) -> None:
        assert not store.has(ABSENT)
        with pytest.raises(NotFoundError, match=ABSENT) as absence:
            read(store, ABSENT)
        assert absence.value.code == "BLOB_MISSING"

    def test_delete_removes_and_may_be_repeated(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        kept = store.put_bytes(b"other").digest
        store.local_path(ABC_DIGEST)
        for _ in range(2):
            store.delete(ABC_DIGEST)
            assert not store.has(ABC_DIGEST)
            assert [entry.digest for entry in store.entries()] == [kept]
        with pytest.raises(NotFoundError):
            store.local_path(ABC_DIGEST)

    @pytest.mark.parametrize("text", NOT_DIGESTS)
    def test_what_is_no_digest_never_becomes_a_path(self, store: BlobStore, text: str) -> None:
        for ask in [*READERS, *OTHERS]:
            with pytest.raises(UsageProblemError) as refusal:
                ask(store, text)
            assert refusal.value.code == "DIGEST_INVALID"

    def test_unexpected_bytes_are_refused_and_leave_nothing(self, store: BlobStore) -> None:
        with pytest.raises(DigestMismatchError) as refusal:
            store.put_stream([b"abd"], expect=ABC_DIGEST)
        (problem,) = refusal.value.problems
        assert (problem.code, problem.expected, problem.observed) == (
            "BLOB_DIGEST_MISMATCH",
            ABC_DIGEST,
            digest_of(b"abd"),
        )
        assert_empty(store)

    def test_expected_bytes_are_kept(self, store: BlobStore) -> None:
        assert store.put_stream([b"a", b"bc"], expect=ABC_DIGEST).sha256 == ABC_SHA256

    @pytest.mark.parametrize("chunks", [[b"abcd"], [b"abc", b"d"], [b"", b"ab", b"", b"cd"]])
    def test_a_stream_over_its_limit_is_refused_and_leaves_nothing(self, store: BlobStore, chunks: list[bytes]) -> None:
        with pytest.raises(RefusedError) as refusal:
            store.put_stream(chunks, limit=3)
        assert refusal.value.code == "BLOB_TOO_LARGE"
        assert_empty(store)

    def test_a_stream_at_its_limit_is_kept(self, store: BlobStore) -> None:
        assert store.put_stream([b"abc"], limit=3).digest == ABC_DIGEST

    def test_a_stream_that_breaks_off_leaves_nothing(self, store: BlobStore) -> None:
        def chunks() -> Iterator[bytes]:
            yield pattern(5 * 2**20)
            raise ConnectionResetError("the sender went away")

        with pytest.raises(ConnectionResetError):
            store.put_stream(chunks())
        assert_empty(store)

    def test_a_file_that_cannot_be_read_is_not_blamed_on_the_store(self, store: BlobStore, tmp_path: Path) -> None:
        for path in (tmp_path / "absent", tmp_path):
            with pytest.raises(UsageProblemError, match=str(path)) as refusal:
                store.put_file(path)
            assert refusal.value.code == "FILE_UNREADABLE"
        assert_empty(store)

    def test_a_flipped_byte_is_found_and_named(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        untouched = store.put_bytes(b"other")
        self.plant(store, ABC_DIGEST, b"abb")
        with pytest.raises(DigestMismatchError) as found:
            store.verify(ABC_DIGEST)
        (problem,) = found.value.problems
        assert (problem.expected, problem.observed) == (ABC_DIGEST, digest_of(b"abb"))
        assert store.verify(untouched.digest) == untouched

    def test_a_verified_stream_of_changed_bytes_fails_at_its_end(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        self.plant(store, ABC_DIGEST, b"ab")
        blocks = store.stream_verified(ABC_DIGEST)
        assert next(blocks) == b"ab"
        with pytest.raises(DigestMismatchError):
            next(blocks)

    @pytest.mark.parametrize("damage", [b"", b"ab", b"abb", b"abcd"])
    def test_a_put_repairs_a_damaged_blob(self, store: BlobStore, damage: bytes) -> None:
        store.put_bytes(b"abc")
        self.plant(store, ABC_DIGEST, damage)
        store.put_bytes(b"abc")
        assert store.verify(ABC_DIGEST).sha256 == ABC_SHA256
        assert store.local_path(ABC_DIGEST).read_bytes() == b"abc"

    def test_a_repeated_put_makes_the_blob_young_again(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        (first,) = store.entries()
        store.put_bytes(b"abc")
        (second,) = store.entries()
        assert first.modified <= second.modified
        assert abs(second.modified - datetime.now(UTC)) < timedelta(minutes=5)

    def test_putting_a_blob_again_makes_it_young(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        before = store.modified(ABC_DIGEST)
        time.sleep(1.1)  # S3 tells time in whole seconds
        store.put_bytes(b"abc")
        assert store.modified(ABC_DIGEST) > before
        assert [entry.modified for entry in store.entries()] == [store.modified(ABC_DIGEST)]

    def test_entries_pass_over_what_is_no_blob(self, store: BlobStore) -> None:
        assert list(store.entries()) == []
        self.plant_stranger(store)
        store.put_bytes(b"abc")
        assert [entry.digest for entry in store.entries()] == [ABC_DIGEST]


def assert_empty(store: BlobStore) -> None:
    """Neither a blob nor anything in staging."""
    assert list(store.entries()) == []
    assert store.sweep_staging(0) == 0
