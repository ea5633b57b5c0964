"""What a channel asks of what is published to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# bytewise order on both databases
_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table; its guards are installed with all others after the upgrade."""
    op.create_table(
        "channel_policy",
        sa.Column("channel", _TEXT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("body_json", _TEXT, nullable=False),
        sa.Column("created", _TEXT, nullable=False),
        sa.Column("change_id", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("channel", "sequence", name="pk_channel_policy"),
    )
    op.create_index("ix_channel_policy_change_id", "channel_policy", ["change_id"])
