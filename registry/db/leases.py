"""Leases: a serving replica holds a generation from plan to last use, by the database's clock (R 0x08G)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sqlalchemy import DateTime, delete, func, select, text, update

from registry.db.problems import found
from registry.db.rows import GenerationArtifactRow, LeaseRow
from registry.db.session import Change, Reader, stamp
from registry.errors import ConflictError, Problem
from schemas.digests import Digest


def clock(reader: Reader) -> str:
    """The database's own time, so that replicas whose clocks jump or differ agree on who still holds what."""
    if reader.connection.dialect.name == "postgresql":
        moment = reader.connection.execute(select(func.clock_timestamp(type_=DateTime(timezone=True)))).scalar_one()
    else:
        written = reader.connection.execute(text("SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')")).scalar_one()
        moment = datetime.fromisoformat(str(written)).replace(tzinfo=UTC)
    return stamp(moment)


def acquire(change: Change, channel: str, number: int, holder: str, ttl_s: float) -> LeaseRow:
    """Hold a generation for `ttl_s` seconds."""
    now = _now(change, channel)
    row = LeaseRow(
        id=secrets.token_hex(16),
        channel=channel,
        number=number,
        holder=holder,
        created=now,
        expires=_later(now, ttl_s),
    )
    change.insert(row)
    return row


def renew(change: Change, lease_id: str, ttl_s: float) -> LeaseRow:
    """Hold it for `ttl_s` seconds from now. Raises NotFoundError `LEASE_UNKNOWN`, ConflictError `LEASE_EXPIRED`."""
    row = _held(change, lease_id)
    until = max(row.expires, _later(_now(change, row.channel), ttl_s))
    change.connection.execute(update(LeaseRow).where(LeaseRow.id == lease_id).values(expires=until))
    row.expires = until
    return row


def release(change: Change, lease_id: str) -> LeaseRow:
    """Let go after the last use. Raises NotFoundError `LEASE_UNKNOWN`, ConflictError `LEASE_EXPIRED`.

    One that ran out stays as it is: nobody knows whether its holder had finished, so its generation never counts as
    drained.
    """
    row = _held(change, lease_id)
    change.connection.execute(delete(LeaseRow).where(LeaseRow.id == lease_id))
    return row


def of(reader: Reader, channel: str) -> tuple[tuple[LeaseRow, bool], ...]:
    """Every lease on a channel that was not released, by generation and age, and whether it still holds."""
    rows = reader.all(
        select(LeaseRow).where(LeaseRow.channel == channel).order_by(LeaseRow.number, LeaseRow.created, LeaseRow.id)
    )
    now = _now(reader, channel)
    return tuple((row, row.expires > now) for row in rows)


def of_holder(reader: Reader, holder: str) -> tuple[tuple[LeaseRow, bool], ...]:
    """Every lease of one replica that was not released, by channel, generation and age, and whether it still holds."""
    mine = select(LeaseRow).where(LeaseRow.holder == holder)
    rows = reader.all(mine.order_by(LeaseRow.channel, LeaseRow.number, LeaseRow.created, LeaseRow.id))
    return tuple((row, row.expires > _now(reader, row.channel)) for row in rows)


def serving(reader: Reader, artifacts: Iterable[Digest]) -> tuple[LeaseRow, ...]:
    """The leases that still hold a generation with one of these artifacts in it."""
    part = GenerationArtifactRow
    holding = select(LeaseRow).join(part, (part.channel == LeaseRow.channel) & (part.number == LeaseRow.number))
    rows = {row.id: row for row in reader.chosen(holding, part.artifact, artifacts)}
    return tuple(row for row in rows.values() if row.expires > _now(reader, row.channel))


def _held(change: Change, lease_id: str) -> LeaseRow:
    mine = select(LeaseRow).where(LeaseRow.id == lease_id).with_for_update()
    hint = (
        "One that was released is gone; `registry lease ls CHANNEL` lists the others, or take a new one for new work."
    )
    row = found(change.one(mine), "LEASE_UNKNOWN", f"a lease {lease_id}", hint)
    now = _now(change, row.channel)
    if row.expires <= now:
        # the same words each time, without the present: a conflict that a second run meets unchanged is real
        raise ConflictError(
            Problem(
                code="LEASE_EXPIRED",
                path=(lease_id,),
                expected="a lease that has not run out",
                observed=f"one that ran out at {row.expires}",
                hint="Take a new lease; renew earlier than the time to live.",
            )
        )
    return row


def _now(reader: Reader, channel: str) -> str:
    """The database's clock, never before the newest lease: set back, it must not bring expired ones to life."""
    newest = reader.session.scalar(select(func.max(LeaseRow.created)).where(LeaseRow.channel == channel))
    return max(clock(reader), newest or "")


def _later(moment: str, seconds: float) -> str:
    return stamp(datetime.fromisoformat(moment) + timedelta(seconds=seconds))
