"""Kills at drawn moments, most of them while the command writes, which is seen from outside."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import make_url

from tests.support.forks import Forked
from tests.support.house import House
from tests.support.warmed import Ended, Warmed

Watch = Callable[[], bool]
"""Whether something is being written."""
TICK_S: Final = 0.001
EARLY: Final = 0.2
"""Share of kills over the time before the first write."""
WRITER: Final = ("POSIX", "ADVISORY", "WRITE")
WRITER_BYTE: Final = "120"
"""Of SQLite's file of shared memory: whoever writes in WAL mode has it locked."""
IN_TRANSACTION: Final = """
SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND granted AND datname = current_database()
"""


class Kills:
    """So many kills of one command, each of which found it running."""

    def __init__(self, warmed: Warmed, wanted: int) -> None:
        self._warmed, self._wanted = warmed, wanted
        self._draw = random.Random(wanted)
        self._before_s = self._writing_s = 0.0
        self.moments: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        """Whether there were enough of them."""
        return self.moments.total() - self.moments["too late"] >= self._wanted

    def run(self, house: House, arguments: tuple[str, ...], watch: Watch) -> None:
        """The command undisturbed, which must succeed; the latest run tells when it writes."""
        seen: list[float] = []

        def measure(command: Forked) -> None:
            began = time.monotonic()
            while command.poll() is None:
                if watch():
                    seen.append(time.monotonic() - began)
                time.sleep(TICK_S)

        ended = self._warmed.run(arguments, house.environment, house.folder, measure)
        assert ended.exit == 0, ended.err
        self._before_s, self._writing_s = (seen[0], seen[-1] - seen[0]) if seen else (ended.seconds, 0.0)

    def kill(self, house: House, arguments: tuple[str, ...], watch: Watch, arrived: Callable[[], bool]) -> Ended:
        """One kill; afterwards `arrived` tells whether the command had done its work."""
        early, share = self._draw.random() < EARLY, self._draw.random()
        writes = False

        def moment(command: Forked) -> None:
            nonlocal writes
            if early:
                time.sleep(share * self._before_s)
                writes = watch()
                return
            while not (writes := watch()) and command.poll() is None:
                time.sleep(TICK_S)
            time.sleep(share * self._writing_s)

        ended = self._warmed.kill(arguments, house.environment, house.folder, moment)
        done = arrived()
        assert done or ended.killed, ended.err
        place = "after the commit" if done else "inside" if writes else "before"
        self.moments[place if ended.killed else "too late"] += 1
        return ended


@contextmanager
def watching(house: House) -> Iterator[Watch]:
    """Watch the staging folder of a registry and whether a transaction holds its database."""
    staging = house.folder / "home" / "store" / "staging"
    with _transactions(house.database_url) as held:
        yield lambda: held() or (staging.is_dir() and any(staging.iterdir()))


@contextmanager
def _transactions(url: str) -> Iterator[Watch]:
    if url.startswith("sqlite"):
        shared = Path(f"{make_url(url).database}-shm")
        yield lambda: _locked(shared)
        return
    with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as connection:
        yield lambda: connection.execute(IN_TRANSACTION).fetchone() is not None


def _locked(shared: Path) -> bool:
    if not shared.exists():
        return False
    inode = str(shared.stat().st_ino)
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        _, *kind, _, place, first, _ = line.replace("-> ", "").split()
        if (*kind, place.rpartition(":")[2], first) == (*WRITER, inode, WRITER_BYTE):
            return True
    return False
