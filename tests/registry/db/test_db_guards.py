"""Guards: append-only rows cannot be changed, removed, replaced or truncated by a statement, whoever sends it."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError, OperationalError

from registry.db import Change, Database, check, guards, migrate
from registry.db.rows import (
    AliasEventRow,
    AppendOnlyRow,
    BaseLocationRow,
    BlobRow,
    ChannelPolicyRow,
    EdgeRow,
    EvidenceRow,
    FileRow,
    GenerationArtifactRow,
    GenerationRow,
    LabelRow,
    ManifestRow,
    MeasurementRow,
    NameRow,
    NameVersionRow,
    PurgeEventRow,
    RunRecordRow,
    StatementRow,
    TensorLocationRow,
    TokenEventRow,
    WebhookEventRow,
)
from registry.errors import InternalError
from tests.registry.db.examples import ME

GUARDED = [table.name for table in guards.guarded_tables()]


def one_row_in_every_table(change: Change) -> None:
    """Rows that satisfy each other's foreign keys."""
    now = change.now
    rows: list[AppendOnlyRow] = [
        BlobRow(digest="b", sha256="s", size=1),
        ManifestRow(digest="m", kind="adapter", data=b"{}", created=now),
        EdgeRow(child="m", parent="m", role="member", position=0),
        FileRow(manifest="m", packaging="p", path="f", blob="b", created=now),
        TensorLocationRow(tensor="t", blob="b", offset=0, length=4, dtype="F32", shape_json="[1]"),
        BaseLocationRow(base="m", directory="/d", path="f", blob="b", mtime_ns=1, size=1, created=now),
        EvidenceRow(aspect="evidence", level="content", subject="m", sequence=1, created=now),
        NameRow(name="n", kind="adapter", created=now),
        NameVersionRow(name="n", version=1, kind="adapter", digest="m", created=now),
        AliasEventRow(name="n", alias="a", sequence=1, version=1, created=now),
        GenerationRow(channel="c", number=1, publication="m", reason="r", restored=None, created=now),
        GenerationArtifactRow(channel="c", number=1, position=0, artifact="m"),
        ChannelPolicyRow(channel="c", sequence=1, body_json="{}", created=now),
        StatementRow(subject="m", topic="label", sequence=1, digest="m", created=now),
        LabelRow(subject="m", key="k", sequence=1, value="v", statement="m"),
        MeasurementRow(subject="m", sequence=1, body_json="{}", created=now),
        RunRecordRow(subject="m", sequence=1, body_json="{}", created=now),
        PurgeEventRow(subject="m", reason="r", created=now),
        TokenEventRow(
            token="t",
            sequence=1,
            principal="p",
            secret_hash="h",
            permissions_json="{}",
            expires=None,
            created=now,
        ),
        WebhookEventRow(webhook="w", sequence=1, url="https://example.org/", prefix="", created=now),
    ]
    change.append(*rows)


@pytest.fixture
def filled(database: Database) -> Database:
    """One row in every append-only table."""
    database.change("fill", ME, one_row_in_every_table)
    return database


def refused(url: str, statement: str) -> str:
    """The message with which a foreign hand, without our pragmas, is refused."""
    engine = create_engine(url)
    try:
        with pytest.raises((IntegrityError, OperationalError)) as caught, engine.begin() as connection:
            connection.execute(text(statement))
        return str(caught.value.orig)
    finally:
        engine.dispose()


def test_every_append_only_table_is_guarded_and_no_other() -> None:
    assert sorted(GUARDED) == [
        "alias_event", "audit_event", "base_location", "blob", "channel_policy", "edge", "evidence", "file",
        "generation", "generation_artifact", "label", "manifest", "measurement", "name", "name_version", "purge_event",
        "run_record", "statement", "tensor_location", "token_event", "webhook_event",
    ]  # fmt: skip


def test_update_and_delete_are_refused_in_every_table(filled: Database) -> None:
    for table in GUARDED:
        for statement in (f"UPDATE {table} SET change_id = 'x'", f"DELETE FROM {table}"):
            message = refused(filled.url, statement)
            assert f"append-only: {table}" in message


def test_replacing_a_row_is_refused_in_every_table(filled: Database) -> None:
    if filled.url.startswith("sqlite"):
        for table in GUARDED:
            for statement in (
                f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
                f"REPLACE INTO {table} SELECT * FROM {table}",
                f"INSERT OR IGNORE INTO {table} SELECT * FROM {table}",
            ):
                message = refused(filled.url, statement)
                assert f"exists: pk_{table}" in message
    else:
        for table in GUARDED:
            upsert = f"ON CONFLICT ON CONSTRAINT pk_{table} DO UPDATE SET change_id = 'x'"
            statement = f"INSERT INTO {table} SELECT * FROM {table} {upsert}"
            message = refused(filled.url, statement)
            assert f"append-only: {table}" in message


def test_replacing_a_row_by_its_rowid_is_refused(filled: Database) -> None:
    if filled.url.startswith("sqlite"):
        statement = (
            "INSERT OR REPLACE INTO blob (rowid, digest, sha256, size, change_id) "
            "SELECT rowid, 'other', 'other', 2, change_id FROM blob"
        )
        message = refused(filled.url, statement)
        assert "exists: rowid_blob" in message


def test_truncate_is_refused_in_every_table(filled: Database) -> None:
    if filled.url.startswith("postgresql"):
        for table in GUARDED:
            message = refused(filled.url, f"TRUNCATE {table} CASCADE")
            assert "append-only" in message


def test_a_refused_statement_inside_a_change_is_a_typed_error_and_leaves_nothing(filled: Database) -> None:
    with pytest.raises(InternalError) as caught:
        filled.change("edit", ME, lambda change: change.session.execute(text("DELETE FROM blob")))
    assert "append-only: blob" in caught.value.problems[0].observed
    with filled.reading() as reader:
        assert reader.session.scalar(text("SELECT count(*) FROM blob")) == 1


def test_check_is_silent_about_a_sound_database(filled: Database) -> None:
    assert check.check(filled.url) == ()


@pytest.mark.parametrize("name", ["blob", "audit_event"])
def test_check_names_a_missing_guard_and_an_upgrade_puts_it_back(database: Database, name: str) -> None:
    sqlite = database.url.startswith("sqlite")
    guard = f"guard_{name}_update" if sqlite else f"guard_{name}_rows"
    engine = create_engine(database.url)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TRIGGER {guard}" + ("" if sqlite else f" ON {name}")))
    engine.dispose()
    assert [(problem.code, problem.path) for problem in check.check(database.url)] == [
        ("GUARD_MISSING", ("guards", guard))
    ]
    migrate.upgrade(database.url)
    assert check.check(database.url) == ()


def test_check_names_a_guard_that_lost_its_teeth(database: Database) -> None:
    engine = create_engine(database.url)
    with engine.begin() as connection:
        if database.url.startswith("sqlite"):
            guard = "guard_blob_delete"
            connection.execute(text(f"DROP TRIGGER {guard}"))
            connection.execute(text(f"CREATE TRIGGER {guard} BEFORE DELETE ON blob BEGIN SELECT 1; END"))
        else:
            guard = "guard_blob_rows"
            connection.execute(text(f"ALTER TABLE blob DISABLE TRIGGER {guard}"))
    engine.dispose()
    assert [(problem.code, problem.path) for problem in check.check(database.url)] == [
        ("GUARD_CHANGED", ("guards", guard))
    ]


def test_check_names_a_hollowed_guard_function(database: Database) -> None:
    if database.url.startswith("postgresql"):
        engine = create_engine(database.url)
        hollow = "RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$"
        with engine.begin() as connection:
            connection.execute(text(f"CREATE OR REPLACE FUNCTION registry_append_only() {hollow}"))
        engine.dispose()
        assert [problem.code for problem in check.check(database.url)] == ["GUARD_CHANGED"]
