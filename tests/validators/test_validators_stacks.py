"""Sixteen stacks cell by cell (V 0x09E to 0x09G, 0x0AJ), an independent second derivation, and the laws of a vector."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.registry import load
from oracles.runner import run
from oracles.variants.variant_stacks import StacksFixture
from oracles.variants.variant_stacks_rules import artifact_union, outcome, vector
from schemas.decision import CONDITIONAL, COORDINATES, REFUSING, Status
from schemas.errors import UsageProblemError
from schemas.stack import VariantStack
from validators.stacks import decide_stack, parse_stack
from validators.stacks.evidence import evidence_rules
from validators.stacks.mechanisms import PLAIN, mechanisms
from validators.stacks.rules import RULES

SHORT: dict[Status, str] = {
    "pass": "P",
    "conditional": "C",
    "shadowed": "S",
    "accepted_but_shadowed": "AS",
    "unverified": "U",
    "rejected": "R",
    "conflict": "X",
    "missing_derivation": "M",
}
TABLE = {
    "qlora+rslora": ("P - P P P P P -", "admitted"),
    "qdora": ("P - P P P P P P", "admitted"),
    "lora-fa+rslora": ("P P P P P P - P", "admitted"),
    "pissa + fixed-rank rslora": ("P - P P P P P P", "admitted"),
    "quantized adalora": ("- - P - - U P C", "conditional"),
    "lora+ with dora": ("- P P C C - - U", "conditional"),
    "pissa+dora": ("P P P - U - - U", "conditional"),
    "loftq+dora": ("P P P - U - - U", "conditional"),
    "adalora+dora": ("- R - - - - - -", "refused"),
    "adalora+loftq": ("- R - - - - - -", "refused"),
    "adalora+rslora": ("- AS S S - - - -", "conditional"),
    "lora+ with lora-fa": ("- X - X - - - -", "refused"),
    "lora-fa+dora": ("- - - M - - - -", "refused"),
    "pissa+rslora(patterned)": ("- C C - R - C -", "refused"),
    "several native pissa": ("X - - - X - - -", "refused"),
    "qlora+lora-fa": ("P - - - - - - C", "conditional"),
}
"""The cells the document determines; a dash is left to us. The last stack is ours."""

FIXTURE = load("variant_stacks").fixture.model_validate_json(load("variant_stacks").fixture_bytes())
OPEN_CELLS_ANSWERED_DIFFERENTLY = {
    ("adalora+loftq", "evidence"): "No source describes allocation with the LoftQ initializer.",
    ("adalora+rslora", "evidence"): "An accepted flag is the lowest rung of the ladder (V 0x09B).",
}

STACKS = st.builds(
    VariantStack,
    **{name: st.sampled_from(get_args(VariantStack.model_fields[name].annotation)) for name in (
        "base", "rank", "scale", "initializer", "parameterization", "artifact", "adapters",
    )},
    optimizers=st.sampled_from([("adamw",), ("lora_plus",), ("lora_fa",), ("lora_plus", "lora_fa")]),
)  # fmt: skip


def statuses(stack: VariantStack) -> tuple[Status, ...]:
    found = decide_stack(stack).vector
    return tuple(getattr(found, name).status for name in COORDINATES)


@pytest.mark.parametrize("name", TABLE)
def test_a_stack_has_every_cell_the_document_determines(name: str) -> None:
    cells, expected = TABLE[name]
    decision = decide_stack(parse_stack(name))
    found = [SHORT[status] for status in statuses(decision.stack)]
    determined = [cell if known != "-" else "-" for cell, known in zip(found, cells.split(), strict=True)]
    assert (" ".join(determined), decision.outcome) == (cells, expected)


def test_the_oracle_derives_the_same_sixteen_vectors_but_for_two_open_cells() -> None:
    assert isinstance(FIXTURE, StacksFixture)
    for name, witness in zip(TABLE, FIXTURE.stacks, strict=True):
        stack, other = parse_stack(name), vector(witness.axes)
        assert decide_stack(stack).outcome == outcome(other), name
        for coordinate, ours, theirs in zip(COORDINATES, statuses(stack), other, strict=True):
            differs = (name, coordinate) in OPEN_CELLS_ANSWERED_DIFFERENTLY
            assert (ours != theirs) is differs, (name, coordinate)


def test_the_oracle_joins_the_same_number_of_artifact_fields_for_a_stack_of_two_methods() -> None:
    assert isinstance(FIXTURE, StacksFixture)
    named = {stack.name: stack.axes for stack in FIXTURE.stacks}
    for name, other in (("qdora", "QDoRA"), ("lora-fa+rslora", "LoRA-FA+rsLoRA"), ("pissa+rslora", "PiSSA+rsLoRA")):
        ours, theirs = decide_stack(parse_stack(name)).artifact, artifact_union(named[other])
        assert len({*ours} - {"rank", "alpha", "scale_rule"}) == len({*theirs} - {"rank", "alpha", "scale_rule"})


@pytest.mark.parametrize("name", TABLE)
def test_every_cell_has_a_reason_in_words_with_its_place_and_a_grade(name: str) -> None:
    decision = decide_stack(parse_stack(name))
    for coordinate in COORDINATES:
        cell = getattr(decision.vector, coordinate)
        assert decision.reasons[cell.reason].endswith(")")
        assert " (V 0x0" in decision.reasons[cell.reason]
        assert (cell.evidence == "not_verified") == (cell.status == "unverified")
    assert len(decision.reasons) == len({getattr(decision.vector, name).reason for name in COORDINATES})


def test_what_a_rule_calls_executed_is_a_passing_check_of_that_oracle() -> None:
    every = VariantStack(
        base="nf4", rank="patterned", scale="alpha_over_sqrt_r", initializer="loftq", parameterization="dora",
        optimizers=("lora_plus", "lora_fa"),
    )  # fmt: skip
    spectral = every.model_copy(update={"initializer": "pissa"})
    rules = (*RULES, *evidence_rules(every), *evidence_rules(spectral))
    witnesses = {rule.witness for rule in rules if rule.witness}
    for oracle in {name for name, _ in witnesses}:
        passed = {check.name for check in run(oracle).checks if check.passed}
        assert {check for name, check in witnesses if name == oracle} <= passed


def test_no_rule_is_written_twice_and_each_can_be_met() -> None:
    assert len({rule.reason for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert any(rule.applies(stack) for stack in _all_stacks()), rule.reason


def _all_stacks() -> list[VariantStack]:
    names = (*TABLE, "adalora loftq-config", "adalora+lora-fa", "qpissa")
    return [VariantStack(initializer="loftq"), *map(parse_stack, names)]


def test_plain_lora_changes_nothing_and_is_admitted() -> None:
    decision = decide_stack(parse_stack("lora"))
    assert (decision.stack, mechanisms(PLAIN), decision.outcome) == (PLAIN, (), "admitted")
    assert decision.artifact == ("rank", "alpha", "scale_rule")
    assert decision.reasons[decision.vector.evidence.reason].startswith("At most one mechanism")


@given(STACKS)
def test_an_outcome_follows_from_the_vector_and_a_condition_never_hides_a_refusal(stack: VariantStack) -> None:
    found, expected = statuses(stack), "admitted"
    if any(status in CONDITIONAL for status in found):
        expected = "conditional"
    if any(status in REFUSING for status in found):
        expected = "refused"
    assert decide_stack(stack).outcome == expected


@given(STACKS)
def test_nothing_behind_a_refusal_passes(stack: VariantStack) -> None:
    found = statuses(stack)
    refused = next((place for place, status in enumerate(found) if status in REFUSING), len(found))
    assert "pass" not in found[refused:]


@given(STACKS)
def test_evidence_passes_only_for_one_mechanism_or_for_pairs_that_are_all_shown(stack: VariantStack) -> None:
    evidence = decide_stack(stack).vector.evidence
    shown = all(rule.status == "pass" for rule in evidence_rules(stack))
    assert (evidence.status == "pass") <= shown
    assert (evidence.reason == "no_composition_to_show") <= (len(mechanisms(stack)) < 2)


@given(STACKS)
def test_the_artifact_of_a_stack_holds_the_artifact_of_each_part(stack: VariantStack) -> None:
    whole = set(decide_stack(stack).artifact)
    for axis in ("base", "rank", "scale", "initializer", "parameterization"):
        part = PLAIN.model_copy(update={axis: getattr(stack, axis)})
        assert set(decide_stack(part).artifact) <= whole


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("lora++dora", "lora+ with dora"),
        ("LoRA-plus + DoRA", "lora+ with dora"),
        ("qlora+dora", "qdora"),
        ("nf4 dora", "qdora"),
        ("rslora(patterned) + pissa", "pissa+rslora(patterned)"),
        ("lora-fa & lora+", "lora+ and lora_fa"),
        ("quantised adalora", "qadalora"),
        ("qpissa", "qlora+pissa"),
        ("multiple PiSSA, native", "several native pissa"),
    ],
)
def test_spellings_of_one_stack_mean_the_same_axes(name: str, same: str) -> None:
    assert {**parse_stack(name).document(), "optimizers": sorted(parse_stack(name).optimizers)} == {
        **parse_stack(same).document(),
        "optimizers": sorted(parse_stack(same).optimizers),
    }


def test_a_plus_after_lora_joins_a_method_and_a_plus_after_qlora_always_does() -> None:
    assert parse_stack("lora+dora").optimizers == ("adamw",)
    assert parse_stack("lora+ dora").optimizers == ("lora_plus",)
    assert parse_stack("lora+").optimizers == ("lora_plus",)
    assert parse_stack("qlora+dora").optimizers == ("adamw",)


def test_pissa_is_read_as_its_portable_conversion_unless_native_is_said() -> None:
    assert parse_stack("pissa").artifact == "converted"
    assert parse_stack("pissa(native)").artifact == "native"
    assert parse_stack("dora").artifact == "native"


@pytest.mark.parametrize(
    ("name", "code", "observed"),
    [
        ("", "STACK_EMPTY", "''"),
        (" + ", "STACK_EMPTY", "' + '"),
        ("qlora+vera", "STACK_WORD_UNKNOWN", "vera"),
        ("pissa+loftq", "STACK_CONTRADICTORY", "pissa and loftq"),
        ("adalora+rslora(patterned)", "STACK_CONTRADICTORY", "adalora and patterned"),
        ("dense qlora", "STACK_CONTRADICTORY", "dense and qlora"),
    ],
)
def test_a_name_that_says_too_little_or_two_things_is_refused(name: str, code: str, observed: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        parse_stack(name)
    assert [(problem.code, problem.observed) for problem in caught.value.problems] == [(code, observed)]


def test_every_unknown_word_is_named_at_once() -> None:
    with pytest.raises(UsageProblemError) as caught:
        parse_stack("vera+qlora+loha")
    assert [problem.observed for problem in caught.value.problems] == ["vera", "loha"]
