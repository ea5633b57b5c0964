"""Writers of one SQLite database in line: a lock beside its file, waited for before the write lock is asked for.

SQLite lets whoever asks at the right moment write, and the others sleep meanwhile, up to a tenth of a second after the
lock was given back. Here each asks the more often the longer it has waited, so that none is forgotten, and no change is
begun that would only wait. The kernel gives the lock back when its holder ends, however it ends. No right depends on
it: SQLite's own lock decides, also against programs that know nothing of this one.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SUFFIX: Final = "-queue"
_FIRST_S: Final = 0.02
_SHORTEST_S: Final = 0.001


@contextmanager
def turn(file: Path | None, deadline: float) -> Iterator[bool]:
    """Wait for our turn to write, at most until `deadline` (`time.monotonic`); false when it did not come.

    Where no lock can be had (another database than SQLite, no such file, a disk that is full or cannot be written) it
    is our turn at once.
    """
    descriptor = None if file is None else _opened(file)
    if descriptor is None:
        yield True
        return
    try:
        yield _locked(descriptor, deadline)
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int | None:
    """The lock of a database that exists; each opening is a holder of its own, threads of one process too."""
    if not file.is_file():
        return None
    try:
        return os.open(f"{file}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError:
        return None


def _locked(descriptor: int, deadline: float) -> bool:
    start = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            if now > deadline:
                return False
            longest = max(_SHORTEST_S, _FIRST_S / (1 + 4 * (now - start)))
            time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter, not a secret
        except OSError:
            # a file system without locks
            return True
        else:
            return True
