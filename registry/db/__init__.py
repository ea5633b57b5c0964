"""Rows, repositories and the one place that commits, over SQLite and PostgreSQL.

`Database` opens transactions; the modules beside it are small repositories: functions that take a `Reader` or a
`Change`.
"""

from registry.db.database import Database
from registry.db.session import Change, Reader

__all__ = ["Change", "Database", "Reader"]
