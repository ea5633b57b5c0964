"""Compositions over what is no Linear layer: tables by their own delta, heads byte for byte from their one owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.service import add, admit, export
from registry.service.context import Context
from registry.service.export import Form
from registry.service.results import Admitted
from schemas.adapter import make_scale
from schemas.spec import CompositionSpec
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

QUERY, TABLE = tiny.MODULES[0], "embeddings.word_embeddings"
WEIGHTS = {"one": 0.75, "two": -0.5}


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry with the tiny base."""
    add.add_base(context, tiny_base, "tiny")
    return context


def table(seed: int) -> Factor:
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(2, 32)).astype(np.float32), draw.normal(size=(tiny.HIDDEN, 2)).astype(np.float32)
    return Factor(a, b, make_scale(4.0, "alpha_over_r", 2), fields={"order": "(B@A)^T"})


def composed(registry: Context, **spec: Any) -> Admitted:
    """A composition of `one` and `two`."""
    members = [{"ref": name, "weight": weight} for name, weight in WEIGHTS.items()]
    asked = {"name": "both", "base": "tiny", "space": "delta", "members": members, **spec}
    return admit.admit(registry, CompositionSpec.model_validate_json(json.dumps(asked)))


@pytest.mark.parametrize("spec", [{"method": "cat"}, {"method": "delta_svd", "rank": 4}])
def test_a_table_is_composed_by_its_delta_and_keeps_how_it_lies(registry: Context, spec: dict[str, Any]) -> None:
    given = {name: {TABLE: table(seed), QUERY: random_factor(seed)} for seed, name in enumerate(WEIGHTS)}
    for name, factors in given.items():
        stored.put(registry, "tiny", name, factors)
    made = composed(registry, **spec)
    assert made.output is not None, made.decision
    output = stored.load(registry, made.output)
    assert {factor.module: factor.order for factor in output.factors} == {TABLE: "(B@A)^T", QUERY: "B@A"}
    for module, found in stored.arrays_of(registry, output).items():
        exact = sum(weight * given[name][module].delta for name, weight in WEIGHTS.items())
        np.testing.assert_allclose(found.delta, exact, rtol=0, atol=1e-5 * float(np.abs(exact).max()))


def test_a_head_arrives_byte_for_byte_from_its_owner_and_two_owners_are_refused(
    registry: Context, tmp_path: Path
) -> None:
    head = {"classifier.weight": np.random.default_rng(7).normal(size=(3, 8)).astype(np.float16)}
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)}, head)
    stored.put(registry, "tiny", "two", {QUERY: random_factor(2)})
    made = composed(registry, method="cat")
    assert made.output is not None, made.decision
    (carried,) = stored.load(registry, made.output).full_replacements
    assert (carried.name, carried.value) == ("classifier.weight", stored.ref(head["classifier.weight"]))
    export.export(registry, "both", tmp_path / "out", Form("tiny", "dense"))
    assert head["classifier.weight"].tobytes() in (tmp_path / "out" / "heads.safetensors").read_bytes()
    stored.put(registry, "tiny", "two", {QUERY: random_factor(2)}, head)
    refused = composed(registry, method="cat", name="again")
    assert "REPLACEMENT_OWNED_TWICE" in {finding.code for finding in refused.decision.findings}
