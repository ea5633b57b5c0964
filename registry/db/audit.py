"""Reading the audit events."""

from __future__ import annotations

from sqlalchemy import select

from registry.db import chain, paging
from registry.db.chain import AuditHead
from registry.db.paging import Page
from registry.db.rows import AuditEventRow
from registry.db.session import Reader

__all__ = ["AuditHead", "head", "page"]


def head(reader: Reader) -> AuditHead | None:
    """The newest event. Its hash, noted elsewhere, later shows whether the history up to it is still the same."""
    return chain.head(reader.connection)


def page(reader: Reader, after: str | None = None, limit: int = 50) -> Page[AuditEventRow]:
    """One page of events, newest first."""
    return paging.page(reader, select(AuditEventRow), (AuditEventRow.sequence,), after, limit, newest_first=True)
