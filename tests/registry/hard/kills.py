"""Kills at drawn moments, most of them while the command writes, which is seen from outside."""

from __future__ import annotations

import random
import re
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

Watch = Callable[[], frozenset[str]]
"""Signs that something is being written; some of them a killed command leaves behind."""
TICK_S: Final = 0.003
EARLY: Final = 5
"""One of so many kills lies in the time before the first write."""
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
    def tried(self) -> int:
        """How many there were, those that came too late among them."""
        return self.moments.total()

    @property
    def done(self) -> bool:
        """Whether enough of them found the command running. Raises AssertionError when hardly one does."""
        assert self.tried < 3 * self._wanted + 4, dict(self.moments)
        return self.tried - self.moments["too late"] >= self._wanted

    def run(self, house: House, arguments: tuple[str, ...], watch: Watch) -> None:
        """The command undisturbed, which must succeed; the latest run tells when it writes, for the next kill."""
        seen: list[float] = []
        left = watch()

        def measure(command: Forked) -> None:
            began = time.monotonic()
            while command.poll() is None:
                if watch() - left:
                    seen.append(time.monotonic() - began)
                time.sleep(TICK_S)

        ended = self._warmed.run(arguments, house.environment, house.folder, measure)
        assert ended.exit == 0, ended.err
        self._before_s, self._writing_s = (seen[0], seen[-1] - seen[0]) if seen else (ended.seconds, 0.0)

    def kill(self, house: House, arguments: tuple[str, ...], watch: Watch, arrived: Callable[[], bool]) -> Ended:
        """One kill; afterwards `arrived` tells whether the command had done its work."""
        early, share = self.tried % EARLY == EARLY - 1, self._draw.random()
        left, signs = watch(), frozenset[str]()

        def moment(command: Forked) -> None:
            nonlocal signs
            if early:
                time.sleep(share * self._before_s)
                signs = watch() - left
                return
            while not (signs := watch() - left) and command.poll() is None:
                time.sleep(TICK_S)
            time.sleep(share * self._writing_s)

        ended = self._warmed.kill(arguments, house.environment, house.folder, moment)
        done = arrived()
        assert done or ended.killed, ended.err
        place = "after the commit" if done else "inside" if signs else "before"
        self.moments[place if ended.killed else "too late"] += 1
        return ended


@contextmanager
def watching(house: House) -> Iterator[Watch]:
    """Watch the staging folder of a registry and whether a transaction holds its database."""
    staging = house.folder / "home" / "store" / "staging"
    with _transactions(house.database_url) as held:
        yield lambda: frozenset(path.name for path in staging.glob("*")) | ({"transaction"} if held() else set())


@contextmanager
def _transactions(url: str) -> Iterator[Callable[[], bool]]:
    if url.startswith("sqlite"):
        shared = Path(f"{make_url(url).database}-shm")
        yield lambda: _locked(shared)
        return
    with psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True) as connection:
        yield lambda: connection.execute(IN_TRANSACTION).fetchone() is not None


def _locked(shared: Path) -> bool:
    if not shared.exists():
        return False
    writer = rf"POSIX +ADVISORY +WRITE \d+ \S+:{shared.stat().st_ino} {WRITER_BYTE} "
    return re.search(writer, Path("/proc/locks").read_text(encoding="ascii")) is not None
