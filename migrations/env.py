"""Runs migrations on the connection `registry.db.migrate` hands over, inside its transaction."""

from alembic import context

from registry.db.rows import Row

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Row.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
