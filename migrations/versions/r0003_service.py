"""What a server needs: webhooks and what was told to them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# bytewise order on both databases
_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables; guards of append-only ones are installed with all others after the upgrade."""
    _webhooks()
    _uploads()
    _jobs()


def _webhooks() -> None:
    op.create_table(
        "webhook_event",
        _text("webhook"),
        _number("sequence"),
        _text("url"),
        _text("prefix"),
        _text("created"),
        _text("change_id"),
        sa.PrimaryKeyConstraint("webhook", "sequence", name="pk_webhook_event"),
    )
    op.create_index("ix_webhook_event_change_id", "webhook_event", ["change_id"])
    op.create_table(
        "webhook_secret",
        _text("webhook"),
        _text("secret"),
        sa.PrimaryKeyConstraint("webhook", name="pk_webhook_secret"),
    )
    op.create_table(
        "webhook_delivery",
        _text("id"),
        _text("webhook"),
        _text("channel"),
        _number("number"),
        _text("body_json"),
        _text("status"),
        _number("attempts"),
        _text("due"),
        _text("created"),
        _text("updated"),
        _text("answer", null=True),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
    )
    op.create_index("ix_webhook_delivery_status_due_id", "webhook_delivery", ["status", "due", "id"])
    op.create_index("ix_webhook_delivery_webhook_created_id", "webhook_delivery", ["webhook", "created", "id"])


def _uploads() -> None:
    """The file name an upload was given as a hint, and the way from a blob to the uploads that bring it."""
    op.add_column("upload_session", _text("name", null=True))
    op.create_index("ix_upload_session_expected", "upload_session", ["expected"])


def _jobs() -> None:
    """The queue knows who holds a job: a lease that its worker renews is not needed any more."""
    op.drop_column("job", "lease_until")


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=null)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=False, autoincrement=False)
