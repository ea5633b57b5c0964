"""Evidence levels of bases and binding levels of adapters: rows beside the manifest, the newest counts."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import select

from registry.db.rows import EvidenceRow
from registry.db.session import Change, Reader
from schemas.digests import Digest

Aspect = Literal["evidence", "binding"]


def put(change: Change, subject: Digest, aspect: Aspect, value: str) -> bool:
    """Record a level; False when it is the current one."""
    if level(change, subject, aspect) == value:
        return False
    mine = EvidenceRow.subject == subject, EvidenceRow.aspect == aspect
    sequence = change.next(EvidenceRow.sequence, *mine)
    change.append(EvidenceRow(subject=subject, aspect=aspect, sequence=sequence, level=value, created=change.now))
    return True


def level(reader: Reader, subject: Digest, aspect: Aspect) -> str | None:
    """The current level."""
    mine = select(EvidenceRow.level).where(EvidenceRow.subject == subject, EvidenceRow.aspect == aspect)
    return reader.one(mine.order_by(EvidenceRow.sequence.desc()).limit(1))
