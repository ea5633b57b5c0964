"""What every use case works with, handed in by the wiring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from registry.db import Database
from registry.errors import ProblemError, RefusedError, error_document
from registry.service.composer import Composer
from registry.storage import BlobStore
from schemas.canonical import JsonObject


@dataclass(frozen=True)
class Context:
    """Database, blobs, composer, and who is asking."""

    database: Database
    store: BlobStore
    composer: Composer
    principal: str

    @contextmanager
    def audited(self, action: str, subject: JsonObject) -> Iterator[None]:
        """Leave an audit row when the content is refused; nothing else of it is stored."""
        try:
            yield
        except RefusedError as error:
            self.database.record(f"{action}.refused", self.principal, None, subject | _codes(error))
            raise


def _codes(error: ProblemError) -> JsonObject:
    return {"errors": error_document(error)["errors"]}
