"""Channels: generations without gaps, appended one after the other, the highest live."""

from __future__ import annotations

from sqlalchemy import select

from registry.db import manifests, paging
from registry.db.paging import Page
from registry.db.problems import found
from registry.db.rows import GenerationArtifactRow, GenerationRow
from registry.db.session import Change, Reader
from registry.errors import Problem, StaleHeadError
from schemas.publication import PublicationManifest


def head(reader: Reader, channel: str) -> GenerationRow | None:
    """The live generation; None for a channel nothing was published to."""
    mine = select(GenerationRow).where(GenerationRow.channel == channel)
    return reader.one(mine.order_by(GenerationRow.number.desc()).limit(1))


def at_head(reader: Reader, channel: str) -> GenerationRow:
    """The live generation. Raises NotFoundError `CHANNEL_UNKNOWN`."""
    return found(head(reader, channel), "CHANNEL_UNKNOWN", f"a channel {channel}", "Publish to it first.")


def at(reader: Reader, channel: str, number: int) -> GenerationRow:
    """One generation. Raises NotFoundError `CHANNEL_UNKNOWN` or `GENERATION_UNKNOWN`."""
    row = reader.one(select(GenerationRow).where(GenerationRow.channel == channel, GenerationRow.number == number))
    if row is None:
        at_head(reader, channel)
    hint = f"See the generations with `registry history {channel}`."
    return found(row, "GENERATION_UNKNOWN", f"channel:{channel}@g{number}", hint)


def append(change: Change, publication: PublicationManifest, expect: int | None = None) -> GenerationRow:
    """Store a publication as the generation after the head.

    Of two at once the second reads the head that the first one left; the unique key (channel, number) stands behind it.

    Raises:
        StaleHeadError: `GENERATION_STALE`: the head is not `expect`, or not the one `publication` follows.
    """
    channel, before = publication.channel, head(change, publication.channel)
    number, previous = (0, None) if before is None else (before.number, before.publication)
    follows = publication.generation == number + 1 and publication.previous == previous
    if not follows or expect not in (None, number):
        raise _stale(channel, publication.generation - 1 if expect is None else expect, number)
    manifests.put(change, publication)
    change.append(_generation(change, publication), *_artifacts(publication))
    return at(change, channel, number + 1)


def history(reader: Reader, channel: str, after: str | None = None, limit: int = 50) -> Page[GenerationRow]:
    """One page of a channel's generations, newest first."""
    mine = select(GenerationRow).where(GenerationRow.channel == channel)
    return paging.page(reader, mine, (GenerationRow.number,), after, limit, newest_first=True)


def page(reader: Reader, after: str | None = None, limit: int = 50) -> Page[GenerationRow]:
    """One page of live generations, by channel."""
    # every channel has exactly one first generation, so those are the list to walk
    first = select(GenerationRow).where(GenerationRow.number == 1)
    firsts = paging.page(reader, first, (GenerationRow.channel,), after, limit)
    return firsts.map(lambda row: at_head(reader, row.channel))


def _generation(change: Change, publication: PublicationManifest) -> GenerationRow:
    return GenerationRow(
        channel=publication.channel,
        number=publication.generation,
        publication=publication.digest,
        reason=publication.reason,
        restored=publication.restored,
        created=change.now,
    )


def _artifacts(publication: PublicationManifest) -> list[GenerationArtifactRow]:
    return [
        GenerationArtifactRow(
            channel=publication.channel, number=publication.generation, position=position, artifact=artifact
        )
        for position, artifact in enumerate(publication.artifacts)
    ]


def _stale(channel: str, expected: int, number: int) -> StaleHeadError:
    return StaleHeadError(
        Problem(
            code="GENERATION_STALE",
            path=("channel", channel),
            expected=f"g{expected} as the head of {channel}",
            observed=f"g{number}",
            hint="Look at the new head; if your change still applies, publish again on top of it.",
        ),
        number,
    )
