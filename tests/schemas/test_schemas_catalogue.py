"""Every recorded failure is injected, noticed by the detector it names, and gone when the field is restored."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest

from oracles.mutation import rejection
from oracles.registry import load, names
from oracles.routed.evaluation_publication import ORACLE as EVALUATION
from oracles.routed.evaluation_publication_failures import OWNERS
from oracles.runner import run
from schemas.canonical import JsonObject
from schemas.catalogue import OWN, Failure, by_id, failures
from schemas.catalogue.model import FamilyFile
from schemas.errors import RefusedError
from schemas.model import validate
from validators import CODES

ROOT = Path(__file__).parents[2]
EXECUTED = [failure for failure in failures() if failure.inject is not None]
ENTRY = {"id", "source", "invariant", "fault", "detector", "consequence", "owner", "recovery", "gate"}
ALWAYS_OURS = {"id", "family", "source", "documented", "test", "gate", "limit", "oracle", "inject"}


@cache
def checks(oracle: str) -> dict[str, bool]:
    """The verdicts of an oracle on its own fixture, and the typed contract that the fixture meets."""
    return {"contract": True, **{check.name: check.passed for check in run(oracle).checks}}


def with_fault(failure: Failure) -> Any:
    """The oracle's fixture with the one field replaced."""
    assert failure.oracle
    assert failure.inject
    document = json.loads(load(failure.oracle).fixture_bytes())
    *parents, last = (int(step) if step.isdigit() else step for step in failure.inject.field[1:].split("/"))
    place: Any = reduce(lambda value, step: value[step], parents, document)
    assert place[last] != failure.inject.value
    place[last] = failure.inject.value
    return document


@pytest.mark.parametrize("failure", EXECUTED, ids=lambda failure: failure.id)
def test_the_injected_fault_is_noticed_by_the_detector_it_names(failure: Failure) -> None:
    assert failure.oracle
    assert rejection(load(failure.oracle), with_fault(failure)) == failure.detector


@pytest.mark.parametrize("failure", failures(), ids=lambda failure: failure.id)
def test_the_restored_fixture_holds_the_detector_or_the_code_exists(failure: Failure) -> None:
    if failure.oracle is None:
        assert failure.detector in CODES
        assert CODES[failure.detector].failure == failure.id
    else:
        assert failure.oracle in names()
        assert checks(failure.oracle)[failure.detector] is True
    assert (ROOT / failure.test).is_file()


def test_the_three_documents_give_thirty_six_thirty_and_thirty_six_failures() -> None:
    assert Counter(failure.family for failure in failures() if failure.family != "registry") == {
        "variants": 36,
        "conditional": 30,
        "routed": 36,
    }
    assert sum(failure.source == "C 0x0BC" for failure in failures()) == 18
    assert sum(failure.source == "V 0x0BB" for failure in failures()) == 10


def test_no_identifier_invariant_or_fault_is_used_twice() -> None:
    assert len(by_id()) == len(failures())
    for field in ("invariant", "fault", "consequence", "recovery", "gate"):
        told = Counter(getattr(failure, field) for failure in failures())
        assert [text for text, count in told.items() if count > 1] == []


def test_every_loop_of_the_two_documents_that_count_them_has_four() -> None:
    loops = {"lora_plus": "lora_fa"}
    found = Counter(loops.get(str(f.oracle), f.oracle) for f in failures() if f.family in ("variants", "routed"))
    assert set(found.values()) == {4}
    assert len(found) == 18
    assert {failure.oracle for failure in failures() if failure.family == "conditional"} == {
        "family_contracts", "moa", "switchhead", "mod_training", "mod_causal", "mod_sparse_kv", "mode_composition",
        "multimodal_stage", "sensitivity",
    }  # fmt: skip


def test_the_routed_faults_are_those_the_evaluation_oracle_injects() -> None:
    document = json.loads(EVALUATION.fixture_bytes())
    recorded = [
        (failure.oracle, failure.inject.field, failure.inject.value, failure.detector)
        for failure in failures()
        if failure.family == "routed" and failure.inject
    ]
    assert recorded == [
        (OWNERS[fault["loop"]].name, fault["field"], fault["value"], fault["detector"]) for fault in document["faults"]
    ]


@pytest.mark.parametrize("code", CODES)
def test_every_finding_code_detects_a_recorded_failure(code: str) -> None:
    assert CODES[code].failure in by_id()


def test_a_record_of_no_document_claims_nothing_from_one() -> None:
    for failure in failures():
        assert (failure.source == OWN) == (failure.family == "registry") == (not failure.documented)
        assert not ALWAYS_OURS & set(failure.documented)


@pytest.mark.parametrize("left_out", sorted(ENTRY))
def test_a_record_without_one_of_its_coordinates_is_refused(left_out: str) -> None:
    one = failures()[0]
    entry = {name: value for name, value in one.document().items() if name in ENTRY}
    group: JsonObject = {"oracle": one.oracle, "test": one.test, "limit": one.limit, "failures": [entry]}
    file: JsonObject = {"documented": {one.source: []}, "groups": [group]}
    assert validate(FamilyFile, file).groups[0].failures[0].id == one.id
    del entry[left_out]
    with pytest.raises(RefusedError) as caught:
        validate(FamilyFile, file)
    assert caught.value.problems[0].path[-1] == left_out
