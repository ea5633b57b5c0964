"""One pass over a safetensors file: its own digests, every tensor's digest and, when asked, the state of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from registry.errors import RefusedError
from registry.formats.directory import Directory, stream_size
from registry.formats.readings import FileReading, Progress, TensorLocation
from registry.formats.report import problem
from registry.formats.safetensors_file import Header, TensorEntry, read_header
from registry.formats.values import ValueScan
from registry.hashing import StreamHasher, Update, stream_blocks
from schemas.base import TensorRef
from schemas.digests import BlobHasher, Digest, TensorHasher
from schemas.errors import Problem

ReadHeader = Callable[[BinaryIO, int, str], Header]
"""Reads the header of a file of so many bytes, by its name."""


@dataclass(frozen=True)
class ScannedTensor:
    """A tensor whose bytes were read. `first_not_finite` is a flat index; both facts are null when not asked for."""

    entry: TensorEntry
    digest: Digest
    first_not_finite: int | None
    all_zero: bool | None

    @property
    def ref(self) -> TensorRef:
        """The tensor by content."""
        return TensorRef(tensor=self.digest, dtype=self.entry.dtype, shape=self.entry.shape)

    def location(self, file: FileReading) -> TensorLocation:
        """Where its bytes lie."""
        entry = self.entry
        blob = file.digests.digest
        return TensorLocation(self.digest, blob, entry.offset, entry.length, entry.dtype, entry.shape)


@dataclass(frozen=True)
class ScannedFile:
    """A safetensors file that was read whole."""

    file: FileReading
    tensors: tuple[ScannedTensor, ...]


def file_header(directory: Directory, name: str) -> Header:
    """The validated header alone."""
    with directory.open(name) as stream:
        return read_header(stream, stream_size(stream), name)


def scan_file(
    directory: Directory,
    name: str,
    *,
    values: bool = False,
    progress: Progress | None = None,
    header: ReadHeader = read_header,
) -> ScannedFile:
    """Hash a file and all its tensors in blocks of at most 4 MiB, each block read once.

    Args:
        header: reads what stands before the tensors; they follow in its order, with nothing but padding between.

    Raises:
        RefusedError: what `header` refuses, or `FILE_CHANGED` when the file shrinks or grows meanwhile.
    """
    with directory.open(name) as stream:
        size = stream_size(stream)
        entries = header(stream, size, name).tensors
        stream.seek(0)
        if isinstance(stream, BytesIO):
            return _scan_kept(stream.getvalue(), entries, name, values, progress)
        return _scan_blocks(stream, size, entries, name, values, progress)


def _scan_kept(
    data: bytes, entries: tuple[TensorEntry, ...], name: str, values: bool, progress: Progress | None
) -> ScannedFile:
    """A small file whose bytes the directory keeps."""
    hasher, whole, scans = BlobHasher(), memoryview(data), [_Scan(entry, values) for entry in entries]
    hasher.update(data)
    for scan in scans:
        for update in scan.updates:
            update(whole[scan.entry.offset : scan.entry.offset + scan.entry.length])
    if progress is not None:
        progress(len(data))
    return ScannedFile(FileReading(name, hasher.finish()), tuple([scanned() for scanned in scans]))


def _scan_blocks(
    stream: BinaryIO,
    size: int,
    entries: tuple[TensorEntry, ...],
    name: str,
    values: bool,
    progress: Progress | None,
) -> ScannedFile:
    scans, position = [], 0
    with StreamHasher() as hasher:
        for entry in entries:
            _pass(stream, hasher, entry.offset - position, name, progress)
            scans.append(_scan(stream, hasher, entry, name, values, progress))
            position = entry.offset + entry.length
        _pass(stream, hasher, size - position, name, progress)
        if stream.read(1):
            raise RefusedError(_changed(name))
        digests = hasher.finish()
    return ScannedFile(FileReading(name, digests), tuple([scanned() for scanned in scans]))


class _Scan:
    """A tensor being read; called once its last block has been hashed."""

    def __init__(self, entry: TensorEntry, values: bool) -> None:
        self.entry = entry
        self._hasher = TensorHasher(entry.dtype, entry.shape)
        self._values = ValueScan(entry.dtype) if values else None

    @property
    def updates(self) -> tuple[Update, ...]:
        return (self._hasher.update,) if self._values is None else (self._hasher.update, self._values.update)

    def __call__(self) -> ScannedTensor:
        values = self._values
        facts = (None, None) if values is None else (values.first_not_finite, values.all_zero)
        return ScannedTensor(self.entry, self._hasher.finish(), *facts)


def _scan(
    stream: BinaryIO, hasher: StreamHasher, entry: TensorEntry, name: str, values: bool, progress: Progress | None
) -> _Scan:
    scan = _Scan(entry, values)
    for block in _exactly(stream, entry.length, name):
        _take(hasher, block, scan.updates, progress)
    return scan


def _pass(stream: BinaryIO, hasher: StreamHasher, length: int, name: str, progress: Progress | None) -> None:
    """Header and padding: part of the file, of no tensor."""
    for block in _exactly(stream, length, name):
        _take(hasher, block, (), progress)


def _take(hasher: StreamHasher, block: bytes, updates: tuple[Update, ...], progress: Progress | None) -> None:
    hasher.update(block, *updates)
    if progress is not None:
        progress(len(block))


def _exactly(stream: BinaryIO, length: int, name: str) -> Iterator[bytes]:
    left = length
    for block in stream_blocks(stream, length):
        left -= len(block)
        yield block
    if left:
        raise RefusedError(_changed(name))


def _changed(name: str) -> Problem:
    hint = "Wait until nothing writes to the file, then read it again."
    return problem("FILE_CHANGED", (name,), "a file that stays as it is while it is read", "another length", hint)
