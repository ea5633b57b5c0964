"""The database as a whole: snapshots to read, and the only place that commits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Final, Self, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from registry.db import chain
from registry.db import engine as engines
from registry.db.failures import BUSY, classify
from registry.db.queue import turn
from registry.db.rows import AuditEventRow
from registry.db.session import Change, Reader, utc_now
from schemas.canonical import JsonObject

T = TypeVar("T")
FIRST_PAUSE_S: Final = 0.01
LONGEST_PAUSE_S: Final = 0.5
AWAY_S: Final = 3.0
"""How long a change asks again once its database does not answer: it may be starting anew, or be gone for long."""


class Database:
    """SQLite or PostgreSQL behind one interface; it connects when first used.

    `patience_s` bounds, in seconds, how long a change is run again after lost races, locks and lost connections.
    """

    def __init__(
        self, url: str, *, clock: Callable[[], datetime] = utc_now, patience_s: float = engines.LONGEST_WAIT_S
    ) -> None:
        self.url = url
        self._clock = clock
        self._patience_s = patience_s
        self._file = engines.sqlite_path(url)
        self._engine = engines.open_engine(url)
        self._writing = engines.writing(self._engine)
        self._snapshot = engines.snapshot(self._engine)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A read-only snapshot; rows read in it stay usable after it.

        Raises:
            UnavailableError: `DATABASE_BUSY`, `DATABASE_UNAVAILABLE`, `SCHEMA_MISSING`.
        """
        try:
            with Session(self._snapshot, expire_on_commit=False, autoflush=False) as session:
                yield Reader(session, self._clock())
        except SQLAlchemyError as error:
            raise classify(error, self._file).as_error() from error

    def change(self, action: str, principal: str, work: Callable[[Change], T]) -> T:
        """Run `work` in one transaction, append its audit event last, commit, and return its result.

        Changes run one after another, so that `work` sees what every earlier one left. It may run several times:
        whatever it decides on it must read inside, and it must touch nothing but the database. A change that appended
        no row and noted nothing leaves no event.

        Raises:
            UnavailableError: `DATABASE_BUSY`, `DATABASE_UNAVAILABLE`, `DATABASE_FULL`, `DATABASE_READ_ONLY`.
            ConflictError: what `work` raised, or a unique key that stayed taken until patience ran out.
        """
        deadline = time.monotonic() + self._patience_s
        for attempt in count():
            try:
                with turn(self._file, deadline) as ours:
                    if not ours:
                        raise BUSY.as_error()
                    return self._attempt(action, principal, work)
            except SQLAlchemyError as error:
                failure = classify(error, self._file)
                if failure.cause == "away":
                    deadline = min(deadline, time.monotonic() + AWAY_S)
                if not failure.passing or time.monotonic() > deadline:
                    raise failure.as_error() from error
            longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 10))
            time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter, not a secret
        raise AssertionError("unreachable: the loop returns or raises")

    def record(self, action: str, principal: str, subject: str | None, detail: JsonObject) -> None:
        """An audit event without rows, such as a refusal."""
        self.change(action, principal, lambda change: change.note(subject, detail))

    def close(self) -> None:
        """Give back every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, action: str, principal: str, work: Callable[[Change], T]) -> T:
        with Session(self._writing, expire_on_commit=False, autoflush=False) as session:
            chain.stand_in_line(session.connection())
            change = Change(session, self._clock(), principal)
            result = work(change)
            told = change.seal(action)
            try:
                session.commit()
            except SQLAlchemyError as error:
                # a connection lost while committing leaves it open whether it did: the event knows
                if classify(error).cause == "away" and told and self._committed(change.change_id):
                    return result
                raise
        return result

    def _committed(self, change_id: str) -> bool:
        with Session(self._snapshot) as session:
            found = select(AuditEventRow.sequence).where(AuditEventRow.change_id == change_id)
            return session.scalar(found) is not None
