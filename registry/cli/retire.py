"""`label`, `attest`, `alias`, `yank`, `purge`, `gc`: what is said about a thing, and how its bytes go."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from registry.cli.output import emit
from registry.cli.refs import ReadFile
from registry.cli.state import State, output_option, pass_state
from registry.service.specs import parse_document
from schemas.names import short

DAY_S: Final = 86_400.0


@click.command()
@click.argument("ref")
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE...")
@output_option
@pass_state
def label(state: State, ref: str, labels: tuple[str, ...]) -> None:
    """Set labels on REF; KEY= removes one."""
    pairs: dict[str, str | None] = {}
    for text in labels:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter("write KEY=VALUE", param_hint="KEY=VALUE")
        pairs[key] = value or None
    with state.registry() as registry:
        said = registry.label(ref, pairs)
    emit(said.document(), state.output, [f"labelled {short(said.subject)}"])


@click.command()
@click.argument("ref")
@click.argument("file", type=ReadFile())
@output_option
@pass_state
def attest(state: State, ref: str, file: BinaryIO) -> None:
    """Say of REF what FILE (YAML or JSON) has as fields, such as who tested it and with what result."""
    with state.registry() as registry:
        said = registry.attest(ref, parse_document(file.read()))
    emit(said.document(), state.output, [f"said of {short(said.subject)}: {short(said.statement)}"])


@click.command()
@click.argument("ref")
@click.argument("alias")
@output_option
@pass_state
def alias(state: State, ref: str, alias: str) -> None:
    """Point ALIAS at the version REF (NAME@VERSION)."""
    with state.registry() as registry:
        moved = registry.alias(ref, alias)
    emit(moved.document(), state.output, [f"{moved.name}@{moved.alias} is {moved.name}@{moved.version}"])


@click.command()
@click.argument("ref")
@click.option("--reason", required=True, help="Why; shown to whoever meets it.")
@click.option("--undo", is_flag=True, help="Take an earlier yank back.")
@output_option
@pass_state
def yank(state: State, ref: str, reason: str, undo: bool) -> None:
    """Let nothing new be built on REF; what is live stays live."""
    with state.registry() as registry:
        said = registry.yank(ref, reason, undo=undo)
    word = "no longer yanked" if undo else "yanked"
    emit(said.document(), state.output, [f"{word}: {short(said.subject)}"])


@click.command()
@click.argument("ref")
@click.option("--reason", required=True, help="Why; kept in the tombstone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@pass_state
def purge(state: State, ref: str, reason: str, yes: bool) -> None:
    """Remove the bytes of REF for good; its version is never used again."""
    if not yes:
        click.confirm(f"Remove the bytes of {ref}? This cannot be undone.", abort=True, err=True)
    with state.registry() as registry:
        purged = registry.purge(ref, reason)
    lines = [f"purged {short(purged.digest)}: {len(purged.removed)} blobs removed"]
    emit(purged.document(), state.output, lines)


@click.command()
@click.option("--grace", type=click.FloatRange(min=0), default=DAY_S, show_default=True, help="Seconds to keep.")
@output_option
@pass_state
def gc(state: State, grace: float) -> None:
    """Remove blobs that nothing names, when older than the grace."""
    with state.registry() as registry:
        found = registry.gc(grace)
    lines = [f"{len(found.removed)} blobs removed, {found.bytes} bytes; {found.staging} staging files"]
    emit(found.document(), state.output, lines)


COMMANDS: Final = (label, attest, alias, yank, purge, gc)
