"""Our matching of module names against PEFT's own functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from registry.formats.peft.config import read_settings
from registry.formats.peft.targets import overlap_problems, rank_of, scale_of, targeted

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
    plain = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["query"]}
    return plain | fields


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
        assert targeted(settings, name, linear=True, output=False) == expected, name


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
        found = {problem.path[1] for problem in overlap_problems(settings, [name])}
        if "rank_pattern" not in found:
            assert theirs == {rank_of(settings, name)}
        if not found:
            (alpha,), (rank,) = their_alphas, theirs
            assert scale_of(settings, name).value == alpha / rank


def test_overlap_is_refused_only_for_different_values() -> None:
    overlapping = read_settings(config(rank_pattern={"query": 4, r"layer\.0\..*": 2}))
    agreeing = read_settings(config(rank_pattern={"query": 4, r"layer\.0\..*query": 4}))
    name = "layer.0.attention.self.query"
    problem = overlap_problems(overlapping, [name])[0]
    assert (problem.code, problem.path) == ("PATTERN_OVERLAP", ("adapter_config.json", "rank_pattern", name))
    assert overlap_problems(agreeing, [name]) == []


def test_all_linear_leaves_out_embeddings_and_the_output() -> None:
    settings = read_settings(config(target_modules="All-Linear", exclude_modules=["dense"]))
    assert targeted(settings, "a.query", linear=True, output=False)
    assert not targeted(settings, "a.dense", linear=True, output=False)
    assert not targeted(settings, "lm_head", linear=True, output=True)
    assert not targeted(settings, "embed_tokens", linear=False, output=False)


@pytest.mark.parametrize(
    "expression", [r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|k_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.x)"]
)
def test_expressions_of_other_trainers_are_accepted(expression: str) -> None:
    settings = read_settings(config(target_modules=expression))
    assert targeted(settings, "model.layers.0.self_attn.q_proj", linear=True, output=False)
