"""Hands that go around the registry: statements on the database with its guards out of the way."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from registry.db import guards


def tamper(url: str, *statements: str, **values: object) -> None:
    """Run statements with every guard and foreign key off, then put the guards back."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            guards.remove(connection)
            if connection.dialect.name == "postgresql":
                # replica mode silences foreign keys for this transaction
                connection.execute(text("SET LOCAL session_replication_role = replica"))
            for statement in statements:
                wanted = {name: value for name, value in values.items() if f":{name}" in statement}
                connection.execute(text(statement), wanted)
            guards.install(connection)
    finally:
        engine.dispose()
