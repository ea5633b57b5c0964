"""Every family against its contract: what a legal adapter of it is told, and what one is that lacks a part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, Order, Role
from schemas.base import BaseManifest, TensorRef, WeightRef
from schemas.catalogue.methods import Contract, Form, family, methods
from schemas.decision import Decision
from schemas.digests import blob_digest
from schemas.methods import Choices, Lane, SvdChoices
from tests.validators.examples import (
    SHAPES,
    codes,
    judge,
    make_adapter,
    make_base,
    make_factor,
    make_spec,
    packed,
    tensor,
)
from validators import decide, judge_adapter, judged_by_form
from validators.rules.family import NOT_SUMMED
from validators.rules.training import frozen_a

BASE = make_base()
QUERY = "layers.0.q_proj"
SHAPE = {"E": (2, 1), "magnitude": (8,), "bias": (8,), "diag": (2,)}
"""The stored shapes of every role on a module of 8 rows at rank 2."""

FAMILIES = {key: row.contract for key, row in methods().items() if row.contract is not None}
ALLOWED: Mapping[Form, set[str]] = {
    "additive": set(),
    "residual": set(),
    "coupled": set(),
    **{form: {code} for form, code in NOT_SUMMED.items()},
}


def legal(key: str, base: BaseManifest = BASE, **changes: Any) -> AdapterManifest:
    """An adapter of one module that holds everything its family names and nothing else."""
    contract = FAMILIES[key]
    roles = {role: tensor(f"{key} {role}", *SHAPE[role]) for role in contract.roles}
    factor = make_factor(base.digest, QUERY, (8, 6), label=key, rule=contract.scale[0], extra=roles)
    factor = factor.model_copy(update={"source": key})
    portable = contract.initializers[0] == "none"
    made = AdapterManifest(
        base=base.digest,
        factors=(factor,),
        family=key,
        initializer=contract.initializers[0],
        payload="portable" if portable else "native",
        training=dict.fromkeys(contract.training, "2"),
    )
    if "frozen_a" in contract.training:
        made = made.model_copy(update={"training": {**made.training, "frozen_a": frozen_a(made)}})
    return made.model_copy(update=changes)


def on_its_base(key: str) -> Decision:
    """The decision about a legal adapter on a base of the kind its family needs."""
    if not FAMILIES[key].quantized:
        return judge(BASE, legal(key))
    low_bit = make_base(quantizer=packed())
    return judge(low_bit, legal(key, low_bit))


@pytest.mark.parametrize("key", FAMILIES)
def test_a_legal_adapter_is_refused_only_for_what_its_family_is(key: str) -> None:
    contract = FAMILIES[key]
    expected = ALLOWED[contract.form] | ({"LORA_BIAS_NOT_COMPOSED"} if "bias" in contract.roles else set())
    if contract.initializers != ("none",) and "none" not in contract.initializers:
        expected |= {"INITIALIZER_MUTATES_BASE", "PAYLOAD_NOT_PORTABLE"}
    decision = on_its_base(key)
    assert set(codes(decision)) == expected
    assert (decision.outcome == "admitted") == (not expected)


@pytest.mark.parametrize("key", FAMILIES)
def test_other_numbers_of_one_form_are_refused_only_where_a_family_shares_or_freezes_them(key: str) -> None:
    base = make_base(quantizer=packed()) if FAMILIES[key].quantized else BASE
    pair = tuple(legal(key, base).factors[0].model_copy(update={"expert": expert}) for expert in (0, 1))
    one = legal(key, base, factors=pair)
    if "frozen_a" in one.training:
        one = one.model_copy(update={"training": one.training | {"frozen_a": frozen_a(one)}})
    assert judge_adapter(one, base) == ()
    other = one.model_copy(update={"factors": tuple(map(redrawn, pair))})
    assert (judge_adapter(other, base) == ()) == judged_by_form(key)


def redrawn(factor: FactorManifest) -> FactorManifest:
    """The factor with another digest for every tensor, another one for each expert."""

    def drawn(role: str, ref: TensorRef) -> TensorRef:
        return ref.model_copy(update={"tensor": blob_digest(f"{role} of {factor.expert}".encode())})

    extra = {role: drawn(role, ref) for role, ref in factor.extra.items()}
    return factor.model_copy(update={"a": drawn("a", factor.a), "b": drawn("b", factor.b), "extra": extra})


def test_every_form_is_composed_or_refused_by_a_code_of_its_own() -> None:
    assert {contract.form for contract in FAMILIES.values()} == set(get_args(Form)) == ALLOWED.keys()
    assert len(set(NOT_SUMMED.values())) == len(NOT_SUMMED)


WITH_ROLES = [(key, role) for key, contract in FAMILIES.items() for role in contract.roles]


@pytest.mark.parametrize(("key", "role"), WITH_ROLES)
def test_a_factor_without_a_tensor_of_its_family_is_named_with_module_and_role(key: str, role: str) -> None:
    whole = legal(key)
    bare = whole.factors[0].model_copy(update={"extra": {}})
    decision = judge(BASE, whole.model_copy(update={"factors": (bare,)}))
    (found,) = (finding for finding in decision.findings if finding.code == "ROLE_MISSING")
    assert (found.path, found.expected, found.observed) == (
        ("factors", QUERY, "extra", role),
        role,
        "no such tensor",
    )


@pytest.mark.parametrize(("key", "role"), WITH_ROLES)
def test_a_tensor_of_another_length_than_its_axis_is_refused(key: str, role: str) -> None:
    whole = legal(key)
    long = whole.factors[0].model_copy(update={"extra": {role: tensor("longer", 7)}})
    decision = judge(BASE, whole.model_copy(update={"factors": (long,)}))
    (found,) = (finding for finding in decision.findings if finding.code == "ROLE_SHAPE_MISMATCH")
    wanted = SHAPE[role][0]
    assert (found.expected, found.observed) == (f"{wanted} values", "7")


def test_a_single_value_and_the_axes_of_a_kernel_are_counted_as_elements() -> None:
    one = make_adapter(BASE, shapes={QUERY: (8, 6)}, family="dora", factor={"extra": {"magnitude": tensor("m")}})
    assert "ROLE_SHAPE_MISMATCH" in codes(judge(BASE, one))
    kernel = make_factor(
        BASE.digest,
        QUERY,
        (8, 6),
        a=tensor("a", 2, 6, 3, 3),
        b=tensor("b", 8, 2, 1, 1),
        extra={"magnitude": tensor("m", 1, 8, 1, 1)},
    )
    decision = judge(BASE, AdapterManifest(base=BASE.digest, factors=(kernel,), family="dora"))
    assert set(codes(decision)) == {"DORA_NOT_ADDITIVE", "TARGET_SHAPE_MISMATCH"}


@pytest.mark.parametrize(
    ("weight", "order", "a", "b"),
    [
        ((6, 8), "(B@A)^T", (2, 6), (8, 2)),
        ((8, 6, 3, 1), "B@A", (2, 6, 3, 1), (8, 2, 1, 1)),
    ],
)
def test_tables_and_kernels_are_composed_where_the_weight_has_their_shape(
    weight: tuple[int, ...], order: Order, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    ref = WeightRef(tensor=tensor("w").tensor, dtype="F32", shape=weight)
    for shape, wanted in ((weight, []), ((*weight[:-1], 5), ["TARGET_SHAPE_MISMATCH"])):
        base = make_base({f"{QUERY}.weight": ref.model_copy(update={"shape": shape})})
        factor = make_factor(base.digest, QUERY, (8, 6), a=tensor("a", *a), b=tensor("b", *b), order=order)
        decision = judge(base, AdapterManifest(base=base.digest, factors=(factor,), family="lora"))
        assert codes(decision) == wanted


def test_a_kernel_counts_in_the_largest_rank() -> None:
    base = make_base({f"{QUERY}.weight": WeightRef(tensor=tensor("w").tensor, dtype="F32", shape=(8, 2, 2, 2))})
    factor = make_factor(base.digest, QUERY, (8, 2), a=tensor("a", 2, 2, 2, 2), b=tensor("b", 8, 2, 1, 1))
    adapter = AdapterManifest(base=base.digest, factors=(factor,), family="lora")
    for rank, wanted in ((8, []), (9, ["RANK_TOO_LARGE"])):
        choices = Choices(rank=rank, svd=SvdChoices())
        assert codes(judge(base, adapter, method="delta_svd", choices=choices)) == wanted


STACKED: dict[str, Any] = {"order": "B[o,r,e]A[e,r,i]", "rank": 2}
DOWN = "layers.0.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("weight", "sides", "wanted"),
    [
        ((3, 8, 6), (8, 6), []),
        ((3, 8, 6), (6, 8), []),
        ((3, 8, 6), (8, 5), ["TARGET_SHAPE_MISMATCH"]),
        ((4, 8, 6), (8, 6), ["TARGET_SHAPE_MISMATCH"]),
        (None, (8, 6), ["TARGET_MODULE_MISSING"]),
    ],
    ids=["output first", "input first", "another width", "another number of experts", "no such parameter"],
)
def test_stacked_experts_are_composed_where_the_parameter_has_their_shape(
    weight: tuple[int, ...] | None, sides: tuple[int, int], wanted: list[str]
) -> None:
    ref = WeightRef(tensor=tensor("w").tensor, dtype="F32", shape=weight or (1,))
    base = make_base({DOWN if weight else "other": ref})
    a, b = tensor("a", 6, sides[1]), tensor("b", sides[0], 6)
    factor = make_factor(base.digest, DOWN, sides, a=a, b=b, **STACKED)
    assert codes(judge(base, AdapterManifest(base=base.digest, factors=(factor,), family="lora"))) == wanted


def test_members_of_one_stacked_parameter_agree_on_its_axes() -> None:
    ref = WeightRef(tensor=tensor("w").tensor, dtype="F32", shape=(3, 8, 6))
    base = make_base({DOWN: ref})
    straight, turned = (
        AdapterManifest(
            base=base.digest,
            factors=(make_factor(base.digest, DOWN, sides, a=tensor(f"a{sides}", 6, sides[1]), b=b, **STACKED),),
            family="lora",
        )
        for sides, b in (((8, 6), tensor("b", 8, 6)), ((6, 8), tensor("c", 6, 6)))
    )
    found = [item for item in judge(base, straight, turned).findings if item.code == "ORDERS_DIFFER"]
    assert [(item.path, item.expected) for item in found] == [(("factors", DOWN, "order"), "one order")]


def test_a_pool_numbers_its_own_experts_and_an_adapter_that_is_no_pool_does_not() -> None:
    factors = tuple(make_factor(BASE.digest, QUERY, (8, 6), expert=expert) for expert in (0, 1))
    pool = AdapterManifest(base=BASE.digest, factors=factors, family="loramoe")
    assert codes(judge(BASE, pool)) == ["EXPERT_POOL_FUSED"]
    assert codes(judge(BASE, pool.model_copy(update={"family": "lora"}))) == ["SITE_NOT_IN_BASE"] * 2


def test_a_family_is_asked_of_every_factor_too() -> None:
    factor = make_factor(BASE.digest, QUERY, (8, 6)).model_copy(update={"source": "peft"})
    decision = judge(BASE, AdapterManifest(base=BASE.digest, factors=(factor,), family="lora"))
    (found,) = decision.findings
    assert (found.code, found.path) == ("FAMILY_UNKNOWN", ("factors", QUERY, "source"))


@pytest.mark.parametrize(
    ("ratio", "refused"), [("16", False), ("1", True), ("1.0", True), ("0", True), ("nan", True), ("many", True)]
)
def test_a_ratio_is_a_positive_number_that_is_not_one(ratio: str, refused: bool) -> None:
    member = legal("lora_plus", training={"rate_ratio": ratio, "group_classifier": "peft_0_19"})
    assert ("RATES_EQUAL" in codes(judge(BASE, member))) is refused


def test_the_frozen_a_of_another_adapter_of_the_same_shape_is_refused() -> None:
    mine = legal("lora_fa")
    other = legal("lora_fa").factors[0].model_copy(update={"a": tensor("other a", 2, 6)})
    swapped = mine.model_copy(update={"factors": (other,)})
    decision = judge(BASE, swapped)
    (found,) = decision.findings
    assert (found.code, found.expected) == ("FROZEN_A_DIFFERS", mine.training["frozen_a"])
    assert found.observed == frozen_a(swapped) != frozen_a(mine)


def test_an_allocators_resume_names_the_averages_it_lacks_and_takes_those_it_has() -> None:
    bare = legal("adalora", payload="resume")
    (found,) = (item for item in judge(BASE, bare).findings if item.code == "ALLOCATOR_STATE_MISSING")
    assert (found.expected, found.observed) == (
        "importance, uncertainty",
        "no importance, uncertainty in every factor",
    )
    averages = {role: tensor(role, 2, 1) for role in ("E", "importance", "uncertainty")}
    whole = bare.factors[0].model_copy(update={"extra": averages})
    decision = judge(BASE, bare.model_copy(update={"factors": (whole,)}))
    assert set(codes(decision)) == {"ADALORA_NOT_COMPACT", "PAYLOAD_NOT_PORTABLE"}


def test_a_resume_of_a_family_without_an_allocator_is_no_payload_of_it() -> None:
    assert codes(judge(BASE, legal("lora", payload="resume"))) == ["PAYLOAD_FOREIGN", "PAYLOAD_NOT_PORTABLE"]


def test_rows_and_values_of_a_table_are_one_table_with_one_owner() -> None:
    def owner(label: str) -> AdapterManifest:
        parts = [
            FullReplacement(name="embed.weight#rows", value=tensor("rows", 2, dtype="I64")),
            FullReplacement(name="embed.weight#values", value=tensor(f"{label} values", 2, 6)),
        ]
        return make_adapter(BASE, label, full_replacements=tuple(parts))

    assert codes(judge(BASE, owner("one"), make_adapter(BASE, "two"))) == ["TOKEN_ROWS_NOT_COMPOSED"]
    decision = judge(BASE, owner("one"), owner("two"))
    assert codes(decision).count("REPLACEMENT_OWNED_TWICE") == 1
    assert ("full_replacements", "embed.weight") in {finding.path for finding in decision.findings}


def test_a_head_one_member_replaces_and_another_adapts_is_a_conflict_that_names_it() -> None:
    replaced = FullReplacement(name=f"{QUERY}.weight", value=tensor("trained", 8, 6))
    owner = make_adapter(BASE, "owner", shapes={"layers.1.q_proj": (8, 6)}, full_replacements=(replaced,))
    decision = judge(BASE, owner, make_adapter(BASE, "other", shapes=SHAPES))
    (found,) = decision.refusals
    assert (found.code, found.path) == ("REPLACEMENT_ADAPTED", ("full_replacements", f"{QUERY}.weight"))
    assert decision.vector.algebra.status == "conflict"


ROLES: Mapping[str, str] = {"lora": "bias", "dora": "bias", "adalora": "importance"}


@pytest.mark.parametrize("key", ROLES)
def test_an_optional_tensor_of_the_family_is_not_called_foreign(key: str) -> None:
    contract, whole = FAMILIES[key], legal(key)
    assert ROLES[key] in (*contract.optional, *contract.resume)
    more = {**whole.factors[0].extra, ROLES[key]: tensor("more", 8)}
    decision = judge(BASE, whole.model_copy(update={"factors": (whole.factors[0].model_copy(update={"extra": more}),)}))
    assert "EXTRA_TENSOR_NOT_COMPOSED" not in codes(decision)


def test_contracts_name_roles_in_the_letters_a_manifest_takes() -> None:
    pattern = get_args(Role)[1].pattern
    for contract in FAMILIES.values():
        assert isinstance(contract, Contract)
        assert all(re.fullmatch(pattern, role) for role in (*contract.roles, *contract.optional, *contract.resume))
    assert family("dora") is FAMILIES["dora"]


MIXED = [legal(key) for key in ("lora", "rslora", "dora", "adalora", "pissa", "hydralora", "lora_plus")]
MANIFESTS = {adapter.digest: adapter for adapter in MIXED}


@given(st.permutations(range(len(MIXED))), st.sampled_from(["static_fusion", "independent", "posthoc_routed"]))
def test_members_of_every_kind_get_one_answer_in_every_order(order: list[int], lane: Lane) -> None:
    straight = make_spec(BASE, *MIXED, lane=lane)
    permuted = make_spec(BASE, *(MIXED[place] for place in order), lane=lane)
    backwards = dict(reversed(MANIFESTS.items()))
    assert decide(permuted, BASE, backwards, {}) == decide(straight, BASE, MANIFESTS, {})


@given(st.sets(st.sampled_from(range(len(MIXED))), min_size=1), st.sampled_from(range(len(MIXED))))
def test_one_more_member_never_makes_a_refusal_an_admission(chosen: set[int], more: int) -> None:
    few = judge(BASE, *(MIXED[place] for place in chosen))
    many = judge(BASE, *(MIXED[place] for place in chosen | {more}))
    assert few.outcome != "refused" or many.outcome == "refused"
