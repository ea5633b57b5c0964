"""Evaluations: cells of a frozen design, what they say together, and what is refused (R 0x0AB to 0x0AD)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from schemas.canonical import JsonObject
from schemas.digests import blob_digest
from schemas.evaluation import EvaluationManifest
from schemas.model import validate
from tests.routed.conftest import Api, Run, written
from tests.routed.documents import QUALITIES, evaluation, mutations
from tests.support import tiny
from validators.codes import evaluation as subject
from validators.evaluations import contrasts, judge_evaluation, verdict

MEANS = dict(
    zip(
        (blob_digest(name) for name in (b"mixed", b"oracle", b"uniform", b"top2", b"static", b"amlora")),
        (0.7175, 0.7725, 0.7150, 0.7575, 0.7375, 0.7450),
        strict=True,
    )
)
"""The document's six candidates and their means (R 0x0AC)."""
FIRST, SECOND, THIRD = [*MEANS][:3]


def manifest(**changes: Any) -> EvaluationManifest:
    """The example, or one changed."""
    return validate(EvaluationManifest, evaluation(MEANS, **changes))


def codes(**changes: Any) -> set[str]:
    """What is found in a changed example."""
    return {found.code for found in judge_evaluation(manifest(**changes))}


def cells(*more: JsonObject, without: int = 0) -> list[JsonObject]:
    """The example's cells without the first so many, and more."""
    held = evaluation(MEANS)["cells"]
    assert isinstance(held, list)
    return [*(item for item in held[without:] if isinstance(item, dict)), *more]


def cell(**changes: Any) -> JsonObject:
    """One more cell of the example's first unit."""
    document: JsonObject = {
        "candidate": FIRST, "workload": "safety", "split": "selection", "nuisance": 0, "value": 0.5,
    }  # fmt: skip
    return document | changes


def test_the_documents_paired_differences_come_out_of_its_means() -> None:
    found = [item for item in contrasts(manifest(), "selection") if item.quality == "target"]
    assert [item.mean for item in found] == pytest.approx([0.0550, -0.0025, 0.0400, 0.0200, 0.0275], abs=1e-12)
    assert [(item.pairs, item.missing) for item in found] == [(4, 0)] * 5
    assert all(item.variance == pytest.approx(0.0, abs=1e-24) for item in found)


def test_variance_and_standard_error_are_those_of_a_sample() -> None:
    shifted = [
        {**item, "value": 0.8 + 0.1 * int(str(item["nuisance"])) ** 2}
        if (item["candidate"], item["workload"]) == (SECOND, "domain_alpha")
        else item
        for item in cells()
    ]
    (found,) = [
        item
        for item in contrasts(manifest(cells=shifted), "test")
        if item.candidate == SECOND and item.quality == "target"
    ]
    differences = [0.8 + 0.1 * n * n - 0.7175 - 0.01 * n for n in range(4)]
    mean = sum(differences) / 4
    variance = sum((d - mean) ** 2 for d in differences) / 3
    assert found.mean == pytest.approx(mean)
    assert found.variance == pytest.approx(variance)
    assert found.standard_error == pytest.approx((variance / 4) ** 0.5)


def test_a_missing_cell_stays_missing_and_leaves_the_verdict_open() -> None:
    whole = manifest()
    assert codes() == set()
    assert verdict(whole, SECOND) == "passed"
    assert verdict(whole, THIRD) == "incomplete"
    lacking = [item for item in cells() if (item["split"], item["workload"], item["nuisance"]) != ("test", "safety", 2)]
    short = manifest(cells=lacking)
    assert {(item.quality, item.missing) for item in contrasts(short, "test") if item.candidate == SECOND} == {
        ("target", 0), ("base", 0), ("unseen", 0), ("calibration", 0), ("safety", 1),
    }  # fmt: skip
    assert verdict(short, SECOND) == "incomplete"
    nothing = contrasts(manifest(cells=[]), "test")[0]
    assert (nothing.pairs, nothing.missing, nothing.mean, nothing.standard_error) == (0, 4, None, None)


@pytest.mark.parametrize(
    ("workload", "loss", "outcome"),
    [("base_retention", 0.06, "passed"), ("base_retention", 0.07, "failed"), ("safety", 0.06, "failed")],
)
def test_a_gain_on_the_target_pays_for_no_loss_beyond_a_margin(workload: str, loss: float, outcome: str) -> None:
    changed = [
        {**item, "value": float(str(item["value"])) - loss}
        if (item["candidate"], item["workload"]) == (SECOND, workload)
        else item
        for item in cells()
    ]
    assert verdict(manifest(cells=changed), SECOND) == outcome


def test_the_direction_of_the_estimand_decides_what_is_better() -> None:
    assert verdict(manifest(estimand={"quality": "target", "direction": "lower"}), SECOND) == "failed"


def test_each_breach_of_a_design_has_its_own_code() -> None:
    failed: JsonObject = {"outcome": "infrastructure_failure", "value": None}
    first = cell(candidate=FIRST, workload="domain_alpha", nuisance=0)
    design = evaluation(MEANS)["design"]
    assert isinstance(design, dict)
    breaches = {
        "CELL_OUTSIDE_DESIGN": codes(cells=cells(cell(nuisance=4))),
        "CELL_TWICE": codes(cells=cells(cell())),
        "FAILED_ATTEMPT_NOT_KEPT": codes(cells=cells(first | {"attempt": 2}, without=1)),
        "OUTCOME_RETRIED": codes(
            cells=cells(first | failed | {"outcome": "numerical_failure"}, first | {"attempt": 2}, without=1)
        ),
        "HELD_OUT_OPENED_AGAIN": codes(cells=cells(cell(candidate=THIRD, split="test"))),
        "SPLITS_NOT_DISJOINT": codes(design={**design, "test": design["selection"]}),
        "CONTRAST_OUTSIDE_DESIGN": codes(
            contrasts=[{"candidate": SECOND, "baseline": FIRST}, {"candidate": FIRST, "baseline": FIRST}]
        ),
        "QUALITY_INCOMPLETE": codes(qualities={key: QUALITIES[key] for key in ("target", "base", "unseen", "safety")}),
    }
    assert breaches == {code: {code} for code in breaches}
    assert breaches.keys() == {record.code for record in subject.RECORDS}
    assert codes(cells=cells(first | failed, first | {"attempt": 2}, without=1)) == set()


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": {"quality": True}},
        {"cells": [cell(value=None)]},
        {"cells": [cell(outcome="numerical_failure")]},
        {"inference": {"sampling_unit": "example"}},
        {"average": 0.75},
        {"margins": {"base": -0.1, "safety": 0.0}},
    ],
)
def test_what_no_evaluation_can_say_is_refused_by_type(changes: JsonObject) -> None:
    with pytest.raises(RefusedError):
        manifest(**changes)


def test_one_changed_field_is_refused_or_another_identity() -> None:
    small = evaluation({FIRST: 0.7, SECOND: 0.8})
    small["cells"] = [cell(), cell(candidate=SECOND)]
    legal, outcomes = validate(EvaluationManifest, small), Counter[str]()
    for path, mutated in mutations(small):
        try:
            found = validate(EvaluationManifest, mutated)
        except RefusedError:
            outcomes["refused by type"] += 1
            continue
        if list(judge_evaluation(found)):
            outcomes["refused by rule"] += 1
        else:
            assert found.digest != legal.digest, path
            outcomes["another identity"] += 1
    print(dict(outcomes))
    assert {"refused by type", "refused by rule", "another identity"} == set(outcomes)


def test_an_evaluation_is_registered_with_its_candidates_as_parents(registry: EmbeddedRegistry) -> None:
    added = registry.add_evaluation(evaluation({"one": 0.7, "two": 0.8}), "study")
    assert {node.digest for node in registry.lineage("study", "up").nodes if node.depth == 1} == {
        registry.show(name).digest for name in ("one", "two")
    }
    assert registry.evaluation_report("study").verdict == "passed"
    with pytest.raises(RefusedError) as caught:
        registry.add_evaluation(evaluation({"one": 0.7, "two": 0.8}, qualities={}), "no")
    assert caught.value.code == "QUALITY_INCOMPLETE"
    assert added.created


def test_an_evaluation_by_command_and_by_request(run: Run, api: Api, tmp_path: Path) -> None:
    run("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    for seed, name in enumerate(("one", "two"), 1):
        run("add", "adapter", tiny.write_adapter(tmp_path / f"cli-{name}", seed), "--base", "tiny", "--name", name)
    document = evaluation({"one": 0.7, "two": 0.8})
    run("add", "evaluation", written(tmp_path / "study.json", document), "--name", "study")
    assert "passed" in run("evaluation", "study").stdout
    assert json.loads(run("evaluation", "study", "-o", "json").stdout)["verdict"] == "passed"
    body = {"name": "study", "document": document}
    assert [api.post("/v1/evaluations", json=body).status_code for _ in range(2)] == [201, 200]
    assert api.get("/v1/evaluations/study/report").json()["verdict"] == "passed"
