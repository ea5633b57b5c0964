"""The claim ceiling: one closed set, each false or an evidence digest, on everything that reports a result."""

from __future__ import annotations

from typing import Any

import pytest

from oracles import report
from registry.service import witness
from schemas.composition import CLAIMS, Claims, CompositionManifest
from schemas.errors import DigestMismatchError, RefusedError
from schemas.manifests import KINDS
from schemas.model import Manifest, validate
from tests.schemas.chain import build, digest_of

CHAIN = build()
CEILING = {
    "training_reproduced", "checkpoint", "autograd", "gpu_kernel", "scheduler", "latency", "throughput", "quality",
    "benchmark", "ranking",
}  # fmt: skip
CLAIMING = sorted(kind for kind, model in KINDS.items() if "claims" in model.model_fields)


def test_oracles_and_manifests_know_one_closed_set() -> None:
    assert {*CLAIMS} == CEILING == {*report.CLAIMS} == Claims.model_fields.keys()
    assert CompositionManifest.KIND in CLAIMING
    for kind in CLAIMING:
        assert KINDS[kind].model_fields["claims"].annotation is Claims


@pytest.mark.parametrize("claim", sorted(CEILING))
@pytest.mark.parametrize("value", [True, "yes", "none", 1, None, ""])
def test_a_claim_without_evidence_is_refused(claim: str, value: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        validate(CompositionManifest, composition(**{claim: value}))
    assert all(problem.path[:2] == ("claims", claim) for problem in refused.value.problems)


def test_a_claim_with_evidence_is_another_composition_and_an_unknown_claim_none() -> None:
    plain = validate(CompositionManifest, composition())
    shown = [validate(CompositionManifest, composition(**{claim: digest_of("evaluation")})) for claim in CEILING]
    assert len({plain.digest, *(manifest.digest for manifest in shown)}) == len(CEILING) + 1
    with pytest.raises(RefusedError):
        validate(CompositionManifest, composition(safety=digest_of("evaluation")))


def composition(**claims: Any) -> Any:
    """The composition of the chain with nothing claimed but these."""
    manifest: Manifest = CHAIN["composition"]
    return {**manifest.document(), "claims": {**dict.fromkeys(CEILING, False), **claims}}


@pytest.mark.parametrize("claim", sorted(CEILING))
def test_a_kept_report_of_an_oracle_that_claims_something_is_not_the_report(claim: str) -> None:
    kept = witness.report_bytes("lora_plus")
    assert witness.check("lora_plus", kept).name == "lora_plus"
    flipped = kept.replace(f'"{claim}":false'.encode(), f'"{claim}":true'.encode())
    assert flipped != kept
    with pytest.raises(DigestMismatchError, match="ORACLE_DRIFT"):
        witness.check("lora_plus", flipped)
