"""A process that reads adapters for another, and what both say to each other.

It reads nothing but its own modules when it starts, whatever program began it, and makes one more process for each
further descriptor before anything runs beside it. Each serves one connection until the other end of it is gone: so
none outlives the program that began it, however that ends.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Never, Protocol

from registry.errors import RefusedError, UsageProblemError
from registry.formats.read import read_adapter
from registry.formats.readings import AdapterReading
from registry.formats.snapshot import ReadWeight
from schemas.base import BaseManifest
from schemas.digests import Digest

Refusal = RefusedError | UsageProblemError
Answers = list[AdapterReading | Refusal]
START: Final = f"import gc, sys; gc.disable(); from {__name__} import main; main(list(map(int, sys.argv[1:])))"
"""What Python is to run, with the descriptors of the connections behind it; what is loaded stays, and is no garbage."""

OBJECTS: Final = 50_000
"""That are new before garbage is looked for where adapters are read: there are thousands, and soon gone."""


class Shelf(Protocol):
    """Where the bytes of files are put that were read whole; can be sent to another process."""

    def put(self, digest: Digest, data: bytes) -> None:
        """Take bytes that have this digest."""

    def settle(self) -> None:
        """Be done with everything taken so far."""


@dataclass(frozen=True)
class Reader:
    """What adapters are read with, and where the small files of those that are not refused are put."""

    base: BaseManifest
    weight: ReadWeight
    shelf: Shelf | None = None

    def read_all(self, directories: Sequence[Path]) -> Answers:
        """Read directories; their files are on the shelf when this returns."""
        answers = list(map(self._read, directories))
        if self.shelf is not None:
            self.shelf.settle()
        return answers

    def _read(self, directory: Path) -> AdapterReading | Refusal:
        """A directory, or why it was refused."""
        try:
            keep = None if self.shelf is None else self.shelf.put
            return read_adapter(directory, self.base, weight=self.weight, keep=keep)
        except (RefusedError, UsageProblemError) as error:
            return error


Asked = Reader | Sequence[Path]
"""First what to read with, then directories."""


def main(descriptors: Sequence[int]) -> Never:
    """Serve the connections with these descriptors, each from a process of its own. Does not return.

    Each ends at once: taking down what was loaded takes longer than reading a hundred adapters.
    """
    # an interrupt reaches the whole group; the program that began this one ends it by hanging up
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connections: list[Connection[Answers, Asked]] = [Connection(number) for number in descriptors]
    first, *others = connections
    gc.freeze()
    gc.set_threshold(OBJECTS)
    gc.enable()
    for connection in others:
        if not os.fork():
            for other in connections:
                if other is not connection:
                    other.close()
            serve(connection)
            os._exit(0)
        connection.close()
    serve(first)
    for _ in others:
        os.wait()
    os._exit(0)


def serve(connection: Connection[Answers, Asked]) -> None:
    """Take a reader and say so, then answer each list of directories with what was read, until nobody asks."""
    try:
        reader = connection.recv()
        assert isinstance(reader, Reader)
        connection.send([])
        while True:
            asked = connection.recv()
            assert not isinstance(asked, Reader)
            connection.send(reader.read_all(asked))
    except (EOFError, ConnectionError):
        return
