"""Lineage: who came from whom. The database walks the edges; the cost follows the answer, not the registry."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, NamedTuple, get_args

from sqlalchemy import CTE, bindparam, select
from sqlalchemy.orm import InstrumentedAttribute

from registry.db import channels
from registry.db.prepared import Cells, Picked, Prepared
from registry.db.problems import found
from registry.db.rows import EdgeRow, GenerationArtifactRow, GenerationRow, ManifestRow
from registry.db.rows.core import BYTEWISE
from registry.db.session import Reader
from schemas.digests import Digest

Direction = Literal["up", "down"]
LIMIT: Final = 10_000
_ALL: Final = 2**62


class Node(NamedTuple):
    """A manifest in a lineage; `depth` is the fewest steps from the root."""

    digest: Digest
    kind: str
    depth: int


@dataclass(slots=True)
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
    reached = frozenset(row[0] for row in _MADE_FROM_IT.all(reader.connection, digest=digest, most=_ALL))
    touched = select(GenerationArtifactRow.channel).distinct()
    names = frozenset(reader.chosen(touched, GenerationArtifactRow.artifact, reached))
    heads = (channels.at_head(reader, channel) for channel in sorted(names))
    return tuple(head for head in heads if not reached.isdisjoint(head.artifacts))


def _reached(direction: Direction) -> CTE:
    here, there = _ends(direction)
    reached = select(bindparam("digest", type_=BYTEWISE).label("digest")).cte("reached", recursive=True)
    # UNION, not UNION ALL: each manifest is visited once, whatever the number of paths (or a cycle)
    return reached.union(select(there).join(reached, here == reached.c.digest))


def _ends(direction: Direction) -> tuple[InstrumentedAttribute[str], InstrumentedAttribute[str]]:
    return (EdgeRow.child, EdgeRow.parent) if direction == "up" else (EdgeRow.parent, EdgeRow.child)


_WALKS: Final = {
    direction: select(_reached(direction).c.digest).limit(bindparam("most")) for direction in get_args(Direction)
}
_MADE_FROM_IT: Final = Prepared(_WALKS["down"])
_STEPS: Final = {
    direction: Picked(
        select(ManifestRow.digest, ManifestRow.kind, _ends(direction)[1], EdgeRow.role, EdgeRow.position).outerjoin(
            EdgeRow, _ends(direction)[0] == ManifestRow.digest
        ),
        ManifestRow.digest,
        walk,
    )
    for direction, walk in _WALKS.items()
}
"""What is reached with its kind, once for each edge to what follows it, and once where nothing does."""


def _lineage(reader: Reader, digest: Digest, direction: Direction, limit: int) -> Lineage:
    steps = _STEPS[direction].rows(reader.connection, digest=digest, most=limit + 1)
    kinds = {here: kind for here, kind, *_ in steps}
    found(kinds.get(digest), "MANIFEST_UNKNOWN", f"a manifest {digest}", "List what is registered with `registry ls`.")
    between = [step for step in steps if step[2] in kinds]
    depths = _depths(digest, between)
    order = sorted(depths, key=lambda item: (depths[item], item))
    edges = [_edge(direction, *step) for step in between]
    return Lineage(
        root=digest,
        direction=direction,
        nodes=tuple([Node(item, kinds[item], depths[item]) for item in order]),
        edges=tuple(sorted(edges, key=attrgetter("child", "role", "position", "parent"))),
        truncated=len(kinds) > limit,
    )


def _edge(direction: Direction, here: Digest, _: str, there: Digest, role: str, position: int) -> Edge:
    child, parent = (here, there) if direction == "up" else (there, here)
    return Edge(child, parent, role, position)


def _depths(root: Digest, steps: Iterable[Cells]) -> dict[Digest, int]:
    """Fewest steps from the root to each manifest, breadth first."""
    following: dict[Digest, list[Digest]] = {}
    for here, _, there, *_ in steps:
        following.setdefault(here, []).append(there)
    depths, queue = {root: 0}, deque([root])
    while queue:
        here = queue.popleft()
        for there in following.get(here, ()):
            if there not in depths:
                depths[there] = depths[here] + 1
                queue.append(there)
    return depths
