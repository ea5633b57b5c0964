"""Leases of serving replicas, and how far older generations have drained (R 0x09G)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from registry.db import Change, Reader, channels, leases
from registry.db.rows import LeaseRow
from registry.errors import Problem, UsageProblemError
from registry.service.context import Context
from registry.service.results import Drain, DrainView, Lease
from schemas.names import check_name

LONGEST_S: Final = 86_400.0
LONGEST_HOLDER: Final = 128


def acquire(context: Context, channel: str, holder: str, ttl_s: float) -> Lease:
    """Bind new work of a replica to the newest generation, for `ttl_s` seconds of the database's time.

    Raises:
        NotFoundError: `CHANNEL_UNKNOWN`.
        UsageProblemError: `LEASE_INVALID`: no holder, or a time to live outside 1 second to 1 day.
    """
    check_name(channel)
    context.require("publish", channel)
    _check(ttl_s, holder)

    def work(change: Change) -> Lease:
        head = channels.at_head(change, channel)
        return _lease(change, leases.acquire(change, channel, head.number, holder, ttl_s), held=True)

    return context.database.change("lease.acquire", context.principal, work)


def renew(context: Context, lease_id: str, ttl_s: float) -> Lease:
    """Hold on, on the generation it was taken for. Raises NotFoundError, ConflictError `LEASE_EXPIRED`."""
    _check(ttl_s)

    def work(change: Change) -> Lease:
        row = leases.renew(change, lease_id, ttl_s)
        context.require("publish", row.channel)
        return _lease(change, row, held=True)

    return context.database.change("lease.renew", context.principal, work)


def release(context: Context, lease_id: str) -> Lease:
    """Let go after the last use. Raises NotFoundError, ConflictError `LEASE_EXPIRED`."""

    def work(change: Change) -> Lease:
        row = leases.release(change, lease_id)
        context.require("publish", row.channel)
        return _lease(change, row, held=False)

    return context.database.change("lease.release", context.principal, work)


def of_holder(context: Context, holder: str) -> tuple[Lease, ...]:
    """Every lease a replica has not released, on any channel; one that ran out is listed as no longer held."""
    with context.database.reading() as reader:
        return tuple(_lease(reader, row, held=holds) for row, holds in leases.of_holder(reader, holder))


def drain(context: Context, channel: str) -> DrainView:
    """The live generation, and every older one since the oldest that a lease names; all before those are drained."""
    check_name(channel)
    with context.database.reading() as reader:
        head = channels.at_head(reader, channel).number
        rows = leases.of(reader, channel)
        held = Counter(row.number for row, holds in rows if holds)
        expired = Counter(row.number for row, holds in rows if not holds)
        oldest = min([head, *held, *expired])
        return DrainView(
            channel=channel,
            head=head,
            generations=tuple(
                _drain(number, head, held[number], expired[number]) for number in range(oldest, head + 1)
            ),
            leases=tuple(_lease(reader, row, held=holds) for row, holds in rows),
        )


def _drain(number: int, head: int, held: int, expired: int) -> Drain:
    """A generation with a lease that ran out is expired, never drained."""
    if number == head:
        return Drain(generation=number, state="live", held=held, expired=expired)
    if held:
        return Drain(generation=number, state="draining", held=held, expired=expired)
    return Drain(generation=number, state="expired" if expired else "drained", held=held, expired=expired)


def _lease(reader: Reader, row: LeaseRow, *, held: bool) -> Lease:
    return Lease(
        id=row.id,
        channel=row.channel,
        generation=row.number,
        holder=row.holder,
        artifacts=channels.at(reader, row.channel, row.number).artifacts,
        acquired=row.created,
        expires=row.expires,
        held=held,
    )


def _check(ttl_s: float, holder: str = "-") -> None:
    if not 1.0 <= ttl_s <= LONGEST_S or not 0 < len(holder) <= LONGEST_HOLDER:
        raise UsageProblemError(
            Problem(
                code="LEASE_INVALID",
                path=("ttl_s",),
                expected=f"a holder of 1 to {LONGEST_HOLDER} characters, and 1 to {LONGEST_S:g} seconds",
                observed=f"{holder[:160]!r}, {ttl_s!r}",
                hint="Name the replica, and renew several times within the time to live.",
            )
        )
