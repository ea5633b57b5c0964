"""What every use case works with, handed in by the wiring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from registry.db import Change, Database
from registry.errors import ProblemError, RefusedError, error_document
from registry.service.composer import Composer
from registry.service.grants import EVERYTHING, Grants, Permission
from registry.service.task import Task
from registry.storage import BlobStore
from schemas.canonical import JsonObject
from schemas.model import Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Context:
    """Database, blobs, composer, who is asking, what the caller may do (everything, unless a token says less), and the
    task that the use case is done for."""

    database: Database
    store: BlobStore
    composer: Composer
    principal: str
    grants: Grants = EVERYTHING
    task: Task = field(default_factory=Task)

    def conclude(self, action: str, work: Callable[[Change], R]) -> R:
        """Store what a use case came to, in one transaction under the caller's name."""

        def concluded(change: Change) -> R:
            result = work(change)
            self.task.ending(change, result)
            return result

        return self.database.change(action, self.principal, concluded)

    def require(self, permission: Permission, *subjects: str) -> None:
        """Pass when the caller may do this to these names or channels. Raises NotAllowedError `PERMISSION_MISSING`."""
        self.grants.require(permission, *subjects)

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
