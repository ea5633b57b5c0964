"""Channel policies: what each channel asks of what is published to it; the newest counts."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from registry.db.rows.core import AppendOnlyRow, Row, parsed
from schemas.canonical import JsonObject


class ChannelPolicyRow(AppendOnlyRow, Row):
    """One policy of a channel; `sequence` counts from 1."""

    __tablename__ = "channel_policy"
    channel: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body_json: Mapped[str]
    created: Mapped[str]

    @property
    def body(self) -> JsonObject:
        """The policy."""
        return parsed(self.body_json)
