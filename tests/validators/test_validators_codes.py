"""Every code is whole in the table and reached by a legal example broken in one way, with nothing else blamed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from schemas.adapter import AdapterManifest, FullReplacement
from schemas.base import TokenizerRef
from schemas.decision import CONDITIONAL, REFUSING, Decision
from schemas.digests import blob_digest
from schemas.methods import Choices, PruneChoices, SvdChoices
from tests.validators.examples import (
    ARCHITECTURE,
    SHAPES,
    TOKENIZER,
    codes,
    judge,
    make_adapter,
    make_base,
    make_factor,
    packed,
    tensor,
    weight_map,
)
from validators import CODES, CodeUnknownError, explain
from validators.codes import Owner, composition, families

TESTS = Path(__file__).parents[1]
BASE = make_base()
ONE, TWO = make_adapter(BASE, "one"), make_adapter(BASE, "two")
HEAD = FullReplacement(name="classifier.weight", value=tensor("head", 2, 6))
QUERY = {"layers.0.q_proj": (8, 6)}
OTHER_WEIGHTS = weight_map(SHAPES, "other")
MAGNITUDE = {"extra": {"magnitude": tensor("magnitude", 8)}}
TRIPLETS = {"rule": "explicit", "extra": {"E": tensor("e", 2, 1)}}


def elsewhere(member: Mapping[str, Any] | None = None, **base: Any) -> Decision:
    """One member made for a base that differs from the target in one way."""
    other = make_base(**base)
    return judge(BASE, ONE, make_adapter(other, "two", **(member or {})), others=(other,))


def on_packed_bases() -> Decision:
    """A base in codes, and a member made through the same codes under another codebook."""
    base, other = make_base(quantizer=packed()), make_base(quantizer=packed(b"fp4"))
    return judge(base, make_adapter(other), others=(other,))


def beside(**member: Any) -> Decision:
    """A plain member and one that is not plain in one way."""
    return judge(BASE, ONE, make_adapter(BASE, "two", **member))


def of(**spec: Any) -> Decision:
    """Two plain members under another spec."""
    return judge(BASE, ONE, TWO, **spec)


def alone(**member: Any) -> Decision:
    """One member on one module, which is not plain in one way."""
    return judge(BASE, make_adapter(BASE, shapes=QUERY, **member))


def trained(family: str, **fields: str) -> Decision:
    """One plain pair under a family that names fields of its training."""
    return alone(family=family, training=fields)


def expert_pool(family: str, *, equal: bool) -> Decision:
    """Two experts on one module, under one a or two."""
    label = ("a", "a") if equal else ("a", "other a")
    factors = [
        make_factor(BASE.digest, "layers.0.q_proj", (8, 6), expert=expert, a=tensor(label[expert], 2, 6))
        for expert in (0, 1)
    ]
    return judge(BASE, AdapterManifest(base=BASE.digest, factors=tuple(factors), family=family))


def turned_beside() -> Decision:
    """Two members of one square module, one of them for a weight stored input first."""
    square = {"layers.0.q_proj": (6, 6)}
    base = make_base(weight_map(square))
    turned = make_adapter(base, "two", shapes=square, factor={"order": "(B@A)^T"})
    return judge(base, make_adapter(base, "one", shapes=square), turned)


def head_and_delta() -> Decision:
    """One member replaces the module that the other adapts."""
    replaced = FullReplacement(name="layers.0.q_proj.weight", value=tensor("trained", 8, 6))
    owner = make_adapter(BASE, "two", shapes={"layers.0.v_proj": (4, 6)}, full_replacements=(replaced,))
    return judge(BASE, make_adapter(BASE, shapes=QUERY), owner)


def on_unread_base(weights: Any) -> Decision:
    """Everything on a base whose weight bytes were not read."""
    base = make_base(weights)
    return judge(base, make_adapter(base))


def with_two_heads() -> Decision:
    """Two members that each own the head."""
    adapters = (make_adapter(BASE, label, full_replacements=(HEAD,)) for label in ("one", "two"))
    return judge(BASE, *adapters)


def snapshot_summed() -> Decision:
    start, trained = make_adapter(BASE, "start"), make_adapter(BASE, "trained")
    return judge(BASE, start, trained, repeating=frozenset({start.digest}))


EXAMPLES: Mapping[str, tuple[Callable[[], Decision], set[str]]] = {
    "BASE_WEIGHTS_DIFFER": (lambda: elsewhere(weights=OTHER_WEIGHTS), set()),
    "BASE_ARCHITECTURE_DIFFERS": (
        lambda: elsewhere(architecture=ARCHITECTURE.model_copy(update={"rms_norm_eps": 1e-6})),
        set(),
    ),
    "BASE_QUANTIZER_DIFFERS": (lambda: elsewhere(quantizer=packed()), set()),
    "QUANTIZER_ABI_DIFFERS": (on_packed_bases, set()),
    "SNAPSHOT_SUMMED": (snapshot_summed, set()),
    "TOKENIZER_DIFFERS": (
        lambda: elsewhere(tokenizer=TokenizerRef(digest=blob_digest(b"other"), length=TOKENIZER.length)),
        set(),
    ),
    "TOKENIZER_LENGTH_DIFFERS": (
        lambda: elsewhere(tokenizer=TokenizerRef(digest=TOKENIZER.digest, length=101)),
        set(),
    ),
    "BASE_EVIDENCE_STRUCTURAL": (lambda: on_unread_base(weight_map(SHAPES, read=False)), set()),
    "BASE_EVIDENCE_DECLARED": (lambda: on_unread_base("not_verified"), set()),
    "INITIALIZER_MUTATES_BASE": (
        lambda: beside(family="pissa", initializer="pissa", payload="native"),
        {"PAYLOAD_NOT_PORTABLE"},
    ),
    "TARGET_MODULE_MISSING": (
        lambda: beside(shapes={**SHAPES, "layers.2.q_proj": (8, 6)}),
        {"MODULE_SETS_DIFFER"},
    ),
    "TARGET_SHAPE_MISMATCH": (lambda: beside(shapes={**SHAPES, "layers.0.v_proj": (4, 7)}), set()),
    "SITE_NOT_IN_BASE": (lambda: beside(factor={"expert": 3}), {"MODULE_SETS_DIFFER"}),
    "TRAINING_FIELDS_FOREIGN": (lambda: beside(training={"stage": "2"}), set()),
    "SCALE_INCONSISTENT": (lambda: beside(family="rslora"), set()),
    "DTYPE_NOT_FLOAT": (
        lambda: beside(shapes={"layers.0.q_proj": (8, 6)}, factor={"a": tensor("codes", 2, 6, dtype="U8")}),
        {"MODULE_SETS_DIFFER"},
    ),
    "EXTRA_TENSOR_NOT_COMPOSED": (lambda: alone(factor={"extra": {"gate": tensor("gate", 8)}}), set()),
    "FAMILY_UNKNOWN": (lambda: beside(family="ties"), set()),
    "DORA_NOT_ADDITIVE": (lambda: alone(family="dora", factor=MAGNITUDE), set()),
    "ADALORA_NOT_COMPACT": (lambda: alone(family="adalora", factor=TRIPLETS), set()),
    "ALORA_CONDITIONAL": (lambda: trained("alora", invocation_tokens="1,2"), set()),
    "QALORA_INPUT_POOLED": (lambda: trained("qa_lora", group_size="2"), set()),
    "BDLORA_BLOCKS_PACKED": (lambda: trained("bd_lora", blocks="2"), set()),
    "KASA_DIAGONAL": (
        lambda: alone(
            family="kasa", initializer="kasa", payload="native", factor={"extra": {"diag": tensor("diag", 2)}}
        ),
        {"INITIALIZER_MUTATES_BASE", "PAYLOAD_NOT_PORTABLE"},
    ),
    "EXPERT_POOL_FUSED": (lambda: expert_pool("hydralora", equal=True), set()),
    "SHARED_A_UNEQUAL": (lambda: expert_pool("hydralora", equal=False), {"EXPERT_POOL_FUSED"}),
    "FAMILY_NEEDS_QUANTIZED_BASE": (lambda: beside(family="qlora"), set()),
    "INITIALIZER_FOREIGN": (
        lambda: beside(initializer="pissa", payload="native"),
        {"INITIALIZER_MUTATES_BASE", "PAYLOAD_FOREIGN", "PAYLOAD_NOT_PORTABLE"},
    ),
    "PAYLOAD_FOREIGN": (lambda: beside(payload="resume"), {"PAYLOAD_NOT_PORTABLE"}),
    "COUPLED_BASE_DIFFERS": (
        lambda: elsewhere({"family": "loftq", "initializer": "loftq", "payload": "native"}, weights=OTHER_WEIGHTS),
        {"INITIALIZER_MUTATES_BASE", "PAYLOAD_NOT_PORTABLE"},
    ),
    "NATIVE_LABELLED_PORTABLE": (
        lambda: beside(family="pissa", initializer="pissa"),
        {"INITIALIZER_MUTATES_BASE"},
    ),
    "TRAINING_FIELDS_MISSING": (lambda: trained("lora_plus", rate_ratio="16"), set()),
    "RATES_EQUAL": (lambda: trained("lora_plus", rate_ratio="1.0", group_classifier="peft_0_19"), set()),
    "FROZEN_A_DIFFERS": (
        lambda: trained("lora_fa", frozen_a="blake3:0", correction_scale_rule="alpha_over_r"),
        set(),
    ),
    "ALLOCATOR_STATE_MISSING": (
        lambda: alone(family="adalora", payload="resume", factor=TRIPLETS),
        {"ADALORA_NOT_COMPACT", "PAYLOAD_NOT_PORTABLE"},
    ),
    "ROLE_MISSING": (lambda: alone(family="dora"), {"DORA_NOT_ADDITIVE"}),
    "ROLE_SHAPE_MISMATCH": (
        lambda: alone(family="dora", factor={"extra": {"magnitude": tensor("m", 6)}}),
        {"DORA_NOT_ADDITIVE"},
    ),
    "LORA_BIAS_NOT_COMPOSED": (lambda: alone(factor={"extra": {"bias": tensor("bias", 8)}}), set()),
    "TOKEN_ROWS_NOT_COMPOSED": (
        lambda: beside(full_replacements=(FullReplacement(name="embed.weight#rows", value=tensor("rows", 2)),)),
        set(),
    ),
    "REPLACEMENT_ADAPTED": (head_and_delta, {"MODULE_SETS_DIFFER"}),
    "RANK_ZERO_MODULE": (
        lambda: alone(family="adalora", factor={**TRIPLETS, "rank": 0, "extra": {"E": tensor("e", 0, 1)}}),
        {"ADALORA_NOT_COMPACT"},
    ),
    "ORDERS_DIFFER": (turned_beside, set()),
    "PAYLOAD_NOT_PORTABLE": (
        lambda: beside(family="dora", factor={}, payload="native"),
        {"DORA_NOT_ADDITIVE", "ROLE_MISSING"},
    ),
    "REPLACEMENT_OWNED_TWICE": (with_two_heads, set()),
    "RANKS_UNEQUAL": (
        lambda: judge(
            BASE,
            ONE,
            make_adapter(BASE, "two", factor={"rank": 4, "alpha": 8.0}),
            method="factor_linear",
            space="factor",
        ),
        {"FACTOR_METHOD_GAUGE"},
    ),
    "MODULE_SETS_DIFFER": (lambda: beside(shapes={"layers.0.q_proj": (8, 6)}), set()),
    "SCALES_DIFFER": (lambda: beside(factor={"alpha": 8.0}), set()),
    "MEMBER_TWICE": (lambda: judge(BASE, ONE, ONE, weights=(0.25, 0.5)), set()),
    "WEIGHT_ZERO": (lambda: of(weights=(1.0, 0.0)), set()),
    "SPACE_UNDECLARED": (lambda: of(space=None), set()),
    "SPACE_NOT_OFFERED": (lambda: of(space="factor"), set()),
    "FACTOR_METHOD_GAUGE": (lambda: of(method="factor_linear", space="factor"), set()),
    "ALIAS_MISMATCH": (lambda: of(alias="linear"), set()),
    "CHOICES_MISSING": (lambda: of(method="delta_svd", choices=Choices(rank=2)), set()),
    "CHOICES_NOT_OWNED": (lambda: of(choices=Choices(prune=PruneChoices(density=0.5))), set()),
    "RANK_REQUIRED": (lambda: of(method="delta_svd", choices=Choices(svd=SvdChoices())), set()),
    "RANK_NOT_OFFERED": (lambda: of(choices=Choices(rank=2)), set()),
    "RANK_TOO_LARGE": (lambda: of(method="delta_svd", choices=Choices(rank=5, svd=SvdChoices())), set()),
    "METHOD_ONLY_DENSE_RELEASE": (lambda: of(method="dense_sum"), set()),
    "DYNAMIC_PACKAGED_STATIC": (lambda: of(lane="shared_a_selected"), {"ROUTER_MISSING"}),
    "LANE_NOT_COMPOSABLE": (lambda: of(lane="independent"), set()),
    "LANE_NOT_SUPPORTED": (lambda: of(lane="task_composed"), set()),
    "HISTORY_MISSING": (lambda: of(lane="olora_ordered"), {"LANE_NOT_SUPPORTED"}),
    "ROUTER_MISSING": (lambda: of(lane="posthoc_routed"), {"DYNAMIC_PACKAGED_STATIC"}),
}


def test_every_code_has_an_example_and_no_example_a_code_of_its_own() -> None:
    assert EXAMPLES.keys() == {record.code for record in (*composition.RECORDS, *families.RECORDS)}


def test_every_code_of_every_subject_is_reached_or_named_by_a_test() -> None:
    words: set[object] = set()
    for path in TESTS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert CODES.keys() - words == set()


@pytest.mark.parametrize("code", EXAMPLES)
def test_one_breach_gives_its_code_and_blames_nothing_else(code: str) -> None:
    make, also = EXAMPLES[code]
    decision = make()
    assert set(codes(decision)) == {code} | also
    found = next(finding for finding in decision.findings if finding.code == code)
    record = explain(code)
    assert (found.predicate, found.coordinate, found.severity) == (record.predicate, record.coordinate, record.severity)
    assert found.expected != found.observed


@pytest.mark.parametrize("code", EXAMPLES)
def test_a_breach_shows_in_its_coordinate_its_predicate_and_the_outcome(code: str) -> None:
    decision, record = EXAMPLES[code][0](), CODES[code]
    statuses = [getattr(decision.vector, name).status for name in type(decision.vector).model_fields]
    expected = {"note": "admitted", "condition": "conditional", "refuse": "refused"}[record.severity]
    assert getattr(decision.vector, record.coordinate).status == record.status
    assert decision.outcome == expected
    assert (decision.outcome == "refused") == any(status in REFUSING for status in statuses)
    assert (decision.outcome == "admitted") == all(status == "pass" for status in statuses)
    predicate = {"note": "pass", "condition": "conditional", "refuse": "fail"}[record.severity]
    assert getattr(decision.predicates, record.predicate) == predicate


@pytest.mark.parametrize("code", CODES)
def test_a_record_says_invariant_consequence_recovery_and_owner(code: str) -> None:
    record = explain(code)
    sentences = (record.invariant, record.consequence, record.recovery)
    assert len(set(sentences)) == 3
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences)
    assert record.owner in get_args(Owner)
    assert record.status == "pass" or record.status in REFUSING | CONDITIONAL


def test_explaining_an_unknown_code_is_a_typed_error() -> None:
    with pytest.raises(CodeUnknownError) as caught:
        explain("NO_SUCH_CODE")
    assert caught.value.code == "CODE_UNKNOWN"
    assert caught.value.problems[0].observed == "NO_SUCH_CODE"
