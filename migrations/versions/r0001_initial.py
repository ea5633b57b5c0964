"""The first schema: content, names and generations, what is said, working tables, the audit chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.schema import SchemaItem

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# bytewise order on both databases
_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create every table."""
    _content()
    _places()
    _naming()
    _channels()
    _said()
    _events()
    _working()
    _jobs()


def _content() -> None:
    _table("blob", ["digest"], _text("digest"), _text("sha256"), _number("size"), append_only=True)
    _index("blob", "sha256")
    _table(
        "manifest",
        ["digest"],
        _text("digest"),
        _text("kind"),
        _bytes("data"),
        _text("created"),
        _text("base", null=True),
        _text("family", null=True),
        _text("method", null=True),
        _text("outcome", null=True),
        append_only=True,
    )
    _index("manifest", "base", "kind", "created", "digest", present="base")
    _index("manifest", "created", "digest")
    _index("manifest", "family", "created", "digest", present="family")
    _index("manifest", "kind", "created", "digest")
    _index("manifest", "method", "created", "digest", present="method")
    _index("manifest", "outcome", "created", "digest", present="outcome")
    _table(
        "edge",
        ["child", "parent", "role", "position"],
        _text("child"),
        _text("parent"),
        _text("role"),
        _number("position"),
        _reference("edge", ["child"], ["manifest.digest"]),
        _reference("edge", ["parent"], ["manifest.digest"]),
        append_only=True,
    )
    _index("edge", "parent", "child")


def _places() -> None:
    _table(
        "file",
        ["manifest", "packaging", "path"],
        _text("manifest"),
        _text("packaging"),
        _text("path"),
        _text("blob"),
        _text("created"),
        _reference("file", ["blob"], ["blob.digest"]),
        _reference("file", ["manifest"], ["manifest.digest"]),
        append_only=True,
    )
    _index("file", "blob")
    _table(
        "tensor_location",
        ["tensor", "blob", "offset"],
        _text("tensor"),
        _text("blob"),
        _number("offset"),
        _number("length"),
        _text("dtype"),
        _text("shape_json"),
        _reference("tensor_location", ["blob"], ["blob.digest"]),
        append_only=True,
    )
    _index("tensor_location", "blob")
    _table(
        "base_location",
        ["base", "directory", "path", "blob", "mtime_ns"],
        _text("base"),
        _text("directory"),
        _text("path"),
        _text("blob"),
        _number("mtime_ns"),
        _number("size"),
        _text("created"),
        _reference("base_location", ["base"], ["manifest.digest"]),
        _reference("base_location", ["blob"], ["blob.digest"]),
        append_only=True,
    )
    _index("base_location", "blob")
    _table(
        "evidence",
        ["subject", "aspect", "sequence"],
        _text("subject"),
        _text("aspect"),
        _number("sequence"),
        _text("level"),
        _text("created"),
        _reference("evidence", ["subject"], ["manifest.digest"]),
        append_only=True,
    )


def _naming() -> None:
    _table(
        "name",
        ["name"],
        _text("name"),
        _text("kind"),
        _text("created"),
        _unique("name", "name", "kind"),
        append_only=True,
    )
    _index("name", "kind", "name")
    _table(
        "name_version",
        ["name", "version"],
        _text("name"),
        _number("version"),
        _text("kind"),
        _text("digest"),
        _text("created"),
        _reference("name_version", ["digest"], ["manifest.digest"]),
        _reference("name_version", ["name", "kind"], ["name.name", "name.kind"]),
        _unique("name_version", "name", "digest"),
        append_only=True,
    )
    _index("name_version", "digest")
    _table(
        "alias_event",
        ["name", "alias", "sequence"],
        _text("name"),
        _text("alias"),
        _number("sequence"),
        _number("version"),
        _text("created"),
        _reference("alias_event", ["name", "version"], ["name_version.name", "name_version.version"]),
        append_only=True,
    )


def _channels() -> None:
    _table(
        "generation",
        ["channel", "number"],
        _text("channel"),
        _number("number"),
        _text("publication"),
        _text("reason"),
        _number("restored", null=True),
        _text("created"),
        _reference("generation", ["publication"], ["manifest.digest"]),
        _unique("generation", "publication"),
        append_only=True,
    )
    _index("generation", "number", "channel")
    _table(
        "generation_artifact",
        ["channel", "number", "position"],
        _text("channel"),
        _number("number"),
        _number("position"),
        _text("artifact"),
        _reference("generation_artifact", ["artifact"], ["manifest.digest"]),
        _reference("generation_artifact", ["channel", "number"], ["generation.channel", "generation.number"]),
        append_only=True,
    )
    _index("generation_artifact", "artifact")


def _said() -> None:
    _table(
        "statement",
        ["subject", "topic", "sequence"],
        _text("subject"),
        _text("topic"),
        _number("sequence"),
        _text("digest"),
        _text("created"),
        _reference("statement", ["digest"], ["manifest.digest"]),
        _reference("statement", ["subject"], ["manifest.digest"]),
        _unique("statement", "digest"),
        append_only=True,
    )
    _table(
        "label",
        ["subject", "key", "sequence"],
        _text("subject"),
        _text("key"),
        _number("sequence"),
        _text("value", null=True),
        _text("statement"),
        _reference("label", ["statement"], ["manifest.digest"]),
        _reference("label", ["subject"], ["manifest.digest"]),
        append_only=True,
    )
    _index("label", "key", "value", "subject")
    _table(
        "measurement",
        ["subject", "sequence"],
        _text("subject"),
        _number("sequence"),
        _text("body_json"),
        _text("created"),
        _reference("measurement", ["subject"], ["manifest.digest"]),
        append_only=True,
    )
    _table(
        "run_record",
        ["subject", "sequence"],
        _text("subject"),
        _number("sequence"),
        _text("body_json"),
        _text("created"),
        _reference("run_record", ["subject"], ["manifest.digest"]),
        append_only=True,
    )


def _events() -> None:
    _table(
        "purge_event",
        ["subject"],
        _text("subject"),
        _text("reason"),
        _text("created"),
        _reference("purge_event", ["subject"], ["manifest.digest"]),
        append_only=True,
    )
    _table(
        "token_event",
        ["token", "sequence"],
        _text("token"),
        _number("sequence"),
        _text("principal"),
        _text("secret_hash", null=True),
        _text("permissions_json"),
        _text("expires", null=True),
        _text("created"),
        _unique("token_event", "secret_hash"),
        append_only=True,
    )
    _table(
        "audit_event",
        ["sequence"],
        _number("sequence"),
        _text("change_id"),
        _text("action"),
        _text("principal"),
        _text("subject", null=True),
        _text("detail_json"),
        _text("created"),
        _text("rows_json"),
        _text("rows_digest"),
        _text("previous", null=True),
        _text("hash"),
        _unique("audit_event", "change_id"),
    )


def _working() -> None:
    _table(
        "upload_session",
        ["id"],
        _text("id"),
        _text("principal"),
        _text("expected", null=True),
        _number("size", null=True),
        _number("offset"),
        _text("created"),
        _text("expires"),
    )
    _index("upload_session", "expires")
    _table(
        "blob_presence",
        ["blob"],
        _text("blob"),
        _text("checked"),
        _reference("blob_presence", ["blob"], ["blob.digest"]),
    )
    _table(
        "idempotency_key",
        ["principal", "key"],
        _text("principal"),
        _text("key"),
        _text("request"),
        _text("response_json"),
        _text("created"),
    )
    _index("idempotency_key", "created")
    _table(
        "lease",
        ["id"],
        _text("id"),
        _text("channel"),
        _number("number"),
        _text("holder"),
        _text("created"),
        _text("expires"),
    )
    _index("lease", "channel", "expires")


def _jobs() -> None:
    _table(
        "job",
        ["id"],
        _text("id"),
        _text("kind"),
        _text("key"),
        _text("live_key", null=True),
        _text("status"),
        _text("request_json"),
        _text("principal"),
        _text("created"),
        _text("updated"),
        _text("result_json", null=True),
        _text("error_json", null=True),
        _text("progress_json", null=True),
        _number("attempts"),
        _text("worker", null=True),
        _text("lease_until", null=True),
        _unique("job", "live_key"),
    )
    _index("job", "created", "id")
    _index("job", "status", "created", "id")


def _table(name: str, key: list[str], *items: SchemaItem, append_only: bool = False) -> None:
    if append_only:
        items = (*items, _text("change_id"))
    op.create_table(name, *items, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"))
    if append_only:
        _index(name, "change_id")


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=null)


def _number(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=null, autoincrement=False)


def _bytes(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=f"uq_{table}_{'_'.join(columns)}")


def _reference(table: str, columns: Sequence[str], targets: Sequence[str]) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(columns, targets, name=f"fk_{table}_{'_'.join(columns)}")


def _index(table: str, *columns: str, present: str | None = None) -> None:
    where = None if present is None else sa.text(f"{present} IS NOT NULL")
    name = f"ix_{table}_{'_'.join(columns)}"
    op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)
