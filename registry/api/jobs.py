"""The thread that runs queued compositions inside a server process."""

from __future__ import annotations

import threading
import uuid
from typing import Final

from registry.errors import UnavailableError
from registry.service import jobs
from registry.service.context import Context

IDLE_S: Final = 1.0


class JobRunner:
    """Claims jobs one after another; `wake` after a submission saves the idle wait."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._name = f"server-{uuid.uuid4().hex[:12]}"
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="jobs", daemon=True)

    def start(self) -> None:
        """Start claiming."""
        self._thread.start()

    def wake(self) -> None:
        """There may be a job."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the running job and stop."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                found = jobs.run_next(self._context, self._name)
            except UnavailableError:
                found = False
            if not found:
                self._wake.wait(IDLE_S)
                self._wake.clear()
