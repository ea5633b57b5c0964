"""Running the demo's commands as a user would, each shown before it runs."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True)
class Term:
    """One member directory and its coefficient."""

    directory: Path
    weight: float


@dataclass(frozen=True)
class Shell:
    """A folder that holds one registry, and commands run against it; `root` is the `registry` command itself."""

    folder: Path
    root: click.Command

    def title(self, text: str) -> None:
        """A headline between steps."""
        click.secho(f"\n== {text}", bold=True)

    def registry(self, *arguments: str) -> None:
        """Run `registry …` in this process, showing command and output; a failure ends the demo."""
        click.secho(f"$ {shlex.join(['registry', *arguments])}", fg="cyan")
        code = self.root.main(list(arguments), prog_name="registry", standalone_mode=False, obj=None)
        if code:
            raise click.exceptions.Exit(code)

    def output(self, *arguments: str) -> str:
        """Run `registry …` and return what it prints."""
        said = io.StringIO()
        with redirect_stdout(said):
            self.root.main(list(arguments), prog_name="registry", standalone_mode=False, obj=None)
        return said.getvalue().strip()

    def run(self, shown: Sequence[str], command: Sequence[str]) -> None:
        """Run any command, shown in a short form."""
        click.secho(f"$ {shlex.join(shown)}", fg="cyan")
        sys.stdout.flush()
        done = subprocess.run(command, env=self.environment, check=False)  # noqa: S603 - our own words
        if done.returncode:
            raise click.exceptions.Exit(done.returncode)

    def check(self, directory: Path, base: Path, terms: Sequence[Term]) -> None:
        """Compare the exported directory with base + weighted deltas on the real model."""
        module = "registry.cli.demo.peft_check"
        arguments = [str(directory), str(base), *(f"{term.directory}={term.weight}" for term in terms)]
        shown = ["python", "-m", module, directory.name, "MODEL", *(f"{t.directory.name}={t.weight}" for t in terms)]
        self.run(shown, [sys.executable, "-m", module, *arguments])

    def spec(self, name: str, members: Sequence[tuple[str, float]]) -> str:
        """Write and show a composition spec; returns its path."""
        document = {
            "name": name,
            "base": "minilm",
            "method": "cat",
            "space": "delta",
            "members": [{"ref": ref, "weight": weight} for ref, weight in members],
        }
        path = self.folder / f"{name}-{len(members)}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        click.echo(json.dumps(document))
        return str(path)

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, made quiet for the model libraries."""
        return {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
