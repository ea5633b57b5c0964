"""Entry point: the console command, and the web application that `registry serve` runs."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import click

from registry.cli.demo.command import demo
from registry.cli.main import cli
from registry.cli.state import State, pass_state
from registry.errors import Problem, UsageProblemError
from registry.wiring import opened

__all__ = ["cli", "main"]


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 for any free port.")
@click.option("--open-reads", is_flag=True, help="Answer reads without a token.")
@pass_state
def serve(state: State, host: str, port: int, open_reads: bool) -> None:
    """Serve the registry over HTTP; writes need a token (`registry token create`)."""
    uvicorn, api = _server_part("uvicorn"), _server_part("registry.api.app")
    with opened(state.settings) as context:
        uvicorn.run(api.create_app(context, open_reads=open_reads), host=host, port=port, log_level="info")


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
