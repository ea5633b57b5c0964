"""What single fields and combinations of fields accept."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.adapter import AdapterManifest, FactorManifest, make_scale, scale_value, sorted_factors
from schemas.base import BaseManifest, WeightRef, weights_digest
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.composition import (
    CLAIMS,
    ORDERED_LANES,
    AdmissionManifest,
    Claims,
    CompositionManifest,
    ResolvedMember,
    ResolvedSpec,
    in_identity_order,
)
from schemas.digests import manifest_digest
from schemas.errors import RefusedError
from schemas.methods import Choices
from schemas.model import validate
from schemas.publication import PublicationManifest
from tests.schemas.chain import (
    Path,
    adapter_document,
    base_document,
    build,
    digest_of,
    factor_document,
    publication_document,
    replaced,
    value_at,
)
from tests.schemas.strategies import members

CHAIN = build()
BASE = digest_of("base")
FACTOR = factor_document(BASE, "q_proj")


def refusal(model: Any, document: JsonValue, path: Path, value: JsonValue) -> str:
    """The refusal of a document with one value replaced: its path and what was expected."""
    with pytest.raises(RefusedError) as caught:
        validate(model, replaced(document, path, lambda _: value))
    (problem, *_) = caught.value.problems
    assert problem.code == "MANIFEST_INVALID"
    return f"{problem.pointer} {problem.expected}"


@pytest.mark.parametrize("value", [True, "2", 2.5, None, -1, 2**31 + 1])
def test_a_rank_is_a_whole_positive_number_and_neither_bool_nor_text(value: JsonValue) -> None:
    assert refusal(FactorManifest, FACTOR, ("rank",), value).startswith("/rank ")


@pytest.mark.parametrize("value", [True, "4", None])
def test_an_alpha_is_a_number_and_neither_bool_nor_text(value: JsonValue) -> None:
    assert refusal(FactorManifest, FACTOR, ("scale", "alpha"), value).startswith("/scale/alpha ")


def test_whole_numbers_written_as_decimals_are_the_same_manifest() -> None:
    one = validate(FactorManifest, replaced(FACTOR, ("scale", "alpha"), lambda _: 4))
    assert one == validate(FactorManifest, FACTOR)
    assert b'"alpha":4,' in one.canonical()


@pytest.mark.parametrize(
    "digest",
    ["blake3:", "blake3:" + "0" * 63, "blake3:" + "0" * 65, "blake3:" + "A" * 64, "sha256:" + "0" * 64, "0" * 64],
)
def test_a_digest_in_a_manifest_is_whole_and_lower_case(digest: str) -> None:
    assert refusal(FactorManifest, FACTOR, ("base",), digest).startswith("/base ")
    assert refusal(FactorManifest, FACTOR, ("base",), f"blake3:{'0' * 64}\n").startswith("/base ")


@pytest.mark.parametrize("module", ["", "q proj", "q\n", "é", "x" * 513])
def test_a_module_name_is_printable_ascii_without_spaces(module: str) -> None:
    assert refusal(FactorManifest, FACTOR, ("module",), module).startswith("/module ")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("a", "shape"), [12], "a and b are matrices, or a convolution's kernel and a 1 x 1 one"),
        (("b", "shape"), [6, 2, 1], "a and b are matrices, or a convolution's kernel and a 1 x 1 one"),
        (("a", "shape"), [6, 2], "rank is the rows of a and the columns of b, of one expert where they are stacked"),
        (("b", "shape"), [2, 6], "rank is the rows of a and the columns of b, of one expert where they are stacked"),
        (("rank",), 3, "rank is the rows of a and the columns of b, of one expert where they are stacked"),
        (("scale", "value"), 4.0, "scale value does not follow"),
        (("scale", "rule"), "alpha_over_sqrt_r", "scale value does not follow"),
    ],
)
def test_shapes_rank_and_scale_of_a_factor_agree(path: Path, value: JsonValue, said: str) -> None:
    assert said in refusal(FactorManifest, FACTOR, path, value)


def factor_with(**fields: JsonValue) -> FactorManifest:
    return validate(FactorManifest, {**FACTOR, **fields})


def shaped(*shape: int) -> JsonObject:
    return {"tensor": f"blake3:{'0' * 64}", "dtype": "F32", "shape": list(shape)}


def test_rank_zero_is_only_that_of_triplets_all_taken() -> None:
    explicit: JsonObject = {"alpha": 2.0, "rule": "explicit", "value": 2.0, "applied": "output"}
    empty: JsonObject = {"a": shaped(0, 6), "b": shaped(6, 0), "rank": 0, "scale": explicit}
    assert factor_with(**empty, extra={"E": shaped(0, 1)}).rank == 0
    with pytest.raises(RefusedError, match="rank 0 needs E"):
        factor_with(**empty)


def test_a_convolution_has_its_kernel_in_a() -> None:
    kernel: JsonObject = {"a": shaped(2, 6, 3, 3), "b": shaped(6, 2, 1, 1)}
    assert factor_with(**kernel).a.shape == (2, 6, 3, 3)
    for wrong in ({"b": shaped(6, 2, 3, 3)}, {"order": "(B@A)^T"}):
        with pytest.raises(RefusedError, match="kernel"):
            factor_with(**kernel | wrong)


def test_stacked_experts_share_a_rank() -> None:
    stacked: JsonObject = {"a": shaped(8, 6), "b": shaped(5, 8), "order": "B[o,r,e]A[e,r,i]"}
    assert factor_with(**stacked).rank == 2
    with pytest.raises(RefusedError, match="rank is the rows"):
        factor_with(**stacked | {"a": shaped(7, 6), "b": shaped(5, 7)})


@pytest.mark.parametrize(
    ("rule", "value"), [("alpha_over_r", 2.0), ("alpha_over_sqrt_r", 8.0 / sqrt(4.0)), ("explicit", 8.0)]
)
def test_each_scale_rule_gives_its_multiplier(rule: Any, value: float) -> None:
    assert scale_value(8.0, rule, 4) == value
    assert make_scale(8, rule, 4).model_dump() == {"alpha": 8.0, "rule": rule, "value": value, "applied": "output"}


def test_factors_are_sorted_by_site_where_absent_comes_first() -> None:
    sites: list[JsonObject] = [
        {"module": "a", "expert": None},
        {"module": "a", "expert": 0},
        {"module": "a", "expert": 2},
        {"module": "a", "expert": 10},
        {"module": "b", "expert": None},
    ]
    ordered = [validate(FactorManifest, {**FACTOR, **site}) for site in sites]
    assert sorted_factors(ordered[::-1]) == tuple(ordered)
    adapter = adapter_document(BASE, ordered[0])
    written: list[JsonValue] = [factor.document() for factor in ordered]
    assert validate(AdapterManifest, {**adapter, "factors": written}).factors == tuple(ordered)
    for wrong in (written[::-1], [written[0], written[0]]):
        assert "sorted by module" in refusal(AdapterManifest, adapter, ("factors",), wrong)


def test_an_adapter_has_factors_of_its_own_base_only() -> None:
    adapter = adapter_document(BASE, validate(FactorManifest, FACTOR))
    assert "the adapter's base" in refusal(AdapterManifest, adapter, ("base",), digest_of("another"))
    assert refusal(AdapterManifest, adapter, ("factors",), []).startswith("/factors ")


def test_replacements_are_sorted_each_once() -> None:
    adapter = adapter_document(BASE, validate(FactorManifest, FACTOR))
    head = value_at(adapter, ("full_replacements", 0))
    assert "sorted by name" in refusal(AdapterManifest, adapter, ("full_replacements",), [head, head])


def test_a_base_weight_digest_hashes_the_map_of_names_to_tensors() -> None:
    weight = WeightRef(tensor=digest_of("w"), dtype="F32", shape=(2, 3))
    document: JsonObject = {"w": {"dtype": "F32", "shape": [2, 3], "tensor": digest_of("w")}}
    assert weights_digest({"w": weight}) == manifest_digest("weights", canonical_bytes(document))
    assert weights_digest({"w": weight, "v": weight.model_copy(update={"tensor": "not_verified"})}) == "not_verified"
    assert weights_digest("not_verified") == "not_verified"


def test_the_order_and_sharding_of_weights_never_matter_and_a_changed_weight_does() -> None:
    base = base_document()
    weights: JsonObject = {
        name: {"tensor": digest_of(name), "dtype": "F32", "shape": [2, 3]} for name in ("b", "a", "c")
    }

    def digest(chosen: JsonObject) -> str:
        refs = {name: WeightRef.model_validate_json(canonical_bytes(ref)) for name, ref in chosen.items()}
        whole = {**base, "weights": chosen, "weights_digest": weights_digest(refs)}
        return validate(BaseManifest, whole).digest

    assert digest(weights) == digest(dict(sorted(weights.items(), reverse=True)))
    assert digest(weights) != digest({**weights, "a": {"tensor": digest_of("b"), "dtype": "F32", "shape": [2, 3]}})
    assert digest(weights) != digest({**weights, "a": {"tensor": digest_of("a"), "dtype": "F32", "shape": [3, 2]}})


def test_a_weight_digest_that_belongs_to_other_weights_is_refused() -> None:
    said = refusal(BaseManifest, base_document(), ("weights_digest",), digest_of("another"))
    assert "weights_digest does not belong to weights" in said


def test_an_unlisted_architecture_is_refused_by_its_name() -> None:
    said = refusal(BaseManifest, base_document(), ("architecture", "model_type"), "mamba")
    assert "mamba" in said
    assert "'bert'" in said


def spec_of(lane: Any, chosen: list[ResolvedMember]) -> ResolvedSpec:
    """A plain spec over these members as they come."""
    return ResolvedSpec(
        base=BASE, lane=lane, members=tuple(chosen), method="cat", space="delta", choices=Choices(), acknowledge=()
    )


@given(st.lists(members, min_size=1, max_size=4), st.randoms())
def test_the_order_of_members_never_changes_a_static_fusion(chosen: list[ResolvedMember], rng: Any) -> None:
    one = spec_of("static_fusion", list(in_identity_order("static_fusion", tuple(chosen))))
    rng.shuffle(chosen)
    other = spec_of("static_fusion", list(in_identity_order("static_fusion", tuple(chosen))))
    assert canonical_bytes(one.document()) == canonical_bytes(other.document())


@pytest.mark.parametrize("lane", sorted(ORDERED_LANES))
def test_the_order_of_members_is_identity_in_an_ordered_lane(lane: Any) -> None:
    chosen = [ResolvedMember(adapter=digest_of(label), weight=1.0) for label in ("one", "two")]
    for order in (chosen, chosen[::-1]):
        assert in_identity_order(lane, tuple(order)) == tuple(order)
    assert spec_of(lane, chosen) != spec_of(lane, chosen[::-1])


def test_members_of_a_static_fusion_out_of_order_are_refused() -> None:
    members_ = sorted(
        (ResolvedMember(adapter=digest_of(label), weight=1.0) for label in ("one", "two")), key=lambda m: m.adapter
    )
    with pytest.raises(ValueError, match="sorted by adapter digest"):
        spec_of("static_fusion", members_[::-1])
    document = CHAIN["composition"].document()
    assert isinstance(document["members"], list)
    said = refusal(CompositionManifest, document, ("members",), document["members"][::-1])
    assert "members of a set are sorted by digest" in said


def test_a_spec_can_record_one_digest_twice_and_a_composition_cannot() -> None:
    member = ResolvedMember(adapter=digest_of("one"), weight=1.0)
    assert len(spec_of("static_fusion", [member, member]).members) == 2
    document = CHAIN["composition"].document()
    assert isinstance(document["members"], list)
    said = refusal(CompositionManifest, document, ("members",), document["members"][:1] * 2)
    assert "a member appears once; add the weights" in said


def test_modules_of_a_composition_are_sorted_each_once() -> None:
    document = CHAIN["composition"].document()
    assert isinstance(document["modules"], list)
    assert "modules are sorted" in refusal(CompositionManifest, document, ("modules",), document["modules"] * 2)


def test_acknowledged_codes_are_sorted_each_once() -> None:
    document = CHAIN["admission"].document()
    for wrong in (["B_CODE", "A_CODE"], ["A_CODE", "A_CODE"]):
        said = refusal(AdmissionManifest, document, ("spec", "acknowledge"), list[JsonValue](wrong))
        assert "acknowledged codes are sorted" in said


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_coefficient_is_finite(weight: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        ResolvedMember(adapter=BASE, weight=weight)


@pytest.mark.parametrize("density", [0.0, -0.5, 1.5])
def test_a_density_outside_zero_to_one_is_refused(density: float) -> None:
    path = ("spec", "choices", "dare", "density")
    assert refusal(AdmissionManifest, CHAIN["admission"].document(), path, density).startswith("/spec/choices/dare")


@pytest.mark.parametrize("seed", ["", "-1", "01", "1.0", "0x7", "1" * 21])
def test_a_seed_is_a_plain_decimal(seed: str) -> None:
    path = ("spec", "choices", "dare", "seed")
    assert refusal(AdmissionManifest, CHAIN["admission"].document(), path, seed).startswith("/spec/choices/dare/seed")


def test_claims_are_the_closed_set_and_false_without_evidence() -> None:
    assert tuple(Claims.model_fields) == CLAIMS
    assert set(Claims().model_dump().values()) == {False}
    document = CHAIN["composition"].document()
    assert refusal(CompositionManifest, document, ("claims", "latency"), True).startswith("/claims/latency")


def test_a_decision_lists_its_refusals() -> None:
    admission = CHAIN["admission"]
    assert isinstance(admission, AdmissionManifest)
    decision = admission.decision
    assert decision.refusals == ()
    refused = decision.findings[0].model_copy(update={"severity": "refuse"})
    assert decision.model_copy(update={"findings": (decision.findings[0], refused)}).refusals == (refused,)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("previous",), None, "every other has one"),
        (("generation",), 1, "generation 1 has no previous"),
        (("restored",), 43, "restores an earlier one"),
        (("restored",), 44, "restores an earlier one"),
        (("generation",), 0, "/generation"),
        (("artifacts",), [], "/artifacts"),
        (("channel",), "Support", "/channel"),
        (("reason",), "Free text", "/reason"),
    ],
)
def test_a_generation_has_a_possible_history(path: Path, value: JsonValue, said: str) -> None:
    document = publication_document(digest_of("composition"), digest_of("kv"))
    assert said in refusal(PublicationManifest, document, path, value)


def test_the_first_generation_has_no_previous_one() -> None:
    document = publication_document(digest_of("composition"), digest_of("kv"))
    first = {**document, "generation": 1, "previous": None, "restored": None}
    assert validate(PublicationManifest, first).generation == 1


def test_every_wrong_field_is_listed_with_its_path() -> None:
    with pytest.raises(RefusedError) as caught:
        validate(FactorManifest, {**FACTOR, "rank": "2", "order": "A@B", "extra_field": 1})
    assert {problem.path for problem in caught.value.problems} == {("rank",), ("order",), ("extra_field",)}
