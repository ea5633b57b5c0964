"""Evaluations: registering one, and telling what its contrasts say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.db import Reader, manifests
from registry.service import documents, resolve
from registry.service.context import Context
from registry.service.results import Added, EvaluationReport
from schemas.canonical import JsonObject
from schemas.decision import Finding
from schemas.evaluation import EvaluationManifest
from validators.evaluations import contrasts, judge_evaluation, verdict

REFERENCES: Final = frozenset({"candidate", "candidates", "baseline", "selected"})


def add_evaluation(context: Context, document: JsonObject, name: str) -> Added:
    """Register an evaluation of registered candidates."""
    found = documents.resolved(context, document, REFERENCES)
    return documents.add_document(context, found, name, EvaluationManifest, _judge)


def report(context: Context, ref: str) -> EvaluationReport:
    """Paired differences of both splits, and whether the selected candidate passed."""
    with context.database.reading() as reader:
        found = manifests.load(reader, resolve.digest_of(reader, ref), EvaluationManifest)
    return EvaluationReport(
        evaluation=found.digest,
        selected=found.selected,
        verdict=verdict(found, found.selected),
        selection=contrasts(found, "selection"),
        test=contrasts(found, "test"),
    )


def _judge(_: Reader, found: EvaluationManifest) -> Iterable[Finding]:
    return judge_evaluation(found)
