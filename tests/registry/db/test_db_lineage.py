"""Lineage both ways, with roles, depths and the live channels."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from registry.db import Database, lineage
from registry.db.rows import EdgeRow, ManifestRow
from registry.db.session import Change
from registry.errors import NotFoundError
from tests.registry.db.examples import ME, adapter, base, compose, digest, publish, store


def test_ancestors_have_roles_positions_and_fewest_steps(database: Database) -> None:
    members = sorted((adapter(1), adapter(2)), key=lambda item: item.digest)
    output = adapter(9)
    store(database, base(), *members)
    made = compose(database, output, *members)
    with database.reading() as reader:
        found = lineage.ancestors(reader, output.digest)
    depths = {node.digest: node.depth for node in found.nodes}
    # the output says itself on which base it stands, so that is one step although members say it too
    assert depths == {
        output.digest: 0,
        made.digest: 1,
        base().digest: 1,
        made.admission: 2,
        members[0].digest: 2,
        members[1].digest: 2,
    }
    edges = {(edge.child, edge.parent, edge.role, edge.position) for edge in found.edges}
    assert (output.digest, made.digest, "output", 0) in edges
    assert (made.digest, members[0].digest, "member", 0) in edges
    assert (made.digest, members[1].digest, "member", 1) in edges
    assert (members[1].digest, base().digest, "base", 0) in edges
    assert not found.truncated


def test_descendants_are_the_other_way_round(database: Database) -> None:
    store(database, base(), adapter(1), adapter(2))
    made = compose(database, adapter(9), adapter(1))
    with database.reading() as reader:
        found = lineage.descendants(reader, adapter(1).digest)
        assert {node.digest for node in found.nodes} == {
            adapter(1).digest,
            made.admission,
            made.digest,
            adapter(9).digest,
        }
        assert [node.digest for node in lineage.descendants(reader, adapter(2).digest).nodes] == [adapter(2).digest]


def test_an_unknown_digest_has_no_lineage(database: Database) -> None:
    with database.reading() as reader, pytest.raises(NotFoundError):
        lineage.ancestors(reader, digest("nothing"))


def test_a_composition_that_gives_back_its_member_ends_the_walk(database: Database) -> None:
    store(database, base(), adapter(1))
    made = compose(database, adapter(1), adapter(1))
    with database.reading() as reader:
        found = lineage.ancestors(reader, adapter(1).digest)
    assert {node.digest: node.depth for node in found.nodes}[made.digest] == 1


def test_the_limit_truncates_and_says_so(database: Database) -> None:
    store(database, base(), *(adapter(number) for number in range(5)))
    with database.reading() as reader:
        assert lineage.descendants(reader, base().digest, limit=6).truncated is False
        found = lineage.descendants(reader, base().digest, limit=3)
    assert found.truncated is True


def test_live_channels_contain_the_thing_or_what_was_made_from_it(database: Database) -> None:
    store(database, base(), adapter(1), adapter(2))
    compose(database, adapter(9), adapter(1))
    publish(database, "direct", adapter(1).digest)
    publish(database, "composed", adapter(2).digest, adapter(9).digest)
    publish(database, "moved-on", adapter(1).digest)
    publish(database, "moved-on", adapter(2).digest)
    with database.reading() as reader:
        live = {
            adapter_: [row.channel for row in lineage.live(reader, adapter(adapter_).digest)] for adapter_ in (1, 2)
        }
        assert live == {1: ["composed", "direct"], 2: ["composed", "moved-on"]}
        assert lineage.live(reader, adapter(9).digest)[0].artifacts == (adapter(2).digest, adapter(9).digest)


def test_a_lattice_of_many_paths_is_walked_once(database: Database) -> None:
    """Forty layers of two, each on both of the layer below: 2^40 paths, 81 manifests."""
    layers = [[digest(f"{layer}/{side}") for side in "ab"] for layer in range(40)]
    top = digest("top")

    def build(change: Change) -> None:
        everything = [item for layer in layers for item in layer] + [top]
        change.append(
            *(ManifestRow(digest=item, kind="adapter", data=b"{}", created=change.now) for item in everything)
        )
        pairs = [(top, parent) for parent in layers[0]]
        for above, below in pairwise(layers):
            pairs += [(child, parent) for child in above for parent in below]
        change.append(*(EdgeRow(child=child, parent=parent, role="member", position=0) for child, parent in pairs))

    database.change("build", ME, build)
    begin = time.perf_counter()
    with database.reading() as reader:
        found = lineage.ancestors(reader, top)
    assert len(found.nodes) == 81
    assert len(found.edges) == 2 + 39 * 4
    assert max(node.depth for node in found.nodes) == 40
    assert time.perf_counter() - begin < 5
