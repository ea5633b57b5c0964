"""`registry method ls|show`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.errors import NotFoundError, Problem
from schemas.canonical import JsonObject
from schemas.catalogue.methods import Claim, Method, methods
from schemas.catalogue.methods import method as find
from validators import refused_form


@click.group()
def method() -> None:
    """The catalogue of methods: what each is, what it must save, what it is confused with; needs no registry."""


@method.command("ls")
@output_option
@pass_state
def ls(state: State) -> None:
    """Every row: what the key names, its lane, whether adapters of it are composed, and its witness."""
    rows = [_row(row) for row in methods().values()]
    emit_rows(rows, state.output, ("key", "name", "kind", "lane", "composed", "oracle"))


@method.command("show")
@click.argument("key")
@output_option
@pass_state
def show(state: State, key: str) -> None:
    """The row KEY: what paper and code say, what has to be stored, what is shown and what must not be confused."""
    row = find(key)
    if row is None:
        raise NotFoundError(
            Problem(
                code="METHOD_KEY_UNKNOWN",
                path=("key",),
                expected="a key of the catalogue",
                observed=key[:120],
                hint="`registry method ls` shows all of them.",
            )
        )
    emit(
        row.document(),
        state.output,
        [f"{row.key}  {row.name}", *(f"{label:<14}  {text}" for label, text in lines(row))],
    )


def _row(row: Method) -> JsonObject:
    return {
        "key": row.key,
        "name": row.name,
        "kind": row.kind,
        "lane": row.lane,
        "composed": composed(row),
        "oracle": row.oracle,
    }


def composed(row: Method) -> str | None:
    """Whether adapters of a family are composed, or the code that refuses them; null for what is no family."""
    if row.contract is None:
        return None
    return refused_form(row.contract) or "yes"


def lines(row: Method) -> list[tuple[str, str]]:
    """Everything a row says, label by label."""
    place = row.sections if isinstance(row.sections, str) else ", ".join(row.sections)
    found = [("kind", row.kind), ("lane", row.lane or "none"), ("documents", place.replace("_", " "))]
    if row.axes is not None:
        found.append(("axes", ", ".join(f"{axis} {_words(value)}" for axis, value in row.axes.document().items())))
    found.append(("paper", f"{row.paper.source}: {row.paper.says}"))
    if row.code is not None:
        found.append(("pinned code", f"{row.code.source}: {row.code.says}"))
    found.append(("must save", ", ".join(row.state)))
    found += [("not to confuse", text) for text in row.confused]
    found += [(claim.evidence.replace("_", " "), _claim(claim)) for claim in row.claims]
    found.append(("witness", row.oracle or "none: a named alternative"))
    if row.contract is not None:
        found += [("manifest", _contract(row)), ("composed", composed(row) or "")]
    return found


def _claim(claim: Claim) -> str:
    witness = claim.witness
    return claim.claim if witness is None else f"{claim.claim} ({witness.oracle}: {witness.check})"


def _contract(row: Method) -> str:
    assert row.contract is not None
    document = row.contract.document()
    return ", ".join(f"{name} {_words(value)}" for name, value in document.items() if value not in ([], False))


def _words(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value).lower()


COMMANDS: Final = (method,)
