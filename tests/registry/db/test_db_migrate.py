"""The schema's history: created, upgraded with data, refused when newer, safe when interrupted."""

from __future__ import annotations

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from registry.db import Database, check, guards, migrate
from registry.db import engine as engines
from registry.db.rows import Row
from registry.db.verify import verify_audit
from registry.errors import UnavailableError
from tests.registry.db.examples import adapter, base, publish, store
from tests.support.tampering import tamper


def set_revision(url: str, revision: str) -> None:
    """Write another revision into the database."""
    tamper(url, "UPDATE alembic_version SET version_num = :revision", revision=revision)


def test_a_missing_schema_is_refused_in_words_then_created(empty_database_url: str) -> None:
    url = empty_database_url
    assert migrate.current(url) is None
    with pytest.raises(UnavailableError) as caught:
        migrate.require(url)
    assert caught.value.code == "SCHEMA_MISSING"
    assert "registry init" in str(caught.value)
    assert [problem.code for problem in check.check(url)] == ["SCHEMA_MISSING"]
    migrate.upgrade(url)
    migrate.require(url)
    assert migrate.current(url) == migrate.HEAD
    assert check.check(url) == ()


def test_the_migrated_schema_is_the_one_the_rows_describe(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Row.metadata) == []
        found = inspect(connection)
        for table in Row.metadata.sorted_tables:
            assert found.get_pk_constraint(table.name)["name"] == f"pk_{table.name}"
    engine.dispose()


def test_an_upgrade_keeps_data_and_its_proof(database_url: str) -> None:
    with Database(database_url) as database:
        store(database, base(), adapter(1))
        publish(database, "live", adapter(1).digest)
        migrate.upgrade(database_url)
        with database.reading() as reader:
            assert verify_audit(reader) == ()
            assert reader.session.scalar(text("SELECT count(*) FROM manifest")) == 3
        assert publish(database, "live", adapter(1).digest).number == 2


def test_an_upgrade_of_the_schema_before_keeps_data_and_guards_what_is_new(empty_database_url: str) -> None:
    engine = engines.open_engine(empty_database_url, create=True)
    with engine.begin() as connection:
        command.upgrade(migrate.config(connection), "0002")
    engine.dispose()
    with Database(empty_database_url) as database:
        store(database, base(), adapter(1))
        publish(database, "live", adapter(1).digest)
        assert {problem.code for problem in check.check(empty_database_url)} >= {"SCHEMA_OLDER"}
        migrate.upgrade(empty_database_url)
        assert check.check(empty_database_url) == ()
        with database.reading() as reader:
            assert verify_audit(reader) == ()
        assert publish(database, "live", adapter(1).digest).number == 2


def test_the_program_knows_every_revision_that_there_is() -> None:
    scripts = ScriptDirectory.from_config(migrate.config())
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == migrate.REVISIONS


def test_a_newer_schema_is_refused_in_words_and_left_alone(database_url: str) -> None:
    set_revision(database_url, "9999")
    for action in (migrate.require, migrate.upgrade):
        with pytest.raises(UnavailableError) as caught:
            action(database_url)
        assert caught.value.code == "SCHEMA_NEWER"
        assert "9999" in str(caught.value)
        assert "Upgrade the program" in str(caught.value)
    assert migrate.current(database_url) == "9999"


def test_an_older_schema_says_how_to_upgrade() -> None:
    for revision in migrate.REVISIONS[:-1]:
        problem = migrate.schema_problem(revision)
        assert problem is not None
        assert problem.code == "SCHEMA_OLDER"
        assert "registry db upgrade" in problem.hint


def test_an_interrupted_creation_leaves_nothing(empty_database_url: str) -> None:
    """A table in the way stops the migration after half of its work."""
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE job (id INTEGER)"))
    with pytest.raises(Exception, match="job"):
        migrate.upgrade(empty_database_url)
    with engine.begin() as connection:
        assert inspect(connection).get_table_names() == ["job"]
        connection.execute(text("DROP TABLE job"))
    engine.dispose()
    migrate.upgrade(empty_database_url)
    assert check.check(empty_database_url) == ()


def test_an_interrupted_upgrade_keeps_the_guards(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(database_url)
    with engine.connect() as connection:
        assert guards.check(connection) == ()
    engine.dispose()


def test_sqlite_is_put_into_wal_mode(empty_database_url: str) -> None:
    if empty_database_url.startswith("sqlite"):
        migrate.upgrade(empty_database_url)
        with Database(empty_database_url) as database, database.reading() as reader:
            connection = reader.session.connection()
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers")
            }
        assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}
