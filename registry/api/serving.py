"""Server processes: one socket, any number of processes that answer on it, limits, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from registry.api import metrics
from registry.api.app import create_app
from registry.api.jobs import ENDING
from registry.api.logs import LogFormat, configure, log
from registry.api.observed import HEAD_BYTES
from registry.errors import Problem, UnavailableError, UsageProblemError
from registry.service.context import Context
from registry.settings import Settings
from registry.wiring import job_queue, opened, webhook_sender

HEAD_S: Final = 20.0
"""How long a connection may take to send the head of a request, the next one as the first, in seconds."""
BACKLOG: Final = 4096
_HEALTH_S: Final = 60


@dataclass(frozen=True)
class Serving:
    """How to serve."""

    settings: Settings
    host: str = "127.0.0.1"
    port: int = 8080
    processes: int = 1
    open_reads: bool = False
    jobs: bool = True
    logs: LogFormat = "console"
    at_once: int = 512
    grace_s: int = 30

    def __call__(self) -> FastAPI:
        """The application of one process of several; its database is closed when the process ends."""
        configure(self.logs)
        _allow_connections()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        stack = ExitStack()
        atexit.register(stack.close)
        return self.application(stack.enter_context(opened(self.settings)))

    def application(self, context: Context) -> FastAPI:
        """The application over a context, with what works in its background."""
        return create_app(
            context,
            open_reads=self.open_reads,
            upload_limit=self.settings.upload_limit,
            at_once=self.at_once,
            runner=job_queue(context) if self.jobs else None,
            sender=webhook_sender(context, self.settings),
        )


class Protocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which no whole head of a request comes in time.

    uvicorn counts idle time after an answer only, and forgets it with the first byte of the next head, so that a
    connection which sends nothing, or a byte now and then, would stay for ever.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._await_head()

    def on_response_complete(self) -> None:
        """Begin to wait for the next head."""
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._await_head()

    def shutdown(self) -> None:
        """Finish what is running, but end what would go on for as long as the caller stays."""
        super().shutdown()
        if self.cycle is not None:
            self.cycle.scope["state"][ENDING] = True

    def _await_head(self) -> None:
        self.loop.call_later(HEAD_S, self._close_idle, self.cycle)

    def _close_idle(self, before: object) -> None:
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()


def serve(serving: Serving) -> None:
    """Serve until SIGTERM or SIGINT; then take no new requests and give running ones `grace_s` seconds.

    Writes the address to stdout once the socket listens.

    Raises:
        UsageProblemError: `PROCESSES_NEED_POSTGRESQL`.
        UnavailableError: `ADDRESS_UNAVAILABLE`, or what opening the registry raises.
    """
    if serving.processes > 1 and serving.settings.database.startswith("sqlite"):
        raise UsageProblemError(_single(serving.processes))
    configure(serving.logs)
    with _listening(serving) as listening:
        if serving.processes == 1:
            _serve_here(serving, listening)
        else:
            _serve_in_processes(serving, listening)


def _serve_here(serving: Serving, listening: socket.socket) -> None:
    _allow_connections()
    with opened(serving.settings) as context:
        server = uvicorn.Server(_config(serving, serving.application(context)))
        # also before uvicorn listens to them, and when it raises them again at its end
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        server.run([listening])


def _serve_in_processes(serving: Serving, listening: socket.socket) -> None:
    with opened(serving.settings), tempfile.TemporaryDirectory(prefix="registry-metrics-") as folder:
        os.environ[metrics.FOLDER] = folder
        Multiprocess(_config(serving, serving), [listening]).run()


def _config(serving: Serving, app: FastAPI | Serving) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, Serving),
        workers=serving.processes,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(HEAD_S),
        timeout_graceful_shutdown=serving.grace_s,
        timeout_worker_healthcheck=_HEALTH_S,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


@contextmanager
def _listening(serving: Serving) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    with socket.socket(family) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((serving.host, serving.port))
        except OSError as error:
            raise UnavailableError(_taken(serving, error)) from error
        made.set_inheritable(True)
        host, port = made.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        made.listen(BACKLOG)
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        log.info("listening", url=url, processes=serving.processes, process=os.getpid())
        yield made


def _allow_connections() -> None:
    """As many open connections as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end_with_parent() -> None:
    """A process whose parent was killed would answer on the socket for ever, and nobody would know."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _single(processes: int) -> Problem:
    return Problem(
        code="PROCESSES_NEED_POSTGRESQL",
        path=("workers",),
        expected="one server process on SQLite",
        observed=str(processes),
        hint="Use --workers 1, or a PostgreSQL database (REGISTRY_DATABASE_URL=postgresql+psycopg://…).",
    )


def _taken(serving: Serving, error: OSError) -> Problem:
    return Problem(
        code="ADDRESS_UNAVAILABLE",
        path=("port",),
        expected=f"to listen on {serving.host} port {serving.port}",
        observed=error.strerror or str(error),
        hint="Stop what listens there, or choose another --host or --port (0 for any free one).",
    )
