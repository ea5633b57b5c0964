"""One pass over a safetensors file: its own digests, every tensor's digest and, when asked, the state of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO, FileIO
from typing import BinaryIO

from registry.errors import RefusedError
from registry.formats.directory import Directory, stream_size
from registry.formats.readings import FileReading, Progress, TensorLocation
from registry.formats.report import problem
from registry.formats.safetensors_file import Header, TensorEntry, read_header
from registry.formats.values import ValueScan, all_zero
from registry.hashing import file_blocks, hash_blocks
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
        if isinstance(stream, BytesIO):
            return _scan_kept(stream.getvalue(), entries, name, values, progress)
        # without the buffer of `stream`, which every byte would be copied through
        with FileIO(stream.fileno(), closefd=False) as file:
            file.seek(0)
            return _scan_blocks(file, size, entries, name, values, progress)


def _scan_kept(
    data: bytes, entries: tuple[TensorEntry, ...], name: str, values: bool, progress: Progress | None
) -> ScannedFile:
    """A small file whose bytes the directory keeps."""
    hasher, whole = BlobHasher(), memoryview(data)
    hasher.update(data)
    zeros = _zeros(whole, entries) if values else None
    tensors = _Tensors(entries, values and zeros is None)
    tensors.update(whole)
    if progress is not None:
        progress(len(data))
    scanned = tensors.scanned
    if zeros is not None:
        scanned = [
            ScannedTensor(item.entry, item.digest, None, zero) for item, zero in zip(scanned, zeros, strict=True)
        ]
    return ScannedFile(FileReading(name, hasher.finish()), tuple(scanned))


def _zeros(data: memoryview, entries: tuple[TensorEntry, ...]) -> list[bool] | None:
    """Whether all values are zero, by tensor; null where one look at all of them does not tell."""
    if len({entry.dtype for entry in entries}) != 1:
        return None
    start, lengths = entries[0].offset, [entry.length for entry in entries]
    end = entries[-1].offset + entries[-1].length
    return all_zero(data[start:end], entries[0].dtype, lengths) if end - start == sum(lengths) else None


def _scan_blocks(
    file: FileIO, size: int, entries: tuple[TensorEntry, ...], name: str, values: bool, progress: Progress | None
) -> ScannedFile:
    tensors = _Tensors(entries, values)
    digests = hash_blocks(_whole(file, size, name, progress), tensors.update)
    return ScannedFile(FileReading(name, digests), tuple(tensors.scanned))


def _whole(file: FileIO, size: int, name: str, progress: Progress | None) -> Iterator[memoryview]:
    """All blocks of a file, which must keep its size."""
    left = size
    for block in file_blocks(file):
        left -= len(block)
        if left < 0:
            break
        if progress is not None:
            progress(len(block))
        yield block
    if left or file.read(1):
        raise RefusedError(_changed(name))


class _Tensors:
    """The tensors of a file, given its bytes in order; one is open at a time, the one that the next byte belongs to."""

    def __init__(self, entries: Iterable[TensorEntry], values: bool) -> None:
        self.scanned: list[ScannedTensor] = []
        self._scans = (_Scan(entry, values) for entry in entries)
        self._open = next(self._scans, None)
        self._position = 0

    def update(self, block: memoryview) -> None:
        """Take in the next bytes of the file; what lies between tensors is part of none."""
        start, self._position = self._position, self._position + len(block)
        while (scan := self._open) is not None and scan.entry.offset <= self._position:
            end = scan.entry.offset + scan.entry.length
            scan.update(block[max(scan.entry.offset - start, 0) : end - start])
            if end > self._position:
                return
            self.scanned.append(scan.finish())
            self._open = next(self._scans, None)


class _Scan:
    """A tensor being read."""

    def __init__(self, entry: TensorEntry, values: bool) -> None:
        self.entry = entry
        self._hasher = TensorHasher(entry.dtype, entry.shape)
        self._values = ValueScan(entry.dtype) if values else None

    def update(self, part: memoryview) -> None:
        self._hasher.update(part)
        if self._values is not None:
            self._values.update(part)

    def finish(self) -> ScannedTensor:
        values = self._values
        facts = (None, None) if values is None else (values.first_not_finite, values.all_zero)
        return ScannedTensor(self.entry, self._hasher.finish(), *facts)


def _changed(name: str) -> Problem:
    hint = "Wait until nothing writes to the file, then read it again."
    return problem("FILE_CHANGED", (name,), "a file that stays as it is while it is read", "another length", hint)
