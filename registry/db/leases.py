"""Leases: a reader holds a generation for a while, so that nobody removes what it serves."""

from __future__ import annotations

import secrets

from sqlalchemy import delete, select

from registry.db.rows import LeaseRow
from registry.db.session import Change, Reader


def acquire(change: Change, channel: str, number: int, holder: str, expires: str) -> LeaseRow:
    """Hold a generation until a time."""
    row = LeaseRow(
        id=secrets.token_hex(16),
        channel=channel,
        number=number,
        holder=holder,
        created=change.now,
        expires=expires,
    )
    change.insert(row)
    return row


def release(change: Change, lease_id: str) -> bool:
    """Let go; False when it was gone."""
    mine = delete(LeaseRow).where(LeaseRow.id == lease_id)
    return change.session.connection().execute(mine).rowcount == 1


def of(reader: Reader, channel: str) -> tuple[LeaseRow, ...]:
    """The leases on a channel that have not run out."""
    mine = select(LeaseRow).where(LeaseRow.channel == channel, LeaseRow.expires > reader.now)
    return reader.all(mine.order_by(LeaseRow.expires, LeaseRow.id))
