"""Dense releases: the base's own directory with the deltas in it, its new identity, and what no weight can hold."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from registry.errors import RefusedError, UnavailableError
from registry.formats import read_base
from registry.service import add, export
from registry.service.context import Context
from registry.service.export import Form
from schemas.adapter import make_scale
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

QUERY, VALUE = tiny.MODULES[0], tiny.MODULES[1]
TABLE = "embeddings.word_embeddings"
DENSE = Form("tiny", "dense")


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry with the tiny base."""
    add.add_base(context, tiny_base, "tiny")
    return context


def table_factor() -> Factor:
    draw = np.random.default_rng(4)
    a, b = draw.normal(size=(2, 32)).astype(np.float32), draw.normal(size=(tiny.HIDDEN, 2)).astype(np.float32)
    return Factor(a, b, make_scale(4.0, "alpha_over_r", 2), fields={"order": "(B@A)^T"})


def manifest(directory: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / "release.json").read_text(encoding="utf-8"))
    return loaded


def test_the_release_is_the_base_with_the_deltas_rounded_once(registry: Context, tmp_path: Path) -> None:
    factors = {QUERY: random_factor(1, 2, make_scale(4.0, "alpha_over_sqrt_r", 2)), TABLE: table_factor()}
    stored.put(registry, "tiny", "one", factors)
    made = export.export(registry, "one", tmp_path / "out", DENSE)
    found, base = load_file(tmp_path / "out" / "model.safetensors"), tiny.base_tensors()
    assert found.keys() == base.keys()
    exact = {
        f"{module}.weight": base[f"{module}.weight"] + (factor.delta.T if module == TABLE else factor.delta)
        for module, factor in factors.items()
    }
    for name, weight in base.items():
        np.testing.assert_array_equal(found[name], exact.get(name, weight).astype(np.float32))
    said = manifest(tmp_path / "out")
    assert said["weights"].keys() == exact.keys()
    rounding = sqrt(sum(float(((weight - found[name]) ** 2).sum()) for name, weight in exact.items()))
    assert said["measurement"]["total"]["rounding"] == pytest.approx(rounding, rel=1e-8)
    change = sqrt(sum(float((factor.delta**2).sum()) for factor in factors.values()))
    assert said["measurement"]["total"]["change"] == pytest.approx(change, rel=1e-8)
    assert (said["base"], said["adapter"]) == (stored.load(registry, made.adapter).base, made.adapter)


def test_the_release_reads_back_as_the_base_it_says_it_is(registry: Context, tmp_path: Path) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    export.export(registry, "one", tmp_path / "out", DENSE)
    reading = read_base(tmp_path / "out")
    said = manifest(tmp_path / "out")
    assert reading.manifest.weights_digest == said["weights_digest"] != said["base_weights_digest"]


def test_shards_and_index_keep_their_layout(context: Context, tmp_path: Path) -> None:
    base = tiny.write_base(tmp_path / "sharded", shards=3)
    add.add_base(context, base, "tiny", store=True)
    stored.put(context, "tiny", "one", {QUERY: random_factor(1), VALUE: random_factor(2)})
    made = export.export(context, "one", tmp_path / "out", DENSE)
    files = {path.name for path in base.iterdir()}
    assert files | {"release.json", "registry.json"} == {path.name for path in (tmp_path / "out").iterdir()}
    assert {entry.path for entry in made.files} == files | {"release.json"}
    for name in files:
        before, after = (base / name).read_bytes(), (tmp_path / "out" / name).read_bytes()
        if name.endswith(".safetensors"):
            head = 8 + int.from_bytes(before[:8], "little")
            assert (len(before), before[:head]) == (len(after), after[:head])
        else:
            assert before == after


def test_dora_becomes_rows_of_its_magnitude(registry: Context, tmp_path: Path) -> None:
    factor = random_factor(1)
    magnitude = np.arange(1, tiny.HIDDEN + 1, dtype=np.float32)
    dora = Factor(factor.a, factor.b, factor.scale, {"magnitude": magnitude})
    stored.put(registry, "tiny", "one", {QUERY: dora}, family="dora")
    export.export(registry, "one", tmp_path / "out", DENSE)
    found = load_file(tmp_path / "out" / "model.safetensors")[f"{QUERY}.weight"]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), magnitude, rtol=1e-6)


def test_a_replaced_weight_of_the_base_is_carried(registry: Context, tmp_path: Path) -> None:
    name = f"{VALUE}.bias"
    head = np.arange(tiny.HIDDEN, dtype=np.float32)
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)}, {name: head})
    export.export(registry, "one", tmp_path / "out", DENSE)
    np.testing.assert_array_equal(load_file(tmp_path / "out" / "model.safetensors")[name], head)


def test_a_head_the_base_has_no_place_for_lies_beside_it_byte_for_byte(registry: Context, tmp_path: Path) -> None:
    head = np.arange(16, dtype=np.float16).reshape(2, 8)
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)}, {"classifier.weight": head})
    made = export.export(registry, "one", tmp_path / "out", DENSE)
    found = load_file(tmp_path / "out" / "heads.safetensors")
    assert set(found) == {"classifier.weight"}
    assert found["classifier.weight"].dtype == np.float16
    np.testing.assert_array_equal(found["classifier.weight"], head)
    assert "heads.safetensors" in {entry.path for entry in made.files}
    assert manifest(tmp_path / "out")["heads"] == {"classifier.weight": stored.ref(head).document()}


REFUSED: dict[str, tuple[dict[str, Factor], dict[str, Any], dict[str, Any], str]] = {
    "a resized table": ({QUERY: random_factor(1)}, {f"{TABLE}.weight": np.ones((40, 8), np.float32)}, {}, "/full"),
    "native factors": (
        {QUERY: random_factor(1)}, {}, {"family": "pissa", "initializer": "pissa", "payload": "native"}, "/family",
    ),
    "a bias of b": (
        {QUERY: Factor(random_factor(1).a, random_factor(1).b, extra={"bias": np.ones(8, np.float32)})}, {}, {},
        "/factors",
    ),
    "an expert": ({QUERY: random_factor(1, expert=0)}, {}, {}, "/factors"),
    "a magnitude of a table": (
        {TABLE: Factor(table_factor().a, table_factor().b, fields={"order": "(B@A)^T"},
                       extra={"magnitude": np.ones(8, np.float32)})}, {}, {"family": "dora"}, "/factors",
    ),
    "a module without a weight": ({"encoder.layer.9.output.dense": random_factor(1)}, {}, {}, "/factors"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_weight_can_hold_is_refused_before_anything_is_written(
    registry: Context, tmp_path: Path, case: str
) -> None:
    factors, heads, fields, path = REFUSED[case]
    stored.put(registry, "tiny", "one", factors, heads, **fields)
    with pytest.raises(RefusedError) as refused:
        export.export(registry, "one", tmp_path / "out", DENSE)
    assert {problem.code for problem in refused.value.problems} == {"NO_DENSE_RELEASE"}
    assert any(problem.pointer.startswith(path) for problem in refused.value.problems)
    assert not list(tmp_path.glob("*out*"))


def test_a_zero_row_is_refused_and_leaves_nothing(context: Context, tmp_path: Path) -> None:
    weights = tiny.base_tensors()
    weights[f"{QUERY}.weight"][3] = 0.0
    add.add_base(context, tiny.write_base(tmp_path / "base", weights), "tiny")
    factor = random_factor(1)
    dead = Factor(factor.a, np.zeros_like(factor.b), extra={"magnitude": np.ones(8, np.float32)})
    stored.put(context, "tiny", "one", {QUERY: dead}, family="dora")
    with pytest.raises(RefusedError) as refused:
        export.export(context, "one", tmp_path / "out", DENSE)
    assert refused.value.code == "ROW_NORM_ZERO"
    assert not list(tmp_path.glob("*out*"))


def test_a_base_known_by_its_headers_only_or_gone_is_no_ground_for_a_release(context: Context, tmp_path: Path) -> None:
    structural = tiny.write_base(tmp_path / "structural")
    add.add_base(context, structural, "headers", level="structural")
    stored.put(context, "headers", "one", {QUERY: random_factor(1)})
    with pytest.raises(RefusedError, match="not_verified"):
        export.export(context, "one", tmp_path / "out", DENSE)
    moved = tiny.write_base(tmp_path / "moved")
    add.add_base(context, moved, "whole")
    stored.put(context, "whole", "two", {QUERY: random_factor(1)})
    (moved / "model.safetensors").unlink()
    (structural / "model.safetensors").unlink()
    with pytest.raises(UnavailableError) as gone:
        export.export(context, "two", tmp_path / "out", DENSE)
    assert gone.value.code == "BASE_BYTES_UNAVAILABLE"
