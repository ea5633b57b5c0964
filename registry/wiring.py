"""Composition root: from settings to a context with database, store and composer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from registry.db import Database, check, migrate
from registry.errors import Problem, UnavailableError, UsageProblemError
from registry.service.composer import (
    Additivity,
    Composed,
    ComposeOrder,
    Composer,
    Converted,
    ConvertOrder,
    Progress,
    ReleasedWeight,
    ReleaseOrder,
    RouteOrder,
    Stored,
)
from registry.service.context import Context
from registry.settings import Settings
from registry.storage import BlobStore, open_store
from schemas.canonical import JsonObject

if TYPE_CHECKING:
    from registry.service.jobs import Runner
    from registry.service.sender import Sender


@dataclass(frozen=True)
class LazyComposer:
    """Loads the worker room, and torch with it, when the first composition comes."""

    workers: int
    memory_limit: int

    def compose(self, order: ComposeOrder, folder: Path, progress: Progress | None = None) -> Composed:
        """See `Composer`."""
        return self._composer().compose(order, folder, progress)

    def plan(self, order: ComposeOrder) -> JsonObject:
        """See `Composer`."""
        return self._composer().plan(order)

    def convert(self, order: ConvertOrder, folder: Path) -> Converted:
        """See `Composer`."""
        return self._composer().convert(order, folder)

    def release(self, order: ReleaseOrder) -> tuple[ReleasedWeight, ...]:
        """See `Composer`."""
        return self._composer().release(order)

    def difference(self, left: Stored, right: Stored) -> float:
        """See `Composer`."""
        return self._composer().difference(left, right)

    def additivity(self, order: RouteOrder) -> Additivity:
        """See `Composer`."""
        return self._composer().additivity(order)

    def _composer(self) -> Composer:
        room = import_module("registry.worker.composer")
        return cast(Composer, room.LocalComposer(self.workers, self.memory_limit))


def initialise(settings: Settings) -> None:
    """Create home, database and store, or bring them up to date; safe to repeat."""
    try:
        settings.home_path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            Problem(
                code="HOME_UNUSABLE",
                expected="a folder that can be made and written",
                observed=str(error),
                hint="Choose another with --home or REGISTRY_HOME.",
            )
        ) from error
    migrate.upgrade(settings.database)
    _store(settings)


@contextmanager
def opened(settings: Settings, principal: str | None = None) -> Iterator[Context]:
    """A context over an initialised registry; the database is closed at the end.

    Raises:
        UnavailableError: the schema is missing, older or newer than the program.
    """
    migrate.require(settings.database)
    with Database(settings.database) as database:
        yield Context(
            database=database,
            store=_store(settings),
            composer=LazyComposer(settings.workers, settings.memory_limit),
            principal=principal or settings.principal,
        )


def _store(settings: Settings) -> BlobStore:
    return open_store(settings.store, cache=settings.cache, cache_limit=settings.cache_limit)


def job_queue(context: Context) -> Runner:
    """What runs jobs in a process: the durable queue, loaded here.

    Raises:
        UsageProblemError: `EXTRA_MISSING`.
    """
    try:
        room = import_module("registry.worker.queue")
    except ImportError as error:
        raise UsageProblemError(
            Problem(
                code="EXTRA_MISSING",
                expected="the extra `jobs`",
                observed=str(error),
                hint="pip install 'adapter-registry[jobs]', or run without jobs: `registry serve --no-jobs`.",
            )
        ) from error
    return cast("Runner", room.JobQueue(context))


def webhook_sender(context: Context, settings: Settings) -> Sender:
    """What sends to webhooks in a server process."""
    from registry.service.sender import Sender  # heavy: HTTP, which only servers speak

    return Sender(context, private=settings.webhook_private)


def current_schema(settings: Settings) -> str | None:
    """The schema revision of the database; None before `registry init`."""
    return migrate.current(settings.database)


def check_database(settings: Settings) -> tuple[Problem, ...]:
    """What is wrong with schema, guards or the database file."""
    return check.check(settings.database)
