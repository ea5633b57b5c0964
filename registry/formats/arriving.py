"""A safetensors file that is still arriving: its header is checked from the first bytes, before more is taken."""

from __future__ import annotations

from io import BytesIO
from threading import Lock
from typing import Final

from registry.errors import RefusedError
from registry.formats.report import problem
from registry.formats.safetensors_file import PREFIX_BYTES, Header, check_end, check_start, read_header

LARGEST_ARRIVING: Final = 8 * 2**20
"""Room for some eighty thousand tensors; a hostile header of this length takes a quarter of a gigabyte to parse."""
_ONE_AT_A_TIME: Final = Lock()
_SUFFIX: Final = ".safetensors"
_NUMBER_END: Final = b"\0\0\0\0{"
"""How the length of any header below four gigabytes ends, and the header begins; no text has it there."""


class ArrivingFile:
    """What the first bytes of a file of `size` bytes, if known, say: a safetensors file by its name or by content."""

    def __init__(self, name: str | None, size: int | None) -> None:
        self._name = name or "file"
        self._named = name is not None and name.endswith(_SUFFIX)
        self._size = size
        self._start = bytearray()
        self._needed = PREFIX_BYTES + 1
        self._settled = False
        self._header: Header | None = None
        self._arrived = 0

    def update(self, block: bytes | memoryview) -> None:
        """Look at the next bytes.

        Raises:
            RefusedError: what `read_header` raises; `TRAILING_BYTES` once more arrives than the header says.
        """
        self._arrived += len(block)
        left = memoryview(block)
        while not self._settled and left:
            missing = self._needed - len(self._start)
            self._start += left[:missing]
            left = left[missing:]
            if len(self._start) == self._needed:
                self._step()
        if self._header is not None and self._arrived > self._header.end:
            expected, observed = f"a file of {self._header.end} bytes", f"{self._arrived} bytes or more"
            hint = "The file is damaged: save it again."
            raise RefusedError(problem("TRAILING_BYTES", (self._name,), expected, observed, hint))

    def finish(self) -> None:
        """Everything has arrived.

        Raises:
            RefusedError: what `read_header` raises; `FILE_TRUNCATED`.
        """
        if self._header is not None:
            check_end(self._header, self._arrived, self._name)
        elif not self._settled and (self._named or len(self._start) > PREFIX_BYTES):
            read_header(BytesIO(self._start), self._arrived, self._name, largest=LARGEST_ARRIVING)

    def _step(self) -> None:
        """The bytes asked for are there: first the length and how the header begins, then the header."""
        if self._needed > PREFIX_BYTES + 1:
            self._settle(self._read())
        elif self._named or self._start.endswith(_NUMBER_END):
            length = check_start(bytes(self._start), self._size, self._name, LARGEST_ARRIVING)
            self._needed = PREFIX_BYTES + max(length, 2)
        else:
            self._settle(None)

    def _read(self) -> Header:
        with _ONE_AT_A_TIME:
            return read_header(BytesIO(self._start), self._size, self._name, largest=LARGEST_ARRIVING)

    def _settle(self, header: Header | None) -> None:
        self._header, self._settled = header, True
        self._start.clear()
