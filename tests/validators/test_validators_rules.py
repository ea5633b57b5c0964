"""What single rules say: the place, the expectation and the observation a person acts on."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from schemas.adapter import FullReplacement
from schemas.base import TokenizerRef, WeightRef
from schemas.decision import Decision
from schemas.digests import blob_digest
from schemas.methods import (
    ALIASES,
    SPACES,
    Choices,
    DareChoices,
    Lane,
    Method,
    PruneChoices,
    Space,
    SvdChoices,
    TiesChoices,
)
from tests.validators.examples import (
    ARCHITECTURE,
    SHAPES,
    TOKENIZER,
    codes,
    judge,
    make_adapter,
    make_base,
    packed,
    tensor,
    weight_map,
)

BASE = make_base()
ONE, TWO = make_adapter(BASE, "one"), make_adapter(BASE, "two")
ALL_CHOICES: dict[str, Any] = {
    "rank": 2,
    "ties": TiesChoices(density=0.5),
    "dare": DareChoices(density=0.5, seed="7"),
    "prune": PruneChoices(density=0.5),
    "svd": SvdChoices(),
}
OWNED: list[tuple[Method, Space, set[str]]] = [
    ("cat", "delta", set()),
    ("delta_svd", "delta", {"rank", "svd"}),
    ("ties", "delta", {"ties", "rank", "svd"}),
    ("ties", "factor", {"ties"}),
    ("dare_linear", "delta", {"dare", "rank", "svd"}),
    ("dare_linear", "factor", {"dare"}),
    ("dare_ties", "delta", {"dare", "ties", "rank", "svd"}),
    ("dare_ties", "factor", {"dare", "ties"}),
    ("factor_linear", "factor", set()),
    ("magnitude_prune", "delta", {"prune", "rank", "svd"}),
    ("magnitude_prune", "factor", {"prune"}),
    ("dense_sum", "delta", set()),
]
"""Read off the method table and the algorithms of the compose documentation."""


def seen(decision: Decision, code: str) -> tuple[str, tuple[str | int, ...], str, str]:
    """Subject, path, expectation and observation of the one finding with this code."""
    (found,) = (finding for finding in decision.findings if finding.code == code)
    return found.subject, found.path, found.expected, found.observed


def member_of(other: Any) -> tuple[str, Decision]:
    """The digest of a member made for another base, and the decision about it."""
    member = make_adapter(other)
    return member.digest, judge(BASE, member, others=(other,))


def test_one_changed_weight_is_counted_and_named() -> None:
    weights = weight_map(SHAPES)
    name = "layers.0.v_proj.weight"
    weights[name] = weights[name].model_copy(update={"tensor": blob_digest(b"changed")})
    digest, decision = member_of(make_base(weights))
    path = ("base", "weights", name)
    assert seen(decision, "BASE_WEIGHTS_DIFFER") == (digest, path, "the same weights", f"1 differ, first {name}")


@pytest.mark.parametrize("change", ["shape", "dtype", "absent"])
def test_unread_weights_still_differ_by_shape_dtype_or_absence(change: str) -> None:
    weights = weight_map(SHAPES, read=False)
    name = "layers.1.q_proj.weight"
    if change == "absent":
        del weights[name]
    else:
        update = {"shape": (8, 7)} if change == "shape" else {"dtype": "BF16"}
        weights[name] = WeightRef.model_validate(weights[name].model_dump() | update)
    _, decision = member_of(make_base(weights))
    assert codes(decision) == ["BASE_EVIDENCE_STRUCTURAL", "BASE_WEIGHTS_DIFFER"]


def test_unread_weights_of_the_same_shapes_are_a_condition() -> None:
    _, decision = member_of(make_base(weight_map(SHAPES, read=False)))
    assert (decision.outcome, codes(decision)) == ("conditional", ["BASE_EVIDENCE_STRUCTURAL"])


def test_a_member_of_a_declared_base_is_a_condition_that_names_its_base() -> None:
    other = make_base("not_verified")
    _, decision = member_of(other)
    assert decision.outcome == "conditional"
    assert seen(decision, "BASE_EVIDENCE_DECLARED")[0] == other.digest


def test_another_packaging_of_the_same_base_is_the_same_base() -> None:
    repacked = make_base(dict(reversed(weight_map(SHAPES).items())))
    assert repacked.digest == BASE.digest
    assert judge(BASE, make_adapter(repacked)).outcome == "admitted"


def test_every_differing_configuration_field_is_named_with_both_values() -> None:
    other = make_base(architecture=ARCHITECTURE.model_copy(update={"hidden_act": "gelu", "vocab_size": 99}))
    digest, decision = member_of(other)
    assert [(finding.path, finding.expected, finding.observed) for finding in decision.findings] == [
        (("base", "architecture", "hidden_act"), "silu", "gelu"),
        (("base", "architecture", "vocab_size"), "100", "99"),
    ]
    assert {finding.subject for finding in decision.findings} == {digest}


@pytest.mark.parametrize(
    ("theirs", "code", "path", "values"),
    [
        (packed(), "BASE_QUANTIZER_DIFFERS", (), ("none", "bitsandbytes_4bit")),
        ("not_verified", None, (), ()),
    ],
)
def test_a_packed_base_beside_a_float_one_is_refused_and_an_unknown_packing_left_to_evidence(
    theirs: Any, code: str | None, path: tuple[str, ...], values: tuple[str, ...]
) -> None:
    digest, decision = member_of(make_base(quantizer=theirs))
    assert codes(decision) == ([code] if code else [])
    if code:
        assert seen(decision, code) == (digest, ("base", "quantizer", *path), *values)


def test_two_packed_bases_of_one_scheme_name_the_field_in_which_they_differ() -> None:
    base = make_base(quantizer=packed())
    two_levels = packed().scales
    for other, place, values in (
        (packed(b"fp4"), ("codebook",), (blob_digest(b"nf4"), blob_digest(b"fp4"))),
        (packed(centred=False), ("scales", 0, "centred"), ("True", "False")),
        (packed().model_copy(update={"scales": two_levels[:1]}), ("scales",), None),
        (
            packed().model_copy(update={"packed": {"lm_head": (1, 1)}}),
            ("packed", "layers.0.q_proj"),
            ("[8, 6]", "None"),
        ),
    ):
        theirs = make_base(quantizer=other)
        decision = judge(base, make_adapter(theirs), others=(theirs,))
        found = seen(decision, "QUANTIZER_ABI_DIFFERS")
        assert found[1] == ("base", "quantizer", *place)
        assert values is None or found[2:] == values
        assert max(len(found[2]), len(found[3])) <= 120


def test_a_base_without_tokenizer_is_a_condition_and_another_length_a_refusal() -> None:
    _, absent = member_of(make_base(tokenizer=None))
    assert seen(absent, "TOKENIZER_DIFFERS")[2:] == (TOKENIZER.digest, "none")
    assert absent.outcome == "conditional"
    _, longer = member_of(make_base(tokenizer=TokenizerRef(digest=blob_digest(b"longer"), length=102)))
    assert seen(longer, "TOKENIZER_LENGTH_DIFFERS")[2:] == ("100", "102")
    assert longer.outcome == "refused"


def test_a_transposed_factor_is_told_from_a_merely_different_shape() -> None:
    transposed = judge(BASE, make_adapter(BASE, shapes={"layers.0.q_proj": (6, 8)}))
    path = ("factors", "layers.0.q_proj")
    assert seen(transposed, "TARGET_SHAPE_MISMATCH")[1:] == (path, "8 x 6", "6 x 8, transposed")
    different = judge(BASE, make_adapter(BASE, shapes={"layers.0.q_proj": (8, 5)}))
    assert seen(different, "TARGET_SHAPE_MISMATCH")[3] == "8 x 5"


def test_a_module_name_must_match_the_whole_path() -> None:
    decision = judge(BASE, make_adapter(BASE, shapes={"model.layers.0.q_proj": (8, 6)}))
    assert seen(decision, "TARGET_MODULE_MISSING")[2] == "model.layers.0.q_proj.weight"


def test_a_declared_target_base_leaves_modules_unchecked_and_says_so() -> None:
    base = make_base("not_verified")
    decision = judge(base, make_adapter(base, shapes={"anything": (3, 3)}))
    assert codes(decision) == ["BASE_EVIDENCE_DECLARED"]


def test_a_site_finer_than_its_module_is_named_whole() -> None:
    decision = judge(BASE, make_adapter(BASE, shapes={"layers.0.q_proj": (8, 6)}, factor={"expert": 0}))
    path = ("factors", "layers.0.q_proj", 0, -1, "")
    assert seen(decision, "SITE_NOT_IN_BASE")[1] == path


def test_factor_methods_name_each_module_with_unequal_ranks() -> None:
    wide = make_adapter(BASE, "wide", shapes={"layers.0.q_proj": (8, 6)}, factor={"rank": 4, "alpha": 8.0})
    decision = judge(BASE, ONE, wide, method="factor_linear", space="factor")
    path = ("factors", "layers.0.q_proj")
    assert seen(decision, "RANKS_UNEQUAL") == ("spec", path, "one rank", "2, 4")
    assert judge(BASE, ONE, wide).outcome == "admitted"


def test_different_module_sets_are_a_note_with_the_number() -> None:
    decision = judge(BASE, ONE, make_adapter(BASE, "two", shapes={"layers.0.q_proj": (8, 6)}))
    assert seen(decision, "MODULE_SETS_DIFFER")[3] == "1 of 3 in every member"
    assert decision.outcome == "admitted"


def test_heterogeneous_scales_are_a_note_with_the_number() -> None:
    decision = judge(BASE, ONE, make_adapter(BASE, "two", factor={"alpha": 1.0}))
    assert seen(decision, "SCALES_DIFFER")[3] == "3 modules with several"


def test_a_trained_head_with_one_owner_passes_and_with_two_is_named() -> None:
    head = FullReplacement(name="classifier.weight", value=tensor("head", 2, 6))
    owners = [make_adapter(BASE, label, full_replacements=(head,)) for label in ("one", "two")]
    assert judge(BASE, owners[0], TWO).outcome == "admitted"
    path = ("full_replacements", "classifier.weight")
    assert seen(judge(BASE, *owners), "REPLACEMENT_OWNED_TWICE") == ("spec", path, "1 member", "2 members")


def test_one_adapter_twice_is_told_to_add_its_weights() -> None:
    decision = judge(BASE, ONE, ONE, weights=(0.25, 0.5))
    assert seen(decision, "MEMBER_TWICE") == (ONE.digest, ("members",), "once, with weight 0.75", "2 times")


def test_a_rank_above_the_smaller_side_names_the_module_and_the_limit() -> None:
    tight = Choices(rank=4, svd=SvdChoices())
    assert judge(BASE, ONE, method="delta_svd", choices=tight).outcome == "admitted"
    decision = judge(BASE, ONE, method="delta_svd", choices=Choices(rank=5, svd=SvdChoices()))
    assert seen(decision, "RANK_TOO_LARGE")[2:] == ("at most 4, the smaller side of layers.0.v_proj", "5")


@pytest.mark.parametrize(("method", "space", "owned"), OWNED)
def test_a_method_takes_exactly_its_own_choices(method: Method, space: Space, owned: set[str]) -> None:
    def complaints(given: set[str]) -> set[tuple[str, str]]:
        chosen = Choices(**{name: ALL_CHOICES[name] for name in given})
        decision = judge(BASE, ONE, method=method, space=space, choices=chosen)
        return {(finding.code, str(finding.path[1])) for finding in decision.findings if finding.path[0] == "choices"}

    assert complaints(owned) == set()
    for name in ALL_CHOICES:
        if name in owned:
            expected = "RANK_REQUIRED" if name == "rank" else "CHOICES_MISSING"
            assert complaints(owned - {name}) == {(expected, name)}
        else:
            expected = "RANK_NOT_OFFERED" if name == "rank" else "CHOICES_NOT_OWNED"
            assert complaints(owned | {name}) == {(expected, name)}


def test_every_method_has_its_choices_in_every_space_it_offers() -> None:
    assert {(method, space) for method, space, _ in OWNED} == {
        (method, space) for method, spaces in SPACES.items() for space in spaces
    }


def test_without_a_space_only_what_holds_in_every_space_is_asked_of_the_choices() -> None:
    with_rank = Choices(rank=2, svd=SvdChoices(), ties=TiesChoices(density=0.5))
    for given in (with_rank, Choices(ties=TiesChoices(density=0.5))):
        assert codes(judge(BASE, ONE, method="ties", space=None, choices=given)) == ["SPACE_UNDECLARED"]
    assert codes(judge(BASE, ONE, method="ties", space=None)) == ["CHOICES_MISSING", "SPACE_UNDECLARED"]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_recorded_beside_the_method_it_means_and_no_other(alias: str) -> None:
    method, space = ALIASES[alias]
    assert "ALIAS_MISMATCH" not in codes(judge(BASE, ONE, method=method, space=space, alias=alias))
    decision = judge(BASE, ONE, method="cat", space="delta", alias=alias)
    assert seen(decision, "ALIAS_MISMATCH")[2:] == (f"{method} in {space}", alias)


def test_a_name_that_is_no_alias_is_refused() -> None:
    assert seen(judge(BASE, ONE, alias="concat"), "ALIAS_MISMATCH")[2:] == ("no alias", "concat")


def test_only_static_fusion_is_composed_and_each_other_lane_is_refused_by_a_name() -> None:
    refused = {
        lane: next(code for code in codes(judge(BASE, ONE, TWO, lane=lane)) if code in LANE_CODES)
        for lane in get_args(Lane)
        if lane != "static_fusion"
    }
    assert refused.pop("independent") == "LANE_NOT_COMPOSABLE"
    assert {refused.pop("olora_ordered"), refused.pop("task_composed")} == {"LANE_NOT_SUPPORTED"}
    assert len(refused) == 8
    assert set(refused.values()) == {"DYNAMIC_PACKAGED_STATIC"}


LANE_CODES = {"LANE_NOT_COMPOSABLE", "LANE_NOT_SUPPORTED", "DYNAMIC_PACKAGED_STATIC"}


def test_a_factor_operation_is_never_silent_about_its_gauge() -> None:
    decision = judge(BASE, ONE, TWO, method="factor_linear", space="factor")
    assert (decision.outcome, codes(decision)) == ("admitted", ["FACTOR_METHOD_GAUGE"])
