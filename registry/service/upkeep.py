"""What a registry forgets by itself: jobs, messages to webhooks and kept answers, once they have ended long ago.

These rows lie in working tables. What a job made stays: its manifests, measurements and run records are history.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from registry.db import Reader, jobs, webhooks
from registry.db.session import stamp
from registry.service import once
from registry.service.context import Context

KEPT_S: Final = 7 * 86_400.0
"""How long a job or a message is kept after it ended, in seconds; longer than an answer that may name the job."""
BATCH: Final = 500
"""Jobs forgotten at a time."""


def sweep(context: Context, forget: Callable[[list[str]], object]) -> bool:
    """Forget what is due, of jobs one batch, and remove what killed processes were working on; True when there may be
    more.

    `forget` is given the ids first, for what the queue knows of these jobs: cut off in between, they are swept again.
    """
    context.store.scratch.sweep()
    messages(context)
    once.sweep(context)
    with context.database.reading() as reader:
        ids = list(jobs.ended(reader, _long_ago(reader), BATCH))
    if ids:
        forget(ids)
        context.database.change("job.sweep", context.principal, lambda change: jobs.remove(change, ids))
    return len(ids) == BATCH


def messages(context: Context) -> int:
    """Forget messages that were delivered or given up long ago; how many."""
    return context.database.change(
        "webhook.sweep", context.principal, lambda change: webhooks.sweep(change, _long_ago(change))
    )


def _long_ago(reader: Reader) -> str:
    return stamp(datetime.fromisoformat(reader.now) - timedelta(seconds=KEPT_S))
