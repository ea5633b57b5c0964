"""Doing what a caller asks for under a key once: the same request again gets the answer it got before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from registry.db import Change, idempotency
from registry.db.session import stamp
from registry.errors import ConflictError
from registry.service.context import Context
from registry.service.task import Task
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import Digest, blob_digest
from schemas.model import Record, validate

R = TypeVar("R", bound=Record)
KEPT_S: Final = 86_400.0
"""How long an answer is kept under its key, in seconds."""


@dataclass(frozen=True)
class Answer(Generic[R]):
    """What a request came to, and whether it is the answer of an earlier one."""

    result: R
    replayed: bool


@dataclass(frozen=True)
class _Asked(Task):
    """Keeps the answer in the transaction that makes it, so that a lost answer can be asked for again."""

    principal: str
    key: str
    request: Digest

    def ending(self, change: Change, result: Record) -> None:
        """See `Task`."""
        idempotency.put(change, self.principal, self.key, self.request, result.document())


def once(
    context: Context, key: str | None, request: JsonObject, model: type[R], work: Callable[[Context], R]
) -> Answer[R]:
    """Do the work of a request unless it was answered under this key; without a key, do it.

    Only answers are kept, never refusals. Of two at once, the one that loses gets the answer of the other.

    Raises:
        RefusedError: `IDEMPOTENCY_KEY_REUSED`, the key belongs to another request.
    """
    if key is None:
        return Answer(work(context), replayed=False)
    asked = _Asked(context.principal, key, blob_digest(canonical_bytes(request)))
    known = _known(context, asked)
    if known is not None:
        return Answer(validate(model, known), replayed=True)
    try:
        result = work(replace(context, task=asked))
    except ConflictError:
        known = _known(context, asked)
        if known is None:
            raise
        return Answer(validate(model, known), replayed=True)
    _keep(context, asked, result)
    return Answer(result, replayed=False)


def sweep(context: Context) -> int:
    """Forget answers older than a day; how many."""

    def work(change: Change) -> int:
        oldest = datetime.fromisoformat(change.now) - timedelta(seconds=KEPT_S)
        return idempotency.sweep(change, stamp(oldest))

    return context.database.change("idempotency.sweep", context.principal, work)


def _known(context: Context, asked: _Asked) -> JsonObject | None:
    with context.database.reading() as reader:
        return idempotency.check(reader, asked.principal, asked.key, asked.request)


def _keep(context: Context, asked: _Asked, result: Record) -> None:
    """For work that had nothing to store, or stored it as something else than its answer."""
    context.database.change("idempotency.keep", context.principal, lambda change: asked.ending(change, result))
