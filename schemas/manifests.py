"""All manifest kinds, and reading one whose kind is known from its row."""

from __future__ import annotations

from typing import Final

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import BaseManifest
from schemas.composition import AdmissionManifest, CompositionManifest
from schemas.compute import ComputeContractManifest
from schemas.continual import ContinualStateManifest
from schemas.conversion import ConversionManifest
from schemas.digests import Digest, manifest_digest
from schemas.errors import DigestMismatchError, Problem, RefusedError
from schemas.evaluation import EvaluationManifest
from schemas.model import Manifest
from schemas.publication import PublicationManifest, StatementManifest
from schemas.release import CandidateManifest, ResolvedRouteManifest, TransactionManifest
from schemas.router import RouterManifest

AnyManifest = (
    BaseManifest
    | AdapterManifest
    | CompositionManifest
    | ComputeContractManifest
    | RouterManifest
    | ContinualStateManifest
    | CandidateManifest
    | ResolvedRouteManifest
    | TransactionManifest
    | EvaluationManifest
    | ConversionManifest
    | AdmissionManifest
    | PublicationManifest
    | StatementManifest
)

KINDS: Final[dict[str, type[Manifest]]] = {
    model.KIND: model
    for model in (
        BaseManifest,
        FactorManifest,
        AdapterManifest,
        CompositionManifest,
        ComputeContractManifest,
        RouterManifest,
        ContinualStateManifest,
        CandidateManifest,
        ResolvedRouteManifest,
        TransactionManifest,
        EvaluationManifest,
        ConversionManifest,
        AdmissionManifest,
        PublicationManifest,
        StatementManifest,
    )
}


def read_manifest(kind: str, data: bytes, expected: Digest) -> Manifest:
    """Read stored manifest bytes, re-hashing them first.

    Raises:
        DigestMismatchError: `MANIFEST_DIGEST_MISMATCH` when the bytes are not those of `expected`.
        RefusedError: `KIND_UNKNOWN`.
    """
    model = KINDS.get(kind)
    if model is None:
        raise RefusedError(_problem("KIND_UNKNOWN", ", ".join(KINDS), kind, "Upgrade the program."))
    observed = manifest_digest(kind, data)
    if observed != expected:
        hint = "Restore the manifest from a backup; nothing that names this digest may use these bytes."
        raise DigestMismatchError(_problem("MANIFEST_DIGEST_MISMATCH", expected, observed, hint))
    return model.parse(data)


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed, hint=hint)
