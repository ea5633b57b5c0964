"""Reading commands: `ls`, `show`, `diff`, `history`, `lineage`."""

from __future__ import annotations

import json
from typing import Final, Literal

import click
from rich.tree import Tree

from registry.cli.output import console, emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.db.manifests import ManifestFilter
from registry.service.results import Lineage, LineageNode
from schemas.names import short

KINDS: Final = (
    "bases", "adapters", "routers", "continual-states", "compositions", "conversions", "candidates", "admissions",
    "resolved-routes", "transactions", "evaluations", "compute-contracts", "publications", "statements",
)  # fmt: skip


@click.command()
@click.argument("kind", required=False, metavar="[KIND]", type=click.Choice(KINDS))
@click.option("--base", help="Only what belongs to this base (digest).")
@click.option("--method", help="Only compositions of this method.")
@click.option("--family", help="Only adapters of this family.")
@click.option("--outcome", type=click.Choice(["admitted", "conditional", "refused"]), help="Only such admissions.")
@click.option("--label", metavar="KEY=VALUE", multiple=True, help="Only what carries this label; repeatable.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--after", metavar="TOKEN", help="Continue a list.")
@output_option
@pass_state
def ls(
    state: State,
    kind: str | None,
    base: str | None,
    method: str | None,
    family: str | None,
    outcome: str | None,
    label: tuple[str, ...],
    limit: int,
    after: str | None,
) -> None:
    """List what is registered, newest first.

    KIND is one of bases, adapters, routers, continual-states, compositions, conversions, candidates, admissions,
    resolved-routes, transactions, evaluations, compute-contracts, publications, statements.
    """
    with state.registry() as registry:
        wanted = ManifestFilter(
            kind=kind.removesuffix("s").replace("-", "_") if kind else None,
            base=registry.show(base).digest if base else None,
            family=family,
            method=method,
            outcome=outcome,
            labels=tuple(_label(text) for text in label),
        )
        page = registry.ls(wanted, after, limit)
    rows = [item.document() for item in page.items]
    emit_rows(rows, state.output, ("kind", "refs", "digest", "base", "family", "method", "outcome", "state"))
    if page.next is not None:
        click.echo(f"more: --after {page.next}", err=True)


@click.command()
@click.argument("ref")
@output_option
@pass_state
def show(state: State, ref: str) -> None:
    """One manifest with its names, files and measurement."""
    with state.registry() as registry:
        shown = registry.show(ref)
    lines = [f"{shown.kind}  {', '.join(shown.refs) or '-'}", shown.digest]
    lines += [f"{key}  {value}" for key, value in (("evidence", shown.evidence), ("binding", shown.binding)) if value]
    lines += [f"file  {entry.path}  {entry.size}  {short(entry.blob)}" for entry in shown.files]
    lines.append(json.dumps(shown.manifest, indent=2))
    emit(shown.document(), state.output, lines)


@click.command()
@click.argument("left")
@click.argument("right")
@output_option
@pass_state
def diff(state: State, left: str, right: str) -> None:
    """Fields in which two manifests differ."""
    with state.registry() as registry:
        rows = [item.document() for item in registry.diff(left, right)]
    emit_rows(rows, state.output, ("path", "left", "right"))


@click.command()
@click.argument("channel")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@output_option
@pass_state
def history(state: State, channel: str, limit: int) -> None:
    """Generations of a channel, newest first."""
    with state.registry() as registry:
        rows = [item.document() for item in registry.history(channel, limit=limit)]
    columns = ("generation", "live", "refs", "reason", "restored", "publication", "kv_identity")
    emit_rows(rows, state.output, columns)


@click.command()
@click.argument("ref")
@click.option("--up", "direction", flag_value="up", default="up", help="Ancestors (default).")
@click.option("--down", "direction", flag_value="down", help="Descendants.")
@click.option("--live", is_flag=True, help="Also the channels that serve it, or something made of it.")
@output_option
@pass_state
def lineage(state: State, ref: str, direction: Literal["up", "down"], live: bool) -> None:
    """What REF was made of, or what was made of it."""
    with state.registry() as registry:
        found = registry.lineage(ref, direction, live=live)
    if state.output != "table":
        emit(found.document(), state.output, ())
        return
    console().print(_tree(found), markup=False)
    if live:
        click.echo(f"live: {', '.join(found.live) or 'nowhere'}")


def _tree(found: Lineage) -> Tree:
    """The lineage as a tree; a node reached twice is drawn whole once and named after that."""
    nodes = {node.digest: node for node in found.nodes}
    steps: dict[str, list[tuple[str, str]]] = {}
    for link in found.links:
        near, far = (link.child, link.parent) if found.direction == "up" else (link.parent, link.child)
        steps.setdefault(near, []).append((link.role, far))
    tree = Tree(_label_of(nodes[found.root]))
    seen = {found.root}

    def grow(branch: Tree, digest: str) -> None:
        for role, far in steps.get(digest, ()):
            twig = branch.add(f"{role}: {_label_of(nodes[far])}" + (" (above)" if far in seen else ""))
            if far not in seen:
                seen.add(far)
                grow(twig, far)

    grow(tree, found.root)
    return tree


def _label_of(node: LineageNode) -> str:
    return f"{node.kind} {', '.join(node.refs) or short(node.digest)}"


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.BadParameter("write KEY=VALUE", param_hint="--label")
    return key, value


COMMANDS: Final = (ls, show, diff, history, lineage)
