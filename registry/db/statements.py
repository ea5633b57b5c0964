"""Statements: what somebody says about a thing, labels and yanks included. The newest of a topic is current."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, bindparam, exists, select
from sqlalchemy.orm import aliased

from registry.db import manifests
from registry.db.prepared import Prepared
from registry.db.rows import LabelRow, StatementRow
from registry.db.session import Change, Reader
from registry.errors import ConflictError, Problem
from schemas.digests import Digest
from schemas.publication import StatementManifest, Topic

_NEWEST: Final = (
    select(StatementRow)
    .where(StatementRow.subject == bindparam("subject"), StatementRow.topic == bindparam("topic"))
    .order_by(StatementRow.sequence.desc())
    .limit(1)
)

_OF: Final = Prepared(
    select(StatementRow.digest)
    .where(StatementRow.subject == bindparam("subject"))
    .order_by(StatementRow.topic, StatementRow.sequence)
)


def put(change: Change, statement: StatementManifest) -> bool:
    """Store a statement; False when it was there. Labels of a `label` statement are set, those with null removed.

    Raises:
        ConflictError: `STATEMENT_STALE` when `previous` is not the newest statement of this subject and topic.
    """
    if not manifests.put(change, statement):
        return False
    digest = statement.digest
    before = _newest(change, statement.subject, statement.topic)
    if statement.previous != (before.digest if before else None):
        raise _stale(statement, before)
    sequence = before.sequence + 1 if before else 1
    change.append(
        StatementRow(
            subject=statement.subject,
            topic=statement.topic,
            sequence=sequence,
            digest=digest,
            created=change.now,
        ),
        *_labels(change, statement),
    )
    return True


def put_first(change: Change, said: Sequence[StatementManifest]) -> None:
    """Store what is said first, without labels, about manifests that were stored by this very change."""
    manifests.put_all(change, said)
    change.write(
        StatementRow,
        [
            {
                "subject": statement.subject,
                "topic": statement.topic,
                "sequence": 1,
                "digest": statement.digest,
                "created": change.now,
            }
            for statement in said
        ],
    )


def newest(reader: Reader, subject: Digest, topic: Topic) -> StatementManifest | None:
    """The current statement of a topic."""
    row = _newest(reader, subject, topic)
    return None if row is None else manifests.load(reader, row.digest, StatementManifest)


def of(reader: Reader, subject: Digest) -> tuple[StatementManifest, ...]:
    """Every statement about a thing, by topic and age."""
    rows = _OF.all(reader.connection, subject=subject)
    return tuple(manifests.load(reader, row[0], StatementManifest) for row in rows)


def labels(reader: Reader, subject: Digest) -> dict[str, str]:
    """The labels a thing has now."""
    newer = aliased(LabelRow)
    replaced = exists().where(
        newer.subject == LabelRow.subject, newer.key == LabelRow.key, newer.sequence > LabelRow.sequence
    )
    rows = reader.all(select(LabelRow).where(LabelRow.subject == subject, ~replaced).order_by(LabelRow.key))
    return {row.key: row.value for row in rows if row.value is not None}


def yanked(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these are yanked now: their newest yank statement does not say `yanked: false`."""
    rows = reader.chosen(select(StatementRow).where(_current("yank")), StatementRow.subject, digests)
    said = {row.subject: manifests.load(reader, row.digest, StatementManifest).body for row in tuple(rows)}
    return frozenset(subject for subject, body in said.items() if body.get("yanked", True) is not False)


def _current(topic: Topic) -> ColumnElement[bool]:
    newer = aliased(StatementRow)
    replaced = exists().where(
        newer.subject == StatementRow.subject, newer.topic == topic, newer.sequence > StatementRow.sequence
    )
    return (StatementRow.topic == topic) & ~replaced


def _newest(reader: Reader, subject: Digest, topic: Topic) -> StatementRow | None:
    return reader.one(_NEWEST, subject=subject, topic=topic)


def _labels(change: Change, statement: StatementManifest) -> list[LabelRow]:
    if statement.topic != "label":
        return []
    return [
        LabelRow(
            subject=statement.subject,
            key=key,
            sequence=change.next(LabelRow.sequence, LabelRow.subject == statement.subject, LabelRow.key == key),
            value=None if value is None else str(value),
            statement=statement.digest,
        )
        for key, value in sorted(statement.body.items())
    ]


def _stale(statement: StatementManifest, before: StatementRow | None) -> ConflictError:
    return ConflictError(
        Problem(
            code="STATEMENT_STALE",
            path=("previous",),
            expected=before.digest if before else "null",
            observed=str(statement.previous),
            hint="Another statement came first; read it and say yours again after it.",
        )
    )
