"""The evaluation manifest: a frozen design, its cells as they came out, and what was declared before (R 0x0A)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from schemas.composition import Claims
from schemas.digests import Digest
from schemas.linked import Link, LinkedManifest
from schemas.model import Finite, Identifier, Key, NoneLiteral, Record

Split = Literal["selection", "test"]
Quality = Literal["target", "base", "unseen", "calibration", "safety"]
QUALITIES: Final[tuple[Quality, ...]] = ("target", "base", "unseen", "calibration", "safety")


class Nuisance(Record):
    """What may differ between runs and must not differ inside a pair."""

    init: Identifier
    data: Identifier
    route_tie: Identifier
    request_order: Identifier


class Design(Record):
    """What is crossed, frozen before any score. The four splits are data manifests, pairwise different."""

    candidates: Annotated[tuple[Digest, ...], Field(min_length=1)]
    workloads: Annotated[tuple[Key, ...], Field(min_length=1)]
    nuisances: Annotated[tuple[Nuisance, ...], Field(min_length=1)]
    training: Digest
    route_validation: Digest
    selection: Digest
    test: Digest


class Cell(Record):
    """``u = (candidate, workload, split, nuisance, attempt)`` and what came out; only a completed one has a value.

    `nuisance` is the position in the design.
    """

    candidate: Digest
    workload: Key
    split: Split
    nuisance: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)] = 1
    outcome: Literal["completed", "infrastructure_failure", "numerical_failure"] = "completed"
    value: Finite | None

    @model_validator(mode="after")
    def _value_belongs_to_completion(self) -> Self:
        if (self.outcome == "completed") != (self.value is not None):
            raise ValueError("a completed cell has a value, a failed one has none")
        return self


class Contrast(Record):
    """A comparison declared before the scores."""

    candidate: Digest
    baseline: Digest


class Estimand(Record):
    """What the primary contrast estimates: which quality, and which way is better."""

    quality: Quality
    direction: Literal["higher", "lower"]


class Margins(Record):
    """How much base retention and safety may fall, as positive figures of their metrics."""

    base: Annotated[Finite, Field(ge=0.0)]
    safety: Annotated[Finite, Field(ge=0.0)]


class Inference(Record):
    """What makes a standard error an interval: the unit that was sampled, and how units depend on each other."""

    sampling_unit: Identifier
    dependence: Identifier


class EvaluationManifest(LinkedManifest):
    """One evaluation. `qualities` names the workload that measures each part of the quality vector.

    `selected` is the candidate that validation chose and for which alone, with its baselines, the test split is opened.
    """

    KIND: ClassVar[str] = "evaluation"
    kind: Literal["evaluation"] = "evaluation"
    design: Design
    estimand: Estimand
    evaluator: Identifier
    contrasts: Annotated[tuple[Contrast, ...], Field(min_length=1)]
    qualities: dict[Quality, Key]
    margins: Margins
    selection_rule: Identifier
    tie_break: Identifier
    selected: Digest
    inference: Inference | NoneLiteral = "none"
    cells: tuple[Cell, ...]
    claims: Claims = Field(default_factory=Claims)

    def links(self) -> tuple[Link, ...]:
        """Every candidate of the design, once."""
        return tuple(("candidate", digest) for digest in dict.fromkeys(self.design.candidates))
