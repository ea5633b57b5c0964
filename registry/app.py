"""Entry point: the console command, and the web application that `registry serve` runs."""

from __future__ import annotations

import logging
import signal
from importlib import import_module
from threading import Event
from types import ModuleType

import click

from registry.cli.demo.command import demo
from registry.cli.main import cli
from registry.cli.state import State, pass_state
from registry.errors import Problem, UsageProblemError
from registry.wiring import job_queue, opened

__all__ = ["cli", "main"]


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 for any free port.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Server processes.")
@click.option("--open-reads", is_flag=True, help="Answer reads without a token.")
@click.option("--no-jobs", is_flag=True, help="Leave compositions, conversions and exports to `registry worker`.")
@click.option("--log", type=click.Choice(["console", "json"]), default="console", show_default=True, help="On stderr.")
@click.option(
    "--at-once", type=click.IntRange(1), default=512, show_default=True, help="Requests a process answers at once."
)
@click.option(
    "--grace", type=click.IntRange(1), default=30, show_default=True, help="Seconds that requests have at the end."
)
@pass_state
def serve(state: State, /, no_jobs: bool, **options: str | int | bool) -> None:
    """Serve the registry over HTTP; writes need a token (`registry token create`).

    The address is written to stdout once the server listens. SIGTERM or SIGINT ends it: running requests are finished.
    """
    serving = _server_part("registry.api.serving")
    names = {"workers": "processes", "log": "logs", "grace": "grace_s"}
    chosen = {names.get(option, option): value for option, value in options.items()}
    serving.serve(serving.Serving(settings=state.local, jobs=not no_jobs, **chosen))


@cli.command()
@pass_state
def worker(state: State) -> None:
    """Run jobs that servers take in: any number of workers on one PostgreSQL, one process at a time on SQLite.

    The first SIGTERM or SIGINT lets what runs finish within ten seconds, or hands it back to the others.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with opened(state.local) as context:
        queue = job_queue(context)
        queue.start()
        while queue.alive and not stop.wait(1.0):
            pass
        queue.stop()
    if not stop.is_set():
        raise SystemExit(1)


cli.add_command(demo)


def main() -> None:
    """The `registry` command."""
    cli(prog_name="registry")


def _server_part(name: str) -> ModuleType:
    """A module that only the extra `server` brings; loaded when serving, so that other commands start fast."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageProblemError(
            Problem(
                code="EXTRA_MISSING",
                expected="the extra `server`",
                observed=str(error),
                hint="pip install 'adapter-registry[server]'",
            )
        ) from error


if __name__ == "__main__":
    main()
