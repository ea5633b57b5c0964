"""Conversions: the delta stays what it was, the record says how it was made, and what has no meaning is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from registry.errors import ConditionError, ConflictError, RefusedError, UsageProblemError
from registry.service import add, look, publish, say, verify
from registry.service.composer import Composer, Converted, ConvertOrder
from registry.service.context import Context
from registry.service.convert import convert
from registry.service.handed import Conversion
from registry.service.wishes import Wish
from schemas.adapter import make_scale
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

QUERY, VALUE = tiny.MODULES[0], tiny.MODULES[1]
NATIVE: dict[str, Any] = {"family": "pissa", "initializer": "pissa", "payload": "native"}


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry with the tiny base."""
    add.add_base(context, tiny_base, "tiny")
    return context


def close(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], tolerance: float = 1e-6) -> None:
    assert np.linalg.norm(left - right) <= tolerance * np.linalg.norm(right)


def output(context: Context, made: Conversion) -> dict[str, Factor]:
    return stored.arrays_of(context, stored.load(context, made.output))


def triplet(seed: int, values: list[float], scale: float = 16 / (8 + 1e-5)) -> Factor:
    """AdaLoRA's factor: E of the given values, alpha 16 and initial rank 8 unless said otherwise."""
    factor = random_factor(seed, len(values), make_scale(scale, "explicit", 1))
    return Factor(factor.a, factor.b, factor.scale, {"E": np.array(values, np.float32).reshape(-1, 1)})


@pytest.mark.parametrize(("rule", "factor"), [("alpha_over_r", 2.0), ("alpha_over_sqrt_r", sqrt(2.0))])
def test_native_factors_minus_their_start_are_portable_at_twice_the_rank(
    registry: Context, rule: Any, factor: float
) -> None:
    scale = make_scale(8.0, rule, 4)
    head = {"classifier.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    trained, start = (
        {module: random_factor(seed + i, 4, scale) for i, module in enumerate((QUERY, VALUE))} for seed in (1, 11)
    )
    stored.put(registry, "tiny", "raw", trained, head, **NATIVE)
    stored.put(registry, "tiny", "init", start)
    made = convert(registry, "raw", Wish("portable", "portable", initial="init"))
    adapter = stored.load(registry, made.output)
    assert (adapter.family, adapter.initializer, adapter.payload) == (
        "lora" if rule == "alpha_over_r" else "rslora", "none", "portable",
    )  # fmt: skip
    assert [item.name for item in adapter.full_replacements] == ["classifier.weight"]
    assert adapter.full_replacements[0].value == stored.ref(head["classifier.weight"])
    for module, found in output(registry, made).items():
        assert found.a.shape[0] == 8
        assert found.scale.alpha == pytest.approx(factor * 8.0, rel=1e-15)
        assert found.scale.value == pytest.approx(scale.value, rel=1e-15)
        # Only copies and sign changes: the numbers are those of the inputs.
        np.testing.assert_array_equal(found.a, np.concatenate([trained[module].a, -start[module].a]))
        close(found.delta, trained[module].delta - start[module].delta, 1e-12)
    assert made.measurement is not None
    total = made.measurement["total"]
    assert isinstance(total, dict)
    assert total["rounding"] == 0


def test_classic_conversion_works_with_patterns_and_rank_stabilised_does_not(registry: Context) -> None:
    for rule in ("alpha_over_r", "alpha_over_sqrt_r"):
        scales: list[Any] = [(2, make_scale(4.0, rule, 2)), (4, make_scale(4.0, rule, 4))]
        for name, seed in ((f"raw-{rule}", 1), (f"init-{rule}", 5)):
            factors = {m: random_factor(seed + r, r, s) for m, (r, s) in zip((QUERY, VALUE), scales, strict=True)}
            stored.put(registry, "tiny", name.replace("_", "-"), factors, **(NATIVE if "raw" in name else {}))
    made = convert(registry, "raw-alpha-over-r", Wish("portable", initial="init-alpha-over-r"))
    # r 2 -> 4 with alpha 4 -> 8, and the other module's doubled likewise.
    assert [(found.rank, found.scale.alpha) for found in stored.load(registry, made.output).factors] == [
        (4, 8.0),
        (8, 8.0),
    ]
    with pytest.raises(RefusedError, match="PATTERNED_RSLORA"):
        convert(registry, "raw-alpha-over-sqrt-r", Wish("portable", initial="init-alpha-over-sqrt-r"))


@pytest.mark.parametrize(
    ("start", "path"),
    [
        ({QUERY: random_factor(5)}, ("factors", VALUE)),
        ({QUERY: random_factor(5), VALUE: random_factor(6, 3)}, ("factors", VALUE)),
        ({QUERY: random_factor(5), VALUE: random_factor(6, 2, make_scale(2.0, "explicit", 1))}, ("factors", VALUE)),
        ({QUERY: random_factor(1), VALUE: random_factor(2)}, ("factors",)),
    ],
    ids=["a module less", "another rank", "another scale", "the trained factors"],
)
def test_a_snapshot_that_is_not_the_start_of_this_training_is_refused(
    registry: Context, start: dict[str, Factor], path: tuple[str, ...]
) -> None:
    stored.put(registry, "tiny", "raw", {QUERY: random_factor(1), VALUE: random_factor(2)}, **NATIVE)
    stored.put(registry, "tiny", "init", start)
    with pytest.raises(RefusedError) as refused:
        convert(registry, "raw", Wish("portable", initial="init"))
    assert [(problem.code, problem.path) for problem in refused.value.problems] == [("INITIAL_DIFFERS", path)]


@pytest.mark.parametrize("fields", [{}, NATIVE | {"family": "loftq", "initializer": "loftq"}])
def test_only_factors_that_were_taken_out_of_the_base_become_portable(
    registry: Context, fields: dict[str, Any]
) -> None:
    stored.put(registry, "tiny", "raw", {QUERY: random_factor(1)}, **fields)
    stored.put(registry, "tiny", "init", {QUERY: random_factor(5)})
    with pytest.raises(RefusedError, match="CONVERSION_NOT_NATIVE"):
        convert(registry, "raw", Wish("portable", initial="init"))


def test_triplets_become_compact_with_the_scale_of_the_initial_rank(registry: Context) -> None:
    factors = {
        QUERY: triplet(1, [0.5, 0.0, -2.0]),
        VALUE: triplet(2, [1.5]),
        tiny.MODULES[2]: Factor(
            np.zeros((0, tiny.HIDDEN), np.float32), np.zeros((tiny.HIDDEN, 0), np.float32),
            make_scale(2.0, "explicit", 1), {"E": np.zeros((0, 1), np.float32)},
        ),
    }  # fmt: skip
    head = {"classifier.weight": np.ones((2, 3), np.float32)}
    stored.put(registry, "tiny", "ada", factors, head, family="adalora")
    made = convert(registry, "ada", Wish("compact"))
    adapter = stored.load(registry, made.output)
    assert (adapter.family, [item.name for item in adapter.full_replacements]) == ("lora", ["classifier.weight"])
    found = output(registry, made)
    # The masked triplet is gone, and so is the module without any.
    assert {module: item.a.shape[0] for module, item in found.items()} == {QUERY: 2, VALUE: 1}
    for module, item in found.items():
        assert (item.scale.value, dict(item.extra)) == (1.0, {})
        close(item.delta, factors[module].delta)
    np.testing.assert_array_equal(found[VALUE].b, factors[VALUE].b)


def test_an_allocation_that_took_everything_is_refused(registry: Context) -> None:
    stored.put(registry, "tiny", "ada", {QUERY: triplet(1, [0.0, 0.0])}, family="adalora")
    with pytest.raises(RefusedError, match="NOTHING_LEFT"):
        convert(registry, "ada", Wish("compact"))


def test_a_pair_is_no_triplet(registry: Context) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    with pytest.raises(RefusedError, match="NOT_TRIPLETS"):
        convert(registry, "one", Wish("compact"))


def test_a_cast_says_what_rounding_cost_and_keeps_the_scale(registry: Context) -> None:
    factor = random_factor(3, scale=make_scale(3.0, "alpha_over_r", 2))
    stored.put(registry, "tiny", "one", {QUERY: factor}, {"head.weight": np.ones((2, 2), np.float32)})
    made = convert(registry, "one", Wish("cast", "half", store="BF16"))
    adapter = stored.load(registry, made.output)
    assert ({factor.a.dtype for factor in adapter.factors}, adapter.full_replacements[0].value.dtype) == (
        {"BF16"},
        "F32",
    )
    found = output(registry, made)[QUERY]
    assert found.scale == factor.scale
    close(found.delta, factor.delta, 2**-7)
    assert made.measurement is not None
    total: Any = made.measurement["total"]
    error = np.linalg.norm((found.delta - factor.delta) / factor.scale.value)
    assert total["rounding"] == pytest.approx(error, rel=1e-6)
    back = convert(registry, "half", Wish("cast", store="F32"))
    np.testing.assert_array_equal(output(registry, back)[QUERY].a, found.a)


def test_a_balanced_adapter_is_the_same_whatever_gauge_it_came_in(registry: Context) -> None:
    factor = random_factor(4)
    turned = Factor(10 * factor.a, factor.b / np.float32(10), factor.scale)
    stored.put(registry, "tiny", "one", {QUERY: factor})
    stored.put(registry, "tiny", "turned", {QUERY: turned})
    one, two = (output(registry, convert(registry, name, Wish("balanced")))[QUERY] for name in ("one", "turned"))
    for found in (one, two):
        close(found.delta, factor.delta)
        close(found.b.T @ found.b, found.a @ found.a.T, 1e-5)
    close(one.a, two.a, 1e-5)


def test_native_factors_are_neither_cast_nor_balanced(registry: Context) -> None:
    stored.put(registry, "tiny", "raw", {QUERY: random_factor(1)}, **NATIVE)
    for wish in (Wish("cast", store="BF16"), Wish("balanced")):
        with pytest.raises(RefusedError, match="NOT_PORTABLE"):
            convert(registry, "raw", wish)


@pytest.mark.parametrize(
    "factor",
    [
        Factor(random_factor(1).a, random_factor(1).b, extra={"magnitude": np.ones(tiny.HIDDEN, np.float32)}),
        Factor(np.ones((1, 2, 3, 3), np.float32), np.ones((4, 1, 1, 1), np.float32)),
    ],
    ids=["DoRA", "a convolution"],
)
def test_what_is_no_pair_of_matrices_is_refused_by_name(registry: Context, factor: Factor) -> None:
    stored.put(registry, "tiny", "one", {QUERY: factor})
    for wish in (Wish("cast", store="BF16"), Wish("balanced"), Wish("plain_lora")):
        with pytest.raises(RefusedError, match="FACTORS_NOT_PLAIN") as refused:
            convert(registry, "one", wish)
        assert QUERY in refused.value.problems[0].path


def test_a_rebase_is_conditional_and_recorded_with_what_was_accepted(registry: Context, tmp_path: Path) -> None:
    add.add_base(registry, tiny.write_base(tmp_path / "other", tiny.base_tensors(7)), "other")
    parent = stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    with pytest.raises(ConditionError, match="BASE_REPLACED") as refused:
        convert(registry, "one", Wish("rebase", "moved", base="other"))
    assert refused.value.problems[0].expected.endswith(parent.base)
    made = convert(registry, "one", Wish("rebase", "moved", base="other", acknowledge=frozenset({"BASE_REPLACED"})))
    moved = stored.load(registry, made.output)
    assert made.acknowledged == ("BASE_REPLACED",)
    assert moved.base == look.show(registry, "other").digest != parent.base
    assert [item.a for item in moved.factors] == [item.a for item in parent.factors]
    assert verify.verify(registry, deep=True).clean
    assert publish.publish(registry, "bot", ["moved"]).artifacts == (made.conversion,)


def test_a_rebase_to_other_shapes_is_refused_by_module(registry: Context, tmp_path: Path) -> None:
    tensors = tiny.base_tensors()
    tensors[f"{QUERY}.weight"] = np.ones((tiny.HIDDEN, 4), np.float32)
    del tensors[f"{VALUE}.weight"]
    add.add_base(registry, tiny.write_base(tmp_path / "other", tensors), "other")
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1), VALUE: random_factor(2)})
    with pytest.raises(RefusedError) as refused:
        convert(registry, "one", Wish("rebase", base="other", acknowledge=frozenset({"BASE_REPLACED"})))
    assert [(item.path[-1], item.observed) for item in refused.value.problems] == [
        (QUERY, "linear [8, 4]"),
        (VALUE, "no such layer"),
    ]


def test_a_conversion_is_computed_once_and_lies_between_its_adapters(registry: Context) -> None:
    parent = stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    first = convert(registry, "one", Wish("cast", "half", store="F16"))
    again = convert(registry, "one", Wish("cast", "other-name", store="F16"))
    assert (first.created, again.created) == (True, False)
    assert (again.conversion, again.output, again.measurement) == (first.conversion, first.output, first.measurement)
    assert look.show(registry, "half").digest == look.show(registry, "other-name").digest == first.conversion
    up = look.line(registry, "half", "up")
    assert {(node.kind, node.digest) for node in up.nodes} >= {
        ("conversion", first.conversion),
        ("adapter", parent.digest),
    }
    down = look.line(registry, "one", "down")
    assert {(link.child, link.role) for link in down.links} >= {(first.conversion, "parent"), (first.output, "output")}
    shown = look.show(registry, "half")
    assert (shown.manifest["rule"], shown.manifest["store"], shown.manifest["parent"]) == ("cast", "F16", parent.digest)


def test_what_a_conversion_leaves_as_it_was_is_not_recorded(registry: Context) -> None:
    parent = stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    made = convert(registry, "one", Wish("cast", "same", store="F32"))
    assert (made.conversion, made.output, made.created, made.version) == (None, parent.digest, False, 1)
    assert look.show(registry, "same").digest == parent.digest
    assert convert(registry, "one", Wish("cast", store="F32")).version is None


def test_an_option_belongs_to_its_rule(registry: Context) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    for wish in (
        Wish("portable"),
        Wish("rebase"),
        Wish("cast"),
        Wish("balanced", base="tiny"),
        Wish("compact", store="F16"),
    ):
        with pytest.raises(UsageProblemError, match="CONVERSION_OPTION"):
            convert(registry, "one", wish)


def test_a_yanked_adapter_is_not_converted_and_a_taken_name_not_given_twice(registry: Context) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)})
    with pytest.raises(ConflictError):
        convert(registry, "one", Wish("cast", "tiny", store="F16"))
    say.yank(registry, "one", "wrong data")
    with pytest.raises(RefusedError, match="YANKED"):
        convert(registry, "one", Wish("cast", store="BF16"))


def test_a_rank_stabilised_adapter_with_patterns_becomes_plain_with_the_same_deltas(registry: Context) -> None:
    factors = {
        QUERY: random_factor(1, 4, make_scale(8.0, "alpha_over_sqrt_r", 4)),
        VALUE: random_factor(2, 2, make_scale(3.0, "alpha_over_sqrt_r", 2)),
    }
    stored.put(registry, "tiny", "one", factors, family="rslora")
    made = convert(registry, "one", Wish("plain_lora"))
    adapter = stored.load(registry, made.output)
    found = output(registry, made)
    # One rank everywhere, and zeros for the same leaves and the rest of the group in every layer.
    every = {f"encoder.layer.{layer}.attention.self.{leaf}" for layer in (0, 1) for leaf in ("query", "key", "value")}
    assert found.keys() == every
    assert {(factor.rank, factor.scale.alpha, factor.scale.rule) for factor in adapter.factors} == {
        (4, 4.0, "alpha_over_r")
    }
    for module, item in found.items():
        if module in factors:
            close(item.delta, factors[module].delta)
        else:
            assert not item.delta.any()
    again = convert(registry, made.output, Wish("plain_lora"))
    assert (again.conversion, again.output) == (None, made.output)


def test_triplets_become_plain_at_once(registry: Context) -> None:
    factors = {QUERY: triplet(1, [0.5, 0.0, -2.0]), VALUE: triplet(2, [1.5])}
    stored.put(registry, "tiny", "ada", factors, family="adalora")
    found = output(registry, convert(registry, "ada", Wish("plain_lora")))
    for module, factor in factors.items():
        assert found[module].a.shape[0] == 3
        close(found[module].delta, factor.delta)


@pytest.mark.parametrize(
    ("fields", "heads", "path"),
    [
        (NATIVE, {}, ("payload",)),
        ({}, {"classifier.weight": np.ones((2, 3), np.float32)}, ("full_replacements", "classifier.weight")),
    ],
    ids=["native factors", "a head"],
)
def test_what_plain_lora_cannot_say_is_refused_with_the_way_out(
    registry: Context, fields: dict[str, Any], heads: dict[str, Any], path: tuple[str, ...]
) -> None:
    stored.put(registry, "tiny", "one", {QUERY: random_factor(1)}, heads, **fields)
    with pytest.raises(RefusedError) as refused:
        convert(registry, "one", Wish("plain_lora"))
    assert [(problem.code, problem.path) for problem in refused.value.problems] == [("NOT_PLAIN_LORA", path)]


def test_several_experts_of_one_module_are_no_plain_lora(registry: Context) -> None:
    factors = {f"{QUERY}#{i}": random_factor(i, module=QUERY, expert=i) for i in range(2)}
    stored.put(registry, "tiny", "one", factors)
    with pytest.raises(RefusedError, match="NOT_PLAIN_LORA") as refused:
        convert(registry, "one", Wish("plain_lora"))
    assert len(refused.value.problems) == 2


@pytest.fixture
def converted(registry: Context, tmp_path: Path) -> Context:
    """One conversion by each rule."""
    add.add_base(registry, tiny.write_base(tmp_path / "other", tiny.base_tensors(7)), "other")
    stored.put(registry, "tiny", "raw", {QUERY: random_factor(1)}, **NATIVE)
    stored.put(registry, "tiny", "init", {QUERY: random_factor(5)})
    stored.put(registry, "tiny", "ada", {QUERY: triplet(2, [1.5, 0.0])}, family="adalora")
    convert(registry, "raw", Wish("portable", initial="init"))
    convert(registry, "ada", Wish("compact"))
    for wish in (Wish("cast", store="BF16"), Wish("balanced"), Wish("plain_lora")):
        convert(registry, "init", wish)
    convert(registry, "init", Wish("rebase", base="other", acknowledge=frozenset({"BASE_REPLACED"})))
    return registry


def test_converting_again_gives_what_was_recorded(converted: Context) -> None:
    assert verify.verify(converted, recompute=True).clean


@dataclass(frozen=True)
class Skewed:
    """A composer that bakes every scale a little larger than it is told."""

    composer: Composer

    def convert(self, order: ConvertOrder, folder: Path) -> Converted:
        factors = tuple(replace(factor, scale=1.01 * factor.scale) for factor in order.factors)
        return self.composer.convert(replace(order, factors=factors), folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.composer, name)


def test_another_result_of_a_conversion_is_named_with_its_distance(converted: Context) -> None:
    skewed = replace(converted, composer=cast(Composer, Skewed(converted.composer)))
    faults = verify.verify(skewed, recompute=True).faults
    # A rebase computes nothing.
    assert [fault.code for fault in faults] == ["RECOMPUTE_DIFFERS"] * 5
    assert all("deltas 0.0" in fault.observed for fault in faults)


def test_triplets_are_told_the_way_that_keeps_their_head(registry: Context) -> None:
    head = {"classifier.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    stored.put(registry, "tiny", "ada", {QUERY: triplet(1, [1.0, 0.0, 2.0])}, head, family="adalora")
    stored.put(registry, "tiny", "start", {QUERY: random_factor(2, 3)})
    for wish in (Wish("portable", initial="start"), Wish("cast", store="BF16"), Wish("plain_lora")):
        with pytest.raises(RefusedError) as refused:
            convert(registry, "ada", wish)
        assert all("--to compact" in problem.hint for problem in refused.value.problems), wish
    made = stored.load(registry, convert(registry, "ada", Wish("compact", "pairs")).output)
    assert [item.name for item in made.full_replacements] == ["classifier.weight"]
    # What is told can be done: the pairs are no triplets for any of the other rules.
    assert convert(registry, "pairs", Wish("cast", store="BF16")).created
