"""Manifests: bytes are identity, every field is part of it, and a change reaches exactly what names the thing."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import manifest_digest
from schemas.errors import DigestMismatchError, RefusedError
from schemas.manifests import KINDS, read_manifest
from schemas.model import Manifest
from tests.schemas.chain import PARENTS, Path, build, descendants, digest_of, leaves, replaced, value_at
from tests.schemas.strategies import MANIFESTS

CHAIN = build()
BEFORE = {name: manifest.digest for name, manifest in CHAIN.items()}

OTHER: Final[dict[str, str]] = {
    "static_fusion": "task_composed",
    "ties": "dare_ties",
    "ties/1": "ties/2",
    "factor": "delta",
    "a": "b",
    "b": "sqrt",
    "floor": "round",
    "round": "floor",
    "total": "frequency",
    "unweighted": "weighted",
    "zero": "plus",
    "count": "sum",
    "certified": "exact",
    "float64": "float32",
    "float32": "float16",
    "portable": "native",
    "cast": "balanced",
    "cast/1": "cast/2",
    "F32": "F16",
    "conditional": "refused",
    "condition": "note",
    "pass": "conditional",
    "derived": "executed",
    "evidence": "merge",
    "B": "F",
    "provenance": "note",
    "BASE_EVIDENCE_DECLARED": "BASE_EVIDENCE_STRUCTURAL",
    "18446744073709551615": "18446744073709551614",
}
"""For each word of a closed vocabulary in the chain, another of the same vocabulary."""

FIRST, LAST = f"blake3:{'0' * 64}", f"blake3:{'f' * 64}"
"""Digests that sort before and after all others."""

ONE_VALUE: Final = {
    "kind", "schema", "order", "applied", "generator", "weights", "weights_digest", "quantizer", "compute_contracts",
    "router_revision", "route_policy", "threshold", "comparator", "position_contract", "cache_abi",
    "numerical_contract", "model_type",
}  # fmt: skip
"""Fields with one legal value today, or one that other fields determine: each change of them alone is refused."""


def other_values(value: JsonValue) -> list[JsonValue]:
    """Other values, of which a field with any freedom accepts one."""
    if isinstance(value, bool):
        return [not value, FIRST]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value + 0.125]
    if isinstance(value, str):
        return [FIRST, LAST, OTHER.get(value, f"{value}x")]
    return [1, "other", FIRST]


def rebuilt(node: str, path: Path, value: JsonValue) -> dict[str, str] | None:
    """The chain's digests with one field of one manifest changed, or nothing when that manifest is refused."""

    def change(name: str, document: JsonObject) -> JsonObject:
        result = replaced(document, path, lambda _: value) if name == node else document
        assert isinstance(result, dict)
        return result

    try:
        return {name: manifest.digest for name, manifest in build(change).items()}
    except RefusedError:
        return None


@pytest.mark.parametrize("kind", MANIFESTS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_parsing_a_manifests_bytes_gives_the_manifest_back(kind: str, data: st.DataObject) -> None:
    manifest = data.draw(MANIFESTS[kind])
    written = manifest.canonical()
    again = type(manifest).parse(written)
    assert again == manifest
    assert again.canonical() == written
    assert again.digest == manifest.digest == manifest_digest(kind, written)


def test_every_kind_is_read_by_its_name_and_hashed_under_it() -> None:
    for kind, model in KINDS.items():
        assert model.model_fields["kind"].default == model.KIND == kind
    for manifest in CHAIN.values():
        assert json.loads(manifest.canonical())["kind"] == manifest.KIND
    # The cache identity is hashed like a manifest, but it is a name, never stored under its own digest.
    assert MANIFESTS.keys() - KINDS.keys() == {"kv_identity"}


@pytest.mark.parametrize("node", PARENTS)
def test_one_changed_field_changes_its_digest_and_its_descendants_and_nothing_else(node: str) -> None:
    document = CHAIN[node].document()
    for path in leaves(document):
        outcomes = [rebuilt(node, path, value) for value in other_values(value_at(document, path))]
        accepted = [after for after in outcomes if after is not None]
        for after in accepted:
            assert {name for name in BEFORE if after[name] != BEFORE[name]} == {node} | descendants(node), path
        assert accepted or path[-1] in ONE_VALUE or is_tied(node, path), f"{node} {path} accepts no other value"


def is_tied(node: str, path: Path) -> bool:
    """Whether other fields determine it: rank, shapes and scale of a factor, its base and the adapter's."""
    if node == "factor":
        return path in {("base",), ("rank",), ("a", "shape", 0), ("b", "shape", 1)} or path[0] == "scale"
    if node in ("adapter", "sibling"):
        return path == ("base",) or (path[0] == "factors" and is_tied("factor", path[2:]))
    return False


@pytest.mark.parametrize("node", PARENTS)
def test_stored_bytes_hold_every_field_and_no_other(node: str) -> None:
    manifest, document = CHAIN[node], CHAIN[node].document()
    for name in document:
        rest: JsonObject = {key: value for key, value in document.items() if key != name}
        with pytest.raises((RefusedError, DigestMismatchError)):
            type(manifest).parse(canonical_bytes(rest))
    with pytest.raises(RefusedError) as caught:
        type(manifest).parse(canonical_bytes({**document, "note": "free text"}))
    assert caught.value.problems[0].path == ("note",)


@pytest.mark.parametrize("node", PARENTS)
def test_the_same_manifest_in_another_spelling_is_a_mismatch(node: str) -> None:
    manifest = CHAIN[node]
    with pytest.raises(DigestMismatchError) as caught:
        type(manifest).parse(json.dumps(manifest.document()).encode())
    assert caught.value.code == "NOT_CANONICAL"


@pytest.mark.parametrize("node", ["adapter", "conversion", "publication"])
def test_of_two_that_differ_in_digests_both_are_held_to_their_bytes(node: str) -> None:
    model, data = type(CHAIN[node]), CHAIN[node].canonical()
    assert model.parse(data) == CHAIN[node]
    other = re.sub(rb"blake3:[0-9a-f]+", lambda found: b"blake3:" + found[0][:6:-1], data)
    assert other != data
    read = model.parse(other)
    assert read.canonical() == canonical_bytes(read.document()) == other
    assert read.digest == manifest_digest(model.KIND, other)
    for spelling in (other.replace(b":", b": ", 1), json.dumps(read.document()).encode()):
        with pytest.raises(DigestMismatchError):
            model.parse(spelling)
    upper = re.sub(rb"blake3:[0-9a-f]+", lambda found: b"blake3:" + found[0][7:].upper(), data)
    with pytest.raises(RefusedError):
        model.parse(upper)


@pytest.mark.parametrize("node", sorted(PARENTS.keys() - {"kv_identity"}))
def test_a_stored_manifest_is_hashed_before_it_is_believed(node: str) -> None:
    manifest = CHAIN[node]
    data = manifest.canonical()
    assert read_manifest(manifest.KIND, data, manifest.digest) == manifest
    for edited in (data.replace(b":1", b":2", 1), data + b" ", b"{}"):
        with pytest.raises(DigestMismatchError) as caught:
            read_manifest(manifest.KIND, edited, manifest.digest)
        assert caught.value.code == "MANIFEST_DIGEST_MISMATCH"
        assert caught.value.problems[0].expected == manifest.digest


def test_bytes_of_one_kind_never_pass_as_another() -> None:
    data = CHAIN["factor"].canonical()
    with pytest.raises(DigestMismatchError):
        read_manifest("adapter", data, CHAIN["factor"].digest)
    with pytest.raises(RefusedError) as caught:
        read_manifest("adapter", data, manifest_digest("adapter", data))
    assert caught.value.code == "MANIFEST_INVALID"


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(RefusedError) as caught:
        read_manifest("recipe", b"{}", digest_of("recipe"))
    assert (caught.value.code, caught.value.problems[0].observed) == ("KIND_UNKNOWN", "recipe")


def test_manifests_are_frozen() -> None:
    for manifest in CHAIN.values():
        assert isinstance(manifest, Manifest)
        for field in type(manifest).model_fields:
            with pytest.raises(ValueError, match="frozen"):
                setattr(manifest, field, getattr(manifest, field))
