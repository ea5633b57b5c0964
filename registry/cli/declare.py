"""`registry add …` for what is written by hand: routers, continual states, contracts, routes."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

import click

from registry.cli.refs import ReadFile
from registry.cli.register import add, tell
from registry.cli.state import State, output_option, pass_state
from registry.service.specs import parse_document

NAME: Final = click.option("--name", required=True, help="Name to register it under.")
FILE: Final = click.argument("file", type=ReadFile())


@add.command("compute-contract")
@FILE
@NAME
@output_option
@pass_state
def add_compute_contract(state: State, file: BinaryIO, name: str) -> None:
    """Register the compute contract in FILE (YAML or JSON): what a conditional base routes, in 21 fields.

    `contract` is the name of a built-in contract or the 21 fields; `parameters` are its figures.
    """
    with state.registry() as registry:
        added = registry.add_compute_contract(parse_document(file.read()), name)
    tell(state, added)


@add.command("router")
@FILE
@click.option("--tensors", type=click.Path(path_type=Path), help="The safetensors file that holds its tensors.")
@NAME
@output_option
@pass_state
def add_router(state: State, file: BinaryIO, tensors: Path | None, name: str) -> None:
    """Register the router in FILE (YAML or JSON): its pool, its whole policy, and the role of each tensor."""
    with state.registry() as registry:
        added = registry.add_router(parse_document(file.read()), name, tensors)
    tell(state, added)


@add.command("continual-state")
@FILE
@NAME
@output_option
@pass_state
def add_continual_state(state: State, file: BinaryIO, name: str) -> None:
    """Register the continual state in FILE (YAML or JSON): the state after a task, over those before it."""
    with state.registry() as registry:
        added = registry.add_continual_state(parse_document(file.read()), name)
    tell(state, added)


@add.command("resolved-route")
@FILE
@NAME
@output_option
@pass_state
def add_resolved_route(state: State, file: BinaryIO, name: str) -> None:
    """Register the resolved route in FILE (YAML or JSON): one request's choices, as they were made."""
    with state.registry() as registry:
        added = registry.add_resolved_route(parse_document(file.read()), name)
    tell(state, added)


@add.command("transaction")
@FILE
@NAME
@output_option
@pass_state
def add_transaction(state: State, file: BinaryIO, name: str) -> None:
    """Register the transaction in FILE (YAML or JSON): candidate, route, execution and cache of a request."""
    with state.registry() as registry:
        added = registry.add_transaction(parse_document(file.read()), name)
    tell(state, added)


@add.command("evaluation")
@FILE
@NAME
@output_option
@pass_state
def add_evaluation(state: State, file: BinaryIO, name: str) -> None:
    """Register the evaluation in FILE (YAML or JSON): a frozen design, its cells, and what was declared before."""
    with state.registry() as registry:
        added = registry.add_evaluation(parse_document(file.read()), name)
    tell(state, added)


COMMANDS: Final = (add,)
