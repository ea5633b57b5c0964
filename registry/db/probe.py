"""A write that leaves nothing behind, to see whether the database takes one."""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import delete

from registry.db.database import Database
from registry.db.rows import IdempotencyKeyRow
from registry.db.session import Change

_NOBODY: Final = "\x7fprobe"
"""No principal: those are printable."""


def write(database: Database) -> None:
    """Write a row of a working table, remove it, and commit.

    Raises:
        UnavailableError: the database is away, busy, full or read-only.
    """

    def work(change: Change) -> None:
        key = secrets.token_hex(16)
        change.insert(IdempotencyKeyRow(principal=_NOBODY, key=key, request="", response_json="{}", created=change.now))
        change.session.connection().execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.key == key))

    database.change("probe", _NOBODY, work)
