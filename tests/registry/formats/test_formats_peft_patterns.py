"""Our matching of module names against PEFT's own functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from registry.formats.peft.config import LoraSettings, read_settings
from registry.formats.peft.targets import rank_and_scale, targeted
from schemas.errors import Problem

NAMES = [
    f"{prefix}{layers}.{n}.{leaf}"
    for prefix in ("", "bert.", "bert.encoder.")
    for layers in ("layer", "h", "layer.1.experts")
    for n in (0, 1, 11)
    for leaf in ("attention.self.query", "attention.self.value", "output.dense", "query_extra")
]
LEAVES = st.sampled_from(["query", "value", "dense", "self.query", "uery", "output.dense", NAMES[0], NAMES[13]])
EXPRESSIONS = st.sampled_from([r".*query", r"bert\..*(query|value)", r".*\.(0|1)\..*dense", "query", r".*layer\.1\..*"])
KEYS = st.sampled_from(
    ["query", "value", r"layer\.1\..*", r"layer\.0\..*query", r"^bert\..*dense", "self.query", "e.*y", NAMES[0], "no"]
)


def config(**fields: object) -> dict[str, Any]:
    plain = {"peft_type": "LORA", "peft_version": "0.21.2", "r": 8, "lora_alpha": 16, "target_modules": ["query"]}
    return plain | fields


def problems_of(settings: LoraSettings, module: str) -> list[Problem]:
    return rank_and_scale(settings, module, 0)[2]


@given(
    st.lists(LEAVES, min_size=1, max_size=3) | EXPRESSIONS,
    st.none() | st.lists(LEAVES, max_size=2) | EXPRESSIONS,
    st.none() | st.integers(0, 12) | st.lists(st.integers(0, 12), max_size=3),
    st.none()
    | st.sampled_from(["layer", "h", "layers", "l.*r"])
    | st.lists(st.sampled_from(["h", "layer"]), max_size=2),
)
def test_targets_are_those_of_peft(targets: Any, excluded: Any, layers: Any, pattern: Any) -> None:
    by_layer = {} if isinstance(targets, str) else {"layers_to_transform": layers}
    if by_layer and layers is not None:
        by_layer["layers_pattern"] = pattern
    fields = {"target_modules": targets, "exclude_modules": excluded, **by_layer}
    settings, theirs = read_settings(config(**fields)), LoraConfig(**fields)
    for name in NAMES:
        expected = bool(check_target_module_exists(theirs, name))
        assert targeted(settings, name, "linear", output=False) == expected, name


@given(st.dictionaries(KEYS, st.integers(1, 64), max_size=4), st.dictionaries(KEYS, st.integers(1, 64), max_size=4))
def test_rank_and_scale_are_those_of_peft_unless_patterns_overlap(
    ranks: dict[str, int], alphas: dict[str, int]
) -> None:
    settings = read_settings(config(rank_pattern=ranks, alpha_pattern=alphas))
    for name in NAMES:
        orders = [dict(sorted(ranks.items())), dict(sorted(ranks.items(), reverse=True))]
        theirs = {order.get(get_pattern_key(order.keys(), name), 8) for order in orders}
        alpha_orders = [dict(sorted(alphas.items())), dict(sorted(alphas.items(), reverse=True))]
        their_alphas = {order.get(get_pattern_key(order.keys(), name), 16) for order in alpha_orders}
        ours, scale, problems = rank_and_scale(settings, name, 0)
        found = {problem.path[1] for problem in problems}
        if "rank_pattern" not in found:
            assert theirs == {ours}
        if not found:
            (alpha,), (rank,) = their_alphas, theirs
            assert scale.value == alpha / rank


def older_key(keys: Iterable[str], module: str) -> str:
    """`get_pattern_key` of PEFT 0.14, and the rule of the releases before it."""
    return next(filter(lambda key: re.match(rf".*\.{key}$", module), keys), module)


@given(st.dictionaries(KEYS, st.integers(1, 64), max_size=4), st.dictionaries(KEYS, st.integers(1, 64), max_size=4))
def test_the_version_decides_between_the_pattern_rules(ranks: dict[str, int], alphas: dict[str, int]) -> None:
    if any(key.startswith("^") for key in (*ranks, *alphas)):
        return
    for version, ordered in (("0.14.0", (ranks, alphas)), ("0.13.2", ([*ranks, *alphas], [*ranks, *alphas]))):
        settings = read_settings(config(rank_pattern=ranks, alpha_pattern=alphas, peft_version=version))
        for name in NAMES:
            rank_key, alpha_key = (older_key(keys, name) for keys in ordered)
            rank, scale, _ = rank_and_scale(settings, name, 0)
            assert (rank, scale.alpha) == (ranks.get(rank_key, 8), alphas.get(alpha_key, 16))


def test_without_a_version_a_config_that_means_two_things_is_refused() -> None:
    name = "bert.layer.0.attention.self.query"
    patterns = {"rank_pattern": {"query": 4}, "alpha_pattern": {"self.query": 32}}
    settings = read_settings(config(peft_version=None, **patterns))
    assert [problem.code for problem in rank_and_scale(settings, name, 4)[2]] == ["PATTERN_AMBIGUOUS"]
    for version, alpha in (("0.13.0", 16), ("0.14.0", 32), ("0.20.1.dev0", 32)):
        told = read_settings(config(peft_version=version, **patterns))
        assert (rank_and_scale(told, name, 4)[1].alpha, rank_and_scale(told, name, 4)[2]) == (alpha, [])


def test_without_a_version_the_rank_of_the_tensors_tells_the_rule() -> None:
    settings = read_settings(config(peft_version=None, rank_pattern={"layer.0.query": 4}))
    for rank in (4, 8):
        assert rank_and_scale(settings, "layer.0.query", rank)[::2] == (4, [])
    rooted = read_settings(config(peft_version=None, rank_pattern={"lay.*query": 4}))
    for rank in (4, 8):
        assert rank_and_scale(rooted, "layer.0.query", rank)[::2] == (rank, [])


def test_overlap_is_refused_only_for_different_values() -> None:
    overlapping = read_settings(config(rank_pattern={"query": 4, r"layer\.0\..*": 2}))
    agreeing = read_settings(config(rank_pattern={"query": 4, r"layer\.0\..*query": 4}))
    name = "layer.0.attention.self.query"
    problem = problems_of(overlapping, name)[0]
    assert (problem.code, problem.path) == ("PATTERN_OVERLAP", ("adapter_config.json", "rank_pattern", name))
    assert problems_of(agreeing, name) == []


def test_all_linear_leaves_out_embeddings_and_the_output() -> None:
    settings = read_settings(config(target_modules="All-Linear", exclude_modules=["dense"]))
    assert targeted(settings, "a.query", "linear", output=False)
    assert not targeted(settings, "a.dense", "linear", output=False)
    assert not targeted(settings, "lm_head", "linear", output=True)
    assert not targeted(settings, "embed_tokens", "embedding", output=False)


@pytest.mark.parametrize(
    "expression", [r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|k_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.x)"]
)
def test_expressions_of_other_trainers_are_accepted(expression: str) -> None:
    settings = read_settings(config(target_modules=expression))
    assert targeted(settings, "model.layers.0.self_attn.q_proj", "linear", output=False)
