"""Evidence levels of bases and binding levels of adapters: rows beside the manifest, the newest counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy import bindparam, select

from registry.db.prepared import Prepared
from registry.db.rows import EvidenceRow
from registry.db.session import Change, Reader
from schemas.digests import Digest

Aspect = Literal["evidence", "binding"]
_NEWEST: Final = Prepared(
    select(EvidenceRow.level, EvidenceRow.sequence)
    .where(EvidenceRow.subject == bindparam("subject"), EvidenceRow.aspect == bindparam("aspect"))
    .order_by(EvidenceRow.sequence.desc())
    .limit(1)
)


def put(change: Change, subject: Digest, aspect: Aspect, value: str) -> bool:
    """Record a level; False when it is the current one."""
    newest = _NEWEST.first(change.connection, subject=subject, aspect=aspect)
    if newest is not None and newest[0] == value:
        return False
    sequence = newest[1] + 1 if newest is not None else 1
    change.append(EvidenceRow(subject=subject, aspect=aspect, sequence=sequence, level=value, created=change.now))
    return True


def put_first(change: Change, levels: Mapping[Digest, str], aspect: Aspect) -> None:
    """Record the levels of manifests that were stored by this very change."""
    change.write(
        EvidenceRow,
        [
            {"subject": subject, "aspect": aspect, "sequence": 1, "level": value, "created": change.now}
            for subject, value in levels.items()
        ],
    )


def level(reader: Reader, subject: Digest, aspect: Aspect) -> str | None:
    """The current level."""
    newest = _NEWEST.first(reader.connection, subject=subject, aspect=aspect)
    return None if newest is None else newest[0]
