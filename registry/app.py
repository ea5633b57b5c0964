"""Entry point: the console command, and the web application that `registry serve` runs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import click

from registry.cli.main import cli, loading
from registry.cli.state import State, pass_state
from registry.errors import Problem, UsageProblemError

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


def main() -> None:
    """The `registry` command."""
    cli(prog_name="registry")


def _server_part(name: str) -> ModuleType:
    """A module that only the extra `server` brings; loaded when serving, so that other commands start fast."""
    try:
        with loading():
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
