"""A directory from outside, opened so that nothing leads out of it.

Only regular files directly inside are ever read. A symbolic link, a device or a pipe there is refused whatever its
name; subdirectories are neither read nor followed.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from registry.errors import RefusedError, UsageProblemError
from registry.formats.readings import FileReading
from registry.formats.report import located, problem, refuse_all, shown
from registry.hashing import hash_blocks, stream_blocks
from schemas.canonical import JsonObject, parse_json
from schemas.digests import BlobHasher
from schemas.errors import Problem

LARGEST_JSON: Final = 64 * 2**20
KEPT_FILE: Final = 2**20
KEPT_BYTES: Final = 8 * 2**20
"""Of a file, and of all files together, that a directory keeps in memory when asked to."""
PICKLE_SUFFIXES: Final = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
TENSOR_SUFFIXES: Final = (".gguf", ".h5", ".msgpack", ".npy", ".npz", ".onnx", ".ot", ".safetensors")


@dataclass(frozen=True)
class Directory:
    """A checked directory and the names of the regular files directly in it."""

    path: Path
    names: frozenset[str]
    _objects: dict[str, tuple[JsonObject, FileReading]] = field(default_factory=dict, repr=False, compare=False)
    _kept: dict[str, bytes] | None = field(default=None, repr=False, compare=False)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading without following a link, and make sure that it is still a regular one.

        Raises:
            RefusedError: `PATH_OUTSIDE`, `FILE_MISSING` or `FILE_NOT_REGULAR`.
        """
        if self._kept is not None and name in self._kept:
            return BytesIO(self._kept[name])
        refuse_all(plain_name_problems(name, (name,)))
        if name not in self.names:
            raise RefusedError(_missing(name))
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(self.path / name, flags)
        except OSError as error:
            raise RefusedError(_unreadable(name, error)) from error
        stream = os.fdopen(descriptor, "rb")
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            stream.close()
            raise RefusedError(_not_regular(name))
        return stream if self._kept is None else self._keep(name, stream, status.st_size, self._kept)

    @staticmethod
    def _keep(name: str, stream: BinaryIO, size: int, kept: dict[str, bytes]) -> BinaryIO:
        """A small file whole, so that all that looks at it sees the same bytes and it is read once."""
        if size > KEPT_FILE or size + sum(map(len, kept.values())) > KEPT_BYTES:
            return stream
        with stream:
            # what grew meanwhile is cut where it ended; registration stores nothing but the bytes seen here
            kept[name] = stream.read(size)
        return BytesIO(kept[name])

    def read_file(self, name: str, limit: int = LARGEST_JSON) -> tuple[bytes, FileReading]:
        """A small file whole, with its digests; `FILE_TOO_LARGE` above `limit` bytes."""
        with self.open(name) as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise RefusedError(_too_large(name, limit))
        hasher = BlobHasher()
        hasher.update(data)
        return data, FileReading(name, hasher.finish())

    def digest_file(self, name: str) -> FileReading:
        """The digests of a file of any size."""
        with self.open(name) as stream:
            return FileReading(name, hash_blocks(map(memoryview, stream_blocks(stream))))

    def read_object(self, name: str, limit: int = LARGEST_JSON) -> tuple[JsonObject, FileReading]:
        """A JSON object, with the digests of the bytes it was parsed from; each file is read once."""
        if name not in self._objects:
            data, reading = self.read_file(name, limit)
            with located(name):
                self._objects[name] = (json_object(data), reading)
        return self._objects[name]


def stream_size(stream: BinaryIO) -> int:
    """The size of an open file in bytes; it is left at its beginning."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def open_directory(path: Path, *, keep: bool = False) -> Directory:
    """Check what lies directly in a directory; `keep` reads each small file once, for all that asks for it.

    Raises:
        UsageProblemError: `DIRECTORY_MISSING`.
        RefusedError: `SYMLINK_REFUSED` and `FILE_NOT_REGULAR`, one problem an entry.
    """
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageProblemError(_no_directory(path, error)) from error
    problems, names = [], set()
    for entry in entries:
        if entry.is_symlink():
            problems.append(_symlink(entry.name))
        elif entry.is_file(follow_symlinks=False):
            names.add(entry.name)
        elif not entry.is_dir(follow_symlinks=False):
            problems.append(_not_regular(entry.name))
    refuse_all(problems)
    return Directory(path, frozenset(names), _kept={} if keep else None)


def open_file(path: Path) -> Directory:
    """The directory of a single file, with that file alone in it.

    Raises:
        UsageProblemError: `DIRECTORY_MISSING`.
        RefusedError: `SYMLINK_REFUSED`.
    """
    if path.is_symlink():
        raise RefusedError(_symlink(path.name))
    if not path.is_file():
        raise UsageProblemError(_no_directory(path, FileNotFoundError(2, "No such file or directory")))
    return Directory(path.absolute().parent, frozenset({path.name}))


def json_object(data: bytes) -> JsonObject:
    """Parse bytes that must be one JSON object (`JSON_NOT_OBJECT` otherwise).

    Tokenizers say that they know no longest text by 1e30, which Python writes as an integer of 31 digits.
    """
    document = parse_json(data, whole_doubles=True)
    if not isinstance(document, dict):
        raise RefusedError(
            problem("JSON_NOT_OBJECT", (), "a JSON object", type(document).__name__, "Restore the original file.")
        )
    return document


def plain_name_problems(name: str, path: tuple[str, ...]) -> list[Problem]:
    """`PATH_OUTSIDE` unless the name is one plain file name: no separator, no `..`, nothing absolute."""
    if name in {"", ".", ".."} or any(character in name for character in "/\\\0:"):
        hint = "Name the file alone; it must lie directly in the directory."
        return [problem("PATH_OUTSIDE", path, "a plain file name", shown(name), hint)]
    return []


def pickle_problem(name: str) -> Problem:
    """`PICKLE_REFUSED`: a pickle runs code when it is opened, so it is never opened."""
    hint = "Save the tensors as safetensors and remove the pickle from the directory."
    return problem("PICKLE_REFUSED", (name,), "safetensors only", f"a pickle: {shown(name)}", hint)


def _symlink(name: str) -> Problem:
    hint = "Put the file itself there, for example with `cp -L`."
    return problem("SYMLINK_REFUSED", (name,), "a regular file", "a symbolic link", hint)


def _not_regular(name: str) -> Problem:
    return problem("FILE_NOT_REGULAR", (name,), "a regular file", "a device, pipe or link", "Remove it.")


def _missing(name: str) -> Problem:
    return problem("FILE_MISSING", (name,), "the file in the directory", "no such file", "Add the file.")


def _unreadable(name: str, error: OSError) -> Problem:
    return problem("FILE_UNREADABLE", (name,), "a readable file", error.strerror or "error", "Check its permissions.")


def _too_large(name: str, limit: int) -> Problem:
    hint = "This is not the file its name says; restore the original."
    return problem("FILE_TOO_LARGE", (name,), f"at most {limit} bytes", "more", hint)


def _no_directory(path: Path, error: OSError) -> Problem:
    observed = f"{shown(str(path))}: {error.strerror or 'error'}"
    return problem("DIRECTORY_MISSING", (), "a readable directory", observed, "Check the path.")
