"""Channel policies, appended; and the evaluations that speak of an artifact."""

from __future__ import annotations

from sqlalchemy import select

from registry.db.rows import ChannelPolicyRow, EdgeRow, ManifestRow
from registry.db.session import Change, Reader
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import Digest


def put(change: Change, channel: str, body: JsonObject) -> int:
    """Append a policy; its number in the channel's history."""
    sequence = change.next(ChannelPolicyRow.sequence, ChannelPolicyRow.channel == channel)
    text = canonical_bytes(body).decode()
    change.append(ChannelPolicyRow(channel=channel, sequence=sequence, body_json=text, created=change.now))
    return sequence


def current(reader: Reader, channel: str) -> JsonObject | None:
    """The newest policy of a channel; None where none was set."""
    mine = select(ChannelPolicyRow).where(ChannelPolicyRow.channel == channel)
    row = reader.one(mine.order_by(ChannelPolicyRow.sequence.desc()).limit(1))
    return None if row is None else row.body


def evaluations_of(reader: Reader, artifact: Digest) -> tuple[Digest, ...]:
    """Every evaluation that names an artifact as a candidate."""
    mine = (
        select(EdgeRow.child)
        .join(ManifestRow, ManifestRow.digest == EdgeRow.child)
        .where(EdgeRow.parent == artifact, EdgeRow.role == "candidate", ManifestRow.kind == "evaluation")
        .order_by(EdgeRow.child)
    )
    return reader.all(mine)
