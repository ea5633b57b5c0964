"""Handing out: the same function in every form, whole directories under names that say what they hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from registry.errors import ConflictError, RefusedError, UnavailableError
from registry.service import add, export, look, publish
from registry.service.context import Context
from registry.service.engines import ENGINE_NAMES
from registry.service.export import Form
from schemas.adapter import make_scale
from tests.support import stored, tiny
from tests.support.plain_reader import read_plain
from tests.support.stored import Factor, random_factor

QUERY, VALUE = tiny.MODULES[0], tiny.MODULES[1]
TABLE = "embeddings.word_embeddings"
PLAIN = Form("tiny", "plain-lora")


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry with the tiny base."""
    add.add_base(context, tiny_base, "tiny")
    return context


def table_factor(seed: int, rank: int = 2) -> Factor:
    draw = np.random.default_rng(seed)
    a = draw.normal(size=(rank, 32)).astype(np.float32)
    b = draw.normal(size=(tiny.HIDDEN, rank)).astype(np.float32)
    return Factor(a, b, make_scale(4.0, "alpha_over_r", rank), fields={"order": "(B@A)^T"})


def triplet(seed: int) -> Factor:
    factor = random_factor(seed, 3, make_scale(16 / (8 + 1e-5), "explicit", 1))
    return Factor(factor.a, factor.b, factor.scale, {"E": np.array([[0.5], [0.0], [-2.0]], np.float32)})


FAMILIES: dict[str, tuple[dict[str, Factor], str]] = {
    "lora": ({QUERY: random_factor(1, 2, make_scale(4.0, "alpha_over_r", 2))}, "lora"),
    "patterns": (
        {
            QUERY: random_factor(1, 4, make_scale(8.0, "alpha_over_r", 4)),
            VALUE: random_factor(2, 2, make_scale(32.0, "alpha_over_r", 2)),
        },
        "lora",
    ),
    "rank-stabilised": ({QUERY: random_factor(1, 4, make_scale(8.0, "alpha_over_sqrt_r", 4))}, "rslora"),
    "a table": ({TABLE: table_factor(1), QUERY: random_factor(2, 3)}, "lora"),
    "triplets": ({QUERY: triplet(1), VALUE: triplet(2)}, "adalora"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reader_of_alpha_over_r_alone_finds_every_familys_delta(
    registry: Context, tmp_path: Path, family: str
) -> None:
    factors, name = FAMILIES[family]
    stored.put(registry, "tiny", "one", factors, family=name)
    made = export.export(registry, "one", tmp_path / "out", PLAIN)
    found = read_plain(tmp_path / "out")
    for module, factor in factors.items():
        expected = factor.delta.T if module == TABLE else factor.delta
        assert np.linalg.norm(found[module] - expected) <= 1e-6 * np.linalg.norm(expected)
    for module in found.keys() - factors.keys():
        assert not found[module].any()
    # The fused group is whole in every layer.
    assert {f"encoder.layer.1.attention.self.{part}" for part in ("query", "key", "value")} <= found.keys()
    # The child is recorded: its lineage leads to the parent.
    assert made.conversion is not None
    up = look.line(registry, made.adapter, "up")
    assert look.show(registry, "one").digest in {node.digest for node in up.nodes}


def test_mixed_dtypes_become_one(registry: Context, tmp_path: Path) -> None:
    half = random_factor(1)
    half = Factor(half.a.astype(np.float16), half.b.astype(np.float16), half.scale)
    stored.put(registry, "tiny", "one", {QUERY: half, VALUE: random_factor(2)})
    export.export(registry, "one", tmp_path / "out", PLAIN)
    read_plain(tmp_path / "out")


def test_the_card_says_what_the_files_are(registry: Context, tmp_path: Path) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    published = publish.publish(registry, "bot", ["one"])
    made = export.export(registry, "channel:bot", tmp_path, PLAIN, named=True)
    folder = Path(made.directory)
    assert folder == tmp_path / f"bot@g1-{made.adapter.removeprefix('blake3:')[:8]}"
    card: dict[str, Any] = json.loads((folder / "registry.json").read_text(encoding="utf-8"))
    assert card["generation"] == {
        "channel": "bot",
        "generation": 1,
        "publication": published.publication,
        "kv_identity": published.kv_identity,
    }
    assert (card["artifact"], card["adapter"]) == (published.artifacts[0], made.adapter)
    assert (card["profile"], card["conversion"], card["base_name"]) == ("plain-lora", made.conversion, "tiny")
    assert {entry["path"] for entry in card["files"]} == {"adapter_config.json", "adapter_model.safetensors"}
    for entry in card["files"]:
        data = (folder / entry["path"]).read_bytes()
        assert entry["blob"] == f"blake3:{blake3(data).hexdigest()}"
        assert (entry["sha256"], entry["size"]) == (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def test_a_name_carries_the_version_where_there_is_no_generation(registry: Context, tmp_path: Path) -> None:
    adapter = stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    short = adapter.digest.removeprefix("blake3:")[:8]
    assert export.export(registry, "one", tmp_path, Form("tiny"), named=True).directory.endswith(f"/one@1-{short}")
    with pytest.raises(ConflictError, match="TARGET_EXISTS"):
        export.export(registry, adapter.digest, tmp_path, Form("tiny"), named=True)


def test_the_same_generation_gives_the_same_bytes_wherever_it_is_written(registry: Context, tmp_path: Path) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1, 2, make_scale(3.0, "alpha_over_sqrt_r", 2))})
    publish.publish(registry, "bot", ["one"])
    one, two = (export.export(registry, "channel:bot", tmp_path / name, PLAIN) for name in ("a", "b"))
    assert one.files == two.files
    cards = [(Path(made.directory) / "registry.json").read_bytes() for made in (one, two)]
    assert cards[0] == cards[1]


def test_nothing_is_left_where_writing_failed(registry: Context, tmp_path: Path) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with pytest.raises(UnavailableError, match="TARGET_UNWRITABLE"):
        export.export(registry, "one", tmp_path / "file" / "out", Form("tiny"))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "not a folder"
    assert list(tmp_path.glob("**/*.partial")) == []


def test_an_engine_is_asked_before_anything_is_written(registry: Context, tmp_path: Path) -> None:
    factor = random_factor(1)
    dora = Factor(factor.a, factor.b, factor.scale, {"magnitude": np.ones(tiny.HIDDEN, np.float32)})
    stored.put(registry, "tiny", "one", {QUERY: dora}, family="dora")
    before = look.show(registry, "one")
    for engine in ENGINE_NAMES:
        with pytest.raises(RefusedError, match="ENGINE_UNSUPPORTED") as refused:
            export.export(registry, "one", tmp_path / "out", Form("tiny", "plain-lora", engine))
        assert refused.value.problems[0].observed == "DoRA"
    assert not (tmp_path / "out").exists()
    assert look.show(registry, "one") == before
    assert len(look.line(registry, "one", "down").nodes) == 1
