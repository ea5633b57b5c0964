"""The published vectors, against this program and against a second implementation that shares no code with it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from schemas.manifests import KINDS
from tests.golden.make import FOLDER, render, vectors

FILES = sorted(FOLDER.glob("*.json"))


def entries(stem: str) -> list[dict[str, Any]]:
    """The vectors of one file."""
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))
    return loaded


MANIFESTS = [(stem, entry) for stem in (*KINDS, "kv_identity") for entry in entries(stem)]


def plain(value: Any) -> Any:
    """Whole floats as integers, which is how RFC 8785 spells them."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_every_kind_has_vectors_and_every_file_is_made_here() -> None:
    made = vectors()
    assert {path.stem for path in FILES} == made.keys() == {"blob", "tensor", "kv_identity", *KINDS}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_published_vectors_are_what_this_program_computes(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == render(vectors()[path.stem])


@pytest.mark.parametrize("entry", entries("blob"))
def test_a_blob_vector_is_plain_blake3_and_sha256(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    assert entry["digest"] == "blake3:" + blake3(data).hexdigest()
    assert entry["sha256"] == "sha256:" + hashlib.sha256(data).hexdigest()
    assert entry["size"] == len(data)


@pytest.mark.parametrize("entry", entries("tensor"))
def test_a_tensor_vector_is_header_and_bytes_under_the_tensor_context(entry: dict[str, Any]) -> None:
    hasher = blake3(derive_key_context="adapter-registry v1 tensor")
    hasher.update(bytes([len(entry["dtype"])]) + entry["dtype"].encode() + bytes([len(entry["shape"])]))
    for dim in entry["shape"]:
        hasher.update(int(dim).to_bytes(8, "little"))
    hasher.update(bytes.fromhex(entry["hex"]))
    assert entry["digest"] == "blake3:" + hasher.hexdigest()


@pytest.mark.parametrize(("kind", "entry"), MANIFESTS)
def test_a_manifest_vector_is_sorted_compact_json_under_the_context_of_its_kind(
    kind: str, entry: dict[str, Any]
) -> None:
    document = entry["document"]
    written = json.dumps(plain(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert written.isascii()
    assert entry["canonical"] == written
    assert (
        entry["digest"]
        == "blake3:" + blake3(written.encode(), derive_key_context=f"adapter-registry v1 {kind}").hexdigest()
    )
    assert (document["kind"], document["schema"]) == (kind, 1)
    assert "digest" not in document
