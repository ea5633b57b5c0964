"""Handing out: `convert`, `export`, `sync`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeVar

import click

from registry.cli.bars import bytes_bar
from registry.cli.exits import tell
from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state
from registry.service.engines import ENGINE_NAMES, EngineName
from registry.service.export import PROFILES, Form, Profile
from registry.service.handed import Conversion, Synced
from registry.service.sync import Watcher
from registry.service.wishes import Wish
from schemas.conversion import Rule, Store
from schemas.names import short

F = TypeVar("F", bound=Callable[..., Any])

TARGETS: Final[dict[str, tuple[Rule, Store | None]]] = {
    "portable": ("portable", None),
    "compact": ("compact", None),
    "balanced": ("balanced", None),
    "plain-lora": ("plain_lora", None),
    "rebase": ("rebase", None),
    "dense": ("dense", None),
    "float64": ("cast", "F64"),
    "float32": ("cast", "F32"),
    "bfloat16": ("cast", "BF16"),
    "float16": ("cast", "F16"),
}


@click.command()
@click.argument("ref")
@click.option("--to", "target", type=click.Choice(list(TARGETS)), required=True, help="What to make of it.")
@click.option("--name", help="Name to register the result under.")
@click.option("--initial", metavar="REF", help="The snapshot from before the training (portable).")
@click.option("--base", metavar="REF", help="The other base (rebase).")
@click.option("--acknowledge", metavar="CODE", multiple=True, help="Accept a condition by its code.")
@output_option
@pass_state
def convert(
    state: State,
    ref: str,
    target: str,
    name: str | None,
    initial: str | None,
    base: str | None,
    acknowledge: tuple[str, ...],
) -> None:
    """Make another adapter of REF, or a model with REF in its weights, and record how.

    \b
      portable    native factors (PiSSA and its kin) minus their --initial snapshot, at twice the rank
      compact     AdaLoRA's triplets as pairs, the scale baked in
      balanced    the same deltas with both factors of one size
      plain-lora  scale baked in, one rank, zeros where servers fuse layers
      rebase      the same factors on another --base; conditional
      dense       the base with the adapter in its weights, held as a base of its own
      float32 …   the factors in another dtype
    """
    rule, store = TARGETS[target]
    wish = Wish(rule, name, initial=initial, base=base, store=store, acknowledge=frozenset(acknowledge))
    with state.registry() as registry:
        made = registry.convert(ref, wish)
    emit(made.document(), state.output, _conversion_lines(made))


def form_options(command: F) -> F:
    """The options that say how an adapter is handed out."""
    for option in (
        click.option("--max-lora-rank", type=click.IntRange(1), help="The rank limit that engine was started with."),
        click.option("--engine", type=click.Choice(ENGINE_NAMES), help="Check what this engine can load first."),
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="peft",
            show_default=True,
            help="peft: as the adapter is; plain-lora: a recorded child that readers of alpha / r understand; "
            "dense: the base's own files with the deltas added.",
        ),
        click.option(
            "--base-name", required=True, help="base_model_name_or_path to write: where the server finds the base."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("ref")
@click.argument("directory", type=click.Path(path_type=Path))
@form_options
@click.option("--named", is_flag=True, help="Write inside DIRECTORY, under a name of generation and digest.")
@output_option
@pass_state
def export(
    state: State,
    ref: str,
    directory: Path,
    base_name: str,
    profile: Profile,
    engine: EngineName | None,
    max_lora_rank: int | None,
    named: bool,
) -> None:
    """Write REF as a directory that servers load; nothing is ever written over."""
    form = Form(base_name, profile, engine, max_lora_rank)
    with state.registry() as registry, bytes_bar("fetching") as progress:
        exported = registry.export(ref, directory, form, named=named, progress=progress)
    lines = [f"exported {short(exported.adapter)} to {exported.directory}"]
    lines += [f"  {entry.path}  {entry.size}  {entry.sha256}" for entry in exported.files]
    emit(exported.document(), state.output, lines)


@click.command()
@click.argument("channel")
@click.argument("directory", type=click.Path(path_type=Path))
@form_options
@click.option("--watch", is_flag=True, help="Follow the channel until SIGTERM or Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.05, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@output_option
@pass_state
def sync(
    state: State,
    channel: str,
    directory: Path,
    base_name: str,
    profile: Profile,
    engine: EngineName | None,
    max_lora_rank: int | None,
    watch: bool,
    interval: float,
) -> None:
    """Keep DIRECTORY/live at the live generation of CHANNEL, switched in one step."""
    form = Form(base_name, profile, engine, max_lora_rank)
    with state.registry() as registry:
        if not watch:
            with bytes_bar("fetching") as progress:
                synced = registry.sync(channel, directory, form, progress=progress)
            _tell(state, synced)
            return
        watcher = Watcher(
            switched=lambda synced: _tell(state, synced),
            failed=lambda error: tell(error, as_json=state.output != "table"),
        )
        with _stopped_by_signals() as stop:
            registry.watch(channel, directory, form, watcher, stop, interval)


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set, so that the round at work ends first."""
    stop = Event()
    kept = {
        number: signal.signal(number, lambda _number, _frame: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _tell(state: State, synced: Synced) -> None:
    word = "switched to" if synced.changed else "is at"
    lines = [
        f"{synced.live} {word} {synced.channel}@g{synced.generation}",
        f"  {synced.directory}  kv_identity {short(synced.kv_identity)}",
    ]
    emit(synced.document(), state.output, lines)


def _conversion_lines(made: Conversion) -> list[str]:
    name = "" if made.name is None else f"{made.name}@{made.version}  "
    if made.conversion is None:
        return [f"in that form already: {name}{short(made.output)}"]
    word = "converted" if made.created else "already converted"
    kind = "base" if made.rule == "dense" else "adapter"
    lines = [f"{word}: {name}{short(made.conversion)}", f"output {kind}: {short(made.output)}"]
    total = (made.measurement or {}).get("total")
    if isinstance(total, dict):
        lines.append("  ".join(f"{figure} {value}" for figure, value in sorted(total.items())))
    return lines


COMMANDS: Final = (convert, export, sync)
