"""Lineage: who came from whom. The database walks the edges; the cost follows the answer, not the registry."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import CTE, literal, select
from sqlalchemy.orm import InstrumentedAttribute

from registry.db import channels
from registry.db.problems import found
from registry.db.rows import EdgeRow, GenerationArtifactRow, GenerationRow, ManifestRow
from registry.db.rows.core import BYTEWISE
from registry.db.session import Reader, batches
from schemas.digests import Digest

Direction = Literal["up", "down"]
LIMIT: Final = 10_000


@dataclass(frozen=True)
class Node:
    """A manifest in a lineage; `depth` is the fewest steps from the root."""

    digest: Digest
    kind: str
    depth: int


@dataclass(frozen=True)
class Edge:
    """`child` was made from `parent` in a role; `position` orders parents of one role."""

    child: Digest
    parent: Digest
    role: str
    position: int


@dataclass(frozen=True)
class Lineage:
    """The root, everything reached from it (nearest first), and the edges between them.

    `truncated` says that more was reached than the limit allows.
    """

    root: Digest
    direction: Direction
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    truncated: bool


def ancestors(reader: Reader, digest: Digest, limit: int = LIMIT) -> Lineage:
    """What a manifest was made from, directly and indirectly. Raises NotFoundError `MANIFEST_UNKNOWN`."""
    return _lineage(reader, digest, "up", limit)


def descendants(reader: Reader, digest: Digest, limit: int = LIMIT) -> Lineage:
    """What was made from a manifest, directly and indirectly. Raises NotFoundError `MANIFEST_UNKNOWN`."""
    return _lineage(reader, digest, "down", limit)


def live(reader: Reader, digest: Digest) -> tuple[GenerationRow, ...]:
    """The live generations that contain a manifest or anything made from it, by channel."""
    reached = frozenset(reader.all(select(_reached(digest, "down").c.digest)))
    touched = select(GenerationArtifactRow.channel).distinct()
    names = frozenset(reader.chosen(touched, GenerationArtifactRow.artifact, reached))
    heads = (channels.at_head(reader, channel) for channel in sorted(names))
    return tuple(head for head in heads if reached.intersection(head.artifacts))


def _kinds(reader: Reader, digests: Iterable[Digest]) -> dict[Digest, str]:
    """The kind of each manifest; asked for by key, for no planner can tell how many a walk reaches."""
    kinds = select(ManifestRow.digest, ManifestRow.kind)
    found = (reader.connection.execute(kinds.where(ManifestRow.digest.in_(batch))).all() for batch in batches(digests))
    return {digest: kind for rows in found for digest, kind in rows}


def _reached(digest: Digest, direction: Direction) -> CTE:
    here, there = _ends(direction)
    reached = select(literal(digest, BYTEWISE).label("digest")).cte("reached", recursive=True)
    # UNION, not UNION ALL: each manifest is visited once, whatever the number of paths (or a cycle)
    return reached.union(select(there).join(reached, here == reached.c.digest))


def _ends(direction: Direction) -> tuple[InstrumentedAttribute[str], InstrumentedAttribute[str]]:
    return (EdgeRow.child, EdgeRow.parent) if direction == "up" else (EdgeRow.parent, EdgeRow.child)


def _lineage(reader: Reader, digest: Digest, direction: Direction, limit: int) -> Lineage:
    reached = reader.all(select(_reached(digest, direction).c.digest).limit(limit + 1))
    kinds = _kinds(reader, reached)
    found(kinds.get(digest), "MANIFEST_UNKNOWN", f"a manifest {digest}", "List what is registered with `registry ls`.")
    truncated = len(kinds) > limit
    edges = _edges(reader, direction, frozenset(kinds))
    steps = [(edge.child, edge.parent) if direction == "up" else (edge.parent, edge.child) for edge in edges]
    depths = _depths(digest, steps)
    order = sorted(depths, key=lambda item: (depths[item], item))
    return Lineage(
        root=digest,
        direction=direction,
        nodes=tuple(Node(item, kinds[item], depths[item]) for item in order),
        edges=tuple(sorted(edges, key=lambda edge: (edge.child, edge.role, edge.position, edge.parent))),
        truncated=truncated,
    )


def _edges(reader: Reader, direction: Direction, reached: frozenset[Digest]) -> list[Edge]:
    """The edges between reached manifests."""
    here, _ = _ends(direction)
    columns = select(EdgeRow.child, EdgeRow.parent, EdgeRow.role, EdgeRow.position)
    between = (
        row for batch in batches(reached) for row in reader.connection.execute(columns.where(here.in_(batch))).all()
    )
    return [Edge(*row) for row in between if row[0] in reached and row[1] in reached]


def _depths(root: Digest, steps: Iterable[tuple[Digest, Digest]]) -> dict[Digest, int]:
    """Fewest steps from the root to each manifest, breadth first."""
    following: dict[Digest, list[Digest]] = {}
    for here, there in steps:
        following.setdefault(here, []).append(there)
    depths, queue = {root: 0}, deque([root])
    while queue:
        here = queue.popleft()
        for there in following.get(here, ()):
            if there not in depths:
                depths[there] = depths[here] + 1
                queue.append(there)
    return depths
