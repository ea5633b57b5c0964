"""What people ran into, cases 9 to 12 and 14: what is carried, repeated, left alone, refused and taken back."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from compose import MemoryLimitError
from registry.errors import DecisionRefusedError, NotFoundError, RefusedError, UsageProblemError
from registry.service import decide, export, look, publish, specs, verify
from registry.service.context import Context
from registry.service.export import Form
from registry.wiring import LazyComposer
from tests.cases.conftest import Registry
from tests.cases.product import QUERY, ROOT, WEIGHTS, ask, codes, contents, merge, register, spec
from tests.support import tiny

BOTH = {"one": 1.0, "two": -0.5}
ONE_DRAW: dict[str, Any] = {"rank": 3, "dare": {"density": 0.5, "seed": "17"}}


def register_both(context: Context, base: Path, folder: Path) -> None:
    register(context, base, folder, "one", 1)
    register(context, base, folder, "two", 2)


HEAD = np.arange(2 * tiny.HIDDEN, dtype=np.float32).reshape(2, tiny.HIDDEN)


def register_with_head(context: Context, base: Path, folder: Path, name: str, seed: int) -> None:
    tensors = tiny.factors(seed) | {f"{ROOT}classifier.weight": HEAD + seed}
    register(context, base, folder, name, seed, tensors=tensors, modules_to_save=["classifier"])


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_case_09_a_trained_head_of_one_member_is_carried_byte_for_byte(
    context: Context, tiny_base: Path, tmp_path: Path, order: tuple[str, str]
) -> None:
    register_with_head(context, tiny_base, tmp_path, "one", 1)
    register(context, tiny_base, tmp_path, "two", 2)
    merge(context, tmp_path / "out", {ref: BOTH[ref] for ref in order})
    assert (load_file(tmp_path / "out" / WEIGHTS)[f"{ROOT}classifier.weight"] == HEAD + 1).all()


def test_case_09_a_head_that_two_members_own_is_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two"), 1):
        register_with_head(context, tiny_base, tmp_path, name, seed)
    assert codes(ask(context, spec(BOTH))) == {"REPLACEMENT_OWNED_TWICE"}


@pytest.mark.parametrize(("method", "choices"), [("cat", {}), ("delta_svd", {"rank": 3}), ("dare_linear", ONE_DRAW)])
def test_case_10_one_recipe_gives_one_identity_and_the_same_bytes(
    another_registry: Registry, tiny_base: Path, tmp_path: Path, method: str, choices: dict[str, Any]
) -> None:
    found = []
    for name, workers, order in (("a", 1, ("one", "two")), ("b", 2, ("two", "one")), ("c", 4, ("one", "two"))):
        context = another_registry(name, workers)
        register_both(context, tiny_base, tmp_path)
        merge(context, tmp_path / f"out-{name}", {ref: BOTH[ref] for ref in order}, method, **choices)
        found.append(contents(tmp_path / f"out-{name}"))
    assert WEIGHTS in found[0]
    assert found[0] == found[1] == found[2]


def test_case_10_another_seed_is_another_draw(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register_both(context, tiny_base, tmp_path)
    merge(context, tmp_path / "first", BOTH, "dare_linear", **ONE_DRAW)
    merge(context, tmp_path / "second", BOTH, "dare_linear", rank=3, dare={"density": 0.5, "seed": "18"})
    assert contents(tmp_path / "first")[WEIGHTS] != contents(tmp_path / "second")[WEIGHTS]


def test_case_11_inputs_are_left_alone(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register_both(context, tiny_base, tmp_path)
    folders = [tiny_base, tmp_path / "one", tmp_path / "two"]
    before = [contents(folder) for folder in folders]
    merge(context, tmp_path / "out", BOTH)
    assert [contents(folder) for folder in folders] == before


def test_case_11_a_failed_composition_leaves_nothing_and_its_name_free(
    context: Context, tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    register_both(context, tiny_base, tmp_path)
    before = verify.verify(context)
    with pytest.raises(MemoryLimitError):
        ask(replace(context, composer=LazyComposer(1, 1)), spec(BOTH))
    after = verify.verify(context)
    # The decision is stored, the composition and its output are not.
    assert (after.manifests, after.blobs, after.clean) == (before.manifests + 1, before.blobs, True)
    assert list(scratch.iterdir()) == []
    with pytest.raises(NotFoundError, match="NAME_UNKNOWN"):
        look.show(context, "merged")
    assert ask(context, spec(BOTH)).version == 1


SPECS: Mapping[str, tuple[dict[str, Any], tuple[str | int, ...]]] = {
    "no weight": ({"members": [{"ref": "one", "weight": 1.0}, {"ref": "two"}]}, ("members", 1, "weight")),
    "an unknown method": ({"method": "average"}, ("method",)),
    "density 0": ({"method": "dare_linear", "dare": {"density": 0.0}, "rank": 2}, ("dare", "density")),
    "rank 0": ({"method": "delta_svd", "rank": 0}, ("rank",)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_case_12_a_spec_is_refused_where_it_is_wrong(name: str) -> None:
    changes, path = SPECS[name]
    with pytest.raises(UsageProblemError) as refused:
        specs.spec_from(spec(BOTH) | changes)
    assert {(problem.code, problem.path[: len(path)]) for problem in refused.value.problems} == {("SPEC_INVALID", path)}


@pytest.mark.parametrize("weight", [".nan", ".inf", "-.inf"])
def test_case_12_a_weight_that_is_no_number_is_refused(weight: str) -> None:
    text = f"name: m\nbase: b\nmethod: cat\nspace: delta\nmembers:\n  - {{ref: one, weight: {weight}}}\n"
    with pytest.raises(UsageProblemError, match="SPEC_INVALID"):
        specs.parse_spec(text.encode())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_case_12_a_tensor_that_is_not_finite_is_named_with_its_first_index(
    context: Context, tiny_base: Path, tmp_path: Path, value: float
) -> None:
    key = f"{ROOT}{QUERY}.lora_B.weight"
    tensors = tiny.factors(1)
    tensors[key][3, 1] = tensors[key][5, 0] = value
    with pytest.raises(RefusedError) as refused:
        register(context, tiny_base, tmp_path, "one", tensors=tensors)
    (problem,) = refused.value.problems
    assert problem.code == "NON_FINITE"
    assert key in problem.path
    # Row 3, column 1 of a matrix of 2 columns.
    assert problem.observed.endswith("flat index 7")


def test_case_12_one_digest_twice_is_refused_with_the_hint_to_add_the_weights(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    register(context, tiny_base, tmp_path, "one")
    register(context, tiny_base, tmp_path, "same")
    answer = ask(context, spec({"one": 0.5, "same": 0.5}))
    assert codes(answer) == {"MEMBER_TWICE"}
    with pytest.raises(DecisionRefusedError, match="add the weights"):
        decide.require_proceeding(answer)


def test_case_12_a_rank_above_the_possible_is_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register_both(context, tiny_base, tmp_path)
    assert codes(ask(context, spec(BOTH, "delta_svd", rank=tiny.HIDDEN + 1))) == {"RANK_TOO_LARGE"}


def test_case_14_a_rollback_points_at_the_stored_bytes(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register_both(context, tiny_base, tmp_path)
    first = publish.publish(context, "bot", ["one"])
    export.export(context, "channel:bot", tmp_path / "g1", Form("tiny"))
    for _ in range(3):
        publish.publish(context, "bot", ["two"])
        restored = publish.rollback(context, "bot")
        assert restored.artifacts == first.artifacts
    export.export(context, "channel:bot", tmp_path / "g7", Form("tiny"))
    assert contents(tmp_path / "g1")[WEIGHTS] == contents(tmp_path / "g7")[WEIGHTS]


def test_case_14_merging_and_unmerging_in_bfloat16_does_not_come_back() -> None:
    draw = torch.Generator().manual_seed(0)
    weight, delta = (torch.randn(64, 64, generator=draw).to(torch.bfloat16) for _ in range(2))
    drifted = weight + delta - delta
    assert not torch.equal(drifted, weight)
