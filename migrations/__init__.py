"""The schema history, one for SQLite and PostgreSQL."""
