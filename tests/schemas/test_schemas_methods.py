"""The method catalogue: every system of the page of methods has a row whose claims its oracle executes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from oracles.registry import names
from oracles.runner import run
from schemas.catalogue.methods import Axes, Method, Payload, family, method, method_keys, methods
from schemas.errors import RefusedError
from schemas.model import validate
from schemas.stack import VariantStack

WITNESS: Mapping[str, str | None] = {
    **dict.fromkeys(("lora", "ties", "dare"), "composition_merge"),
    **dict.fromkeys(("qlora", "qdora", "qpissa"), "nf4"),
    **dict.fromkeys(("loramoe", "mixture_of_loras", "mole"), "method_training"),
    **dict.fromkeys(("orthogonal_lora", "amlora"), "continual_state"),
    **dict.fromkeys(("lorahub", "milora_routed", "conditional_mixlora", "sira", "xlora"), "routing_granularity"),
    **dict.fromkeys(("meteora", "lora_switch"), "runtime_execution"),
    **dict.fromkeys(("mode_staged", "mode_integrated"), "mode_composition"),
    **{key: key for key in ("adalora", "rslora", "lora_plus", "lora_fa", "pissa", "loftq", "dora")},
    **{key: key for key in ("switchhead", "mod_training")},
    "hydralora": "shared_factor",
    "moa_attention": "moa",
    "mod_decode": "mod_causal",
    "moe_llava": "multimodal_stage",
    **dict.fromkeys(("online_lora", "replay", "consolidation")),
}
"""The systems of the page of methods and which oracle is whose witness."""

LANES = {
    "hydralora": "shared_a_dense",
    "orthogonal_lora": "olora_ordered",
    "amlora": "amlora_selector",
    **dict.fromkeys(("loramoe", "sira", "milora_routed"), "joint_routed"),
    "mixture_of_loras": "staged_routed",
    **dict.fromkeys(("mole", "xlora", "meteora"), "posthoc_routed"),
    "lora_switch": "pregated_fused",
    "lorahub": "task_composed",
    "conditional_mixlora": "instance_factors",
}
"""The methods that the table of lanes names."""

PINNED = {
    "lora_plus": "ba6a1906",
    "qlora": "7f4e95a",
    "loramoe": "11772888",
    "mole": "8841fe0f",
    "hydralora": "afb693bc",
    "orthogonal_lora": "07117e1f",
    "lorahub": "df73afe5",
    "conditional_mixlora": "af5cc3f4",
    "xlora": "8217992c",
    "meteora": "2d192ad5",
    "moa_attention": "96c33ca",
    "switchhead": "7169ad37, 0bb2f61d",
    "moe_llava": "6cb5f66",
}

FROM_READERS = (
    "lora", "rslora", "dora", "qdora", "pissa", "olora_init", "corda", "lora_ga", "loftq", "adalora", "alora",
    "qa_lora", "bd_lora", "kasa", "hydralora", "loramoe", "orthogonal_lora", "mixlora",
)  # fmt: skip


def row(key: str) -> Method:
    """A row that is there."""
    found = method(key)
    assert found is not None
    return found


@pytest.mark.parametrize("key", WITNESS)
def test_every_system_of_the_page_has_a_row_with_its_witness(key: str) -> None:
    assert row(key).oracle == WITNESS[key]
    assert (row(key).oracle is None) == (row(key).kind == "alternative")


@pytest.mark.parametrize("key", method_keys())
def test_a_claim_is_called_executed_only_where_a_check_of_an_oracle_passes(key: str) -> None:
    found = row(key)
    assert found.oracle is None or found.oracle in names()
    for claim in found.claims:
        if claim.witness is not None:
            assert claim.witness.check in {check.name for check in run(claim.witness.oracle).checks if check.passed}
    assert found.kind == "alternative" or any(claim.witness or claim.evidence == "derived" for claim in found.claims)


def test_the_lanes_are_those_of_the_table_and_every_other_adapter_stands_alone() -> None:
    assert {key: row(key).lane for key in LANES} == LANES
    others = {key for key, found in methods().items() if found.kind in ("adapter", "pool")} - LANES.keys()
    assert {row(key).lane for key in others - {"mixlora"}} == {"independent"}


@pytest.mark.parametrize("key", PINNED)
def test_a_pinned_revision_stands_in_the_row_of_the_code(key: str) -> None:
    code = row(key).code
    assert code is not None
    assert PINNED[key] in code.source


def test_paper_and_code_say_two_things_where_both_have_a_row() -> None:
    for found in methods().values():
        assert found.code is None or found.code.says != found.paper.says


@pytest.mark.parametrize("key", FROM_READERS)
def test_every_family_a_reader_gives_has_one_frozen_contract(key: str) -> None:
    assert family(key) is not None
    assert family(key) is family(key)


@pytest.mark.parametrize("key", ["ties", "moe_llava", "replay", "no_such_family", "LORA", ""])
def test_what_is_no_family_of_adapters_has_no_contract(key: str) -> None:
    assert family(key) is None


def test_axes_use_the_words_of_a_stack_wherever_a_stack_has_the_word() -> None:
    plain, ours = VariantStack().document(), Axes().document()
    assert ours == plain
    known = {axis: {*get_args(VariantStack.model_fields[axis].annotation)} for axis in plain if axis != "optimizers"}
    for key in ("qlora", "rslora", "adalora", "dora", "qdora", "pissa", "qpissa", "loftq", "lora_plus", "lora_fa"):
        axes = row(key).axes
        assert axes is not None
        document = axes.document()
        assert all(document[axis] in words for axis, words in known.items())


def test_each_payload_and_kind_of_role_is_used_by_some_family() -> None:
    contracts = [found.contract for found in methods().values() if found.contract]
    assert {payload for contract in contracts for payload in contract.payloads} == set(get_args(Payload))
    assert {role for contract in contracts for role in contract.roles} == {"E", "bias", "diag", "magnitude"}


def document(key: str) -> dict[str, Any]:
    return row(key).document()


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("lora", {"contract": None}),
        ("lora", {"axes": None}),
        ("ties", {"contract": document("lora")["contract"]}),
        ("ties", {"lane": None}),
        ("moe_llava", {"lane": "independent"}),
        ("dora", {"confused": []}),
        ("dora", {"kind": "optimizer"}),
        ("dora", {"claims": [{"claim": "It is better.", "evidence": "executed"}]}),
        ("dora", {"claims": [{"claim": "It is.", "evidence": "derived", "witness": {"oracle": "dora", "check": "U"}}]}),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(key: str, change: dict[str, Any]) -> None:
    assert validate(Method, document(key)) == row(key)
    with pytest.raises(RefusedError):
        validate(Method, {**document(key), **change})
