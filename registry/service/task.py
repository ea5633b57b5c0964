"""The work of a use case as whoever waits for it sees it: files made once, progress, an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from registry.db import Change
from schemas.canonical import JsonObject
from schemas.model import Record


class Task:
    """Work for a caller who waits beside it: nothing is remembered, and nobody calls it off."""

    def progress(self, done: int, total: int, what: str) -> None:
        """So much is done of so many `what`. Raises CancelledError when the work was called off."""

    def file(self, _path: Path, make: Callable[[], JsonObject]) -> JsonObject:
        """Make a file once: `make` writes it and says of it what is needed later.

        A job keeps both, so that another worker finds the file and what was said of it without making it again.
        """
        return make()

    def ending(self, change: Change, result: Record) -> None:
        """The result is being stored in this transaction. Raises CancelledError to undo it."""
