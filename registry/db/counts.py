"""How many rows there are of what. Counting reads an index from end to end, so it belongs to monitoring only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute

from registry.db.rows import GenerationRow, JobRow, ManifestRow, WebhookDeliveryRow
from registry.db.session import Reader

JOB_STATES: Final = ("queued", "running", "done", "failed", "cancelled")
DELIVERY_STATES: Final = ("waiting", "delivered", "dead")


def jobs(reader: Reader) -> Mapping[str, int]:
    """Jobs by state, those without any among them."""
    return dict.fromkeys(JOB_STATES, 0) | _by(reader, JobRow.status)


def deliveries(reader: Reader) -> Mapping[str, int]:
    """Messages to webhooks by state."""
    return dict.fromkeys(DELIVERY_STATES, 0) | _by(reader, WebhookDeliveryRow.status)


def manifests(reader: Reader) -> Mapping[str, int]:
    """Manifests by kind."""
    return _by(reader, ManifestRow.kind)


def generations(reader: Reader) -> int:
    """Generations of all channels."""
    return reader.session.scalar(select(func.count(GenerationRow.number))) or 0


def _by(reader: Reader, column: InstrumentedAttribute[str]) -> dict[str, int]:
    counted = select(column, func.count()).group_by(column)
    return {str(row[0]): int(row[1]) for row in reader.session.execute(counted)}
