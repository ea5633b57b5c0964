"""Whether an evaluation kept to its design, what its pairs say, and whether it is passed (R 0x0AB to 0x0AD)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import sqrt
from typing import Final, Literal

from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path
from schemas.evaluation import QUALITIES, Cell, Contrast, EvaluationManifest, Quality, Split
from schemas.model import Record
from validators.context import finding

Verdict = Literal["passed", "failed", "incomplete"]
HELD_OUT: Final[Split] = "test"


class Paired(Record):
    """One contrast on one split: complete pairs, their mean difference, sample variance and standard error.

    `missing` counts pairs of the design without both sides; a figure that needs more pairs than there are is null.
    """

    candidate: Digest
    baseline: Digest
    quality: Quality
    pairs: int
    missing: int
    mean: float | None
    variance: float | None
    standard_error: float | None


def judge_evaluation(found: EvaluationManifest) -> Iterator[Finding]:
    """Everything that was not declared before, was chosen afterwards, or was left out."""
    yield from _design(found)
    yield from _attempts(found)
    allowed = {found.selected} | {item.baseline for item in found.contrasts if item.candidate == found.selected}
    for candidate in sorted({cell.candidate for cell in found.cells if cell.split == HELD_OUT} - allowed):
        yield _found("HELD_OUT_OPENED_AGAIN", ("cells",), "the selected candidate and its baselines", candidate)


def contrasts(found: EvaluationManifest, split: Split) -> tuple[Paired, ...]:
    """Every declared contrast, a quality each (R 0x0AC): nothing is averaged over qualities, nothing is filled in."""
    return tuple(
        _paired(found, contrast, quality, split)
        for contrast in found.contrasts
        for quality in QUALITIES
        if quality in found.qualities
    )


def verdict(found: EvaluationManifest, candidate: Digest) -> Verdict:
    """Whether a candidate passed on the held-out split: better on the target, within both margins, no pair missing."""
    table = {(item.quality): item for item in contrasts(found, HELD_OUT) if item.candidate == candidate}
    needed = {found.estimand.quality, "base", "safety"}
    if candidate != found.selected or any(name not in table or table[name].missing for name in needed):
        return "incomplete"
    gained = _mean(table[found.estimand.quality])
    better = gained > 0.0 if found.estimand.direction == "higher" else gained < 0.0
    kept = _mean(table["base"]) >= -found.margins.base and _mean(table["safety"]) >= -found.margins.safety
    return "passed" if better and kept else "failed"


def _mean(item: Paired) -> float:
    return 0.0 if item.mean is None else item.mean


def _design(found: EvaluationManifest) -> Iterator[Finding]:
    design = found.design
    splits = Counter((design.training, design.route_validation, design.selection, design.test))
    for digest, count in splits.items():
        if count > 1:
            yield _found("SPLITS_NOT_DISJOINT", ("design",), "four data manifests", f"{digest} for {count} splits")
    for position, cell in enumerate(found.cells):
        inside = cell.candidate in design.candidates and cell.workload in design.workloads
        if not inside or cell.nuisance >= len(design.nuisances):
            observed = f"{cell.candidate}, {cell.workload}, nuisance {cell.nuisance}"
            yield _found("CELL_OUTSIDE_DESIGN", ("cells", position), "a cell of the design", observed)
    for position, contrast in enumerate(found.contrasts):
        sides = {contrast.candidate, contrast.baseline}
        if len(sides) != 2 or not sides <= set(design.candidates):
            observed = f"{contrast.candidate} against {contrast.baseline}"
            yield _found("CONTRAST_OUTSIDE_DESIGN", ("contrasts", position), "two candidates of the design", observed)
    for quality in QUALITIES:
        workload = found.qualities.get(quality)
        if workload not in design.workloads:
            yield _found("QUALITY_INCOMPLETE", ("qualities", quality), "a workload of the design", str(workload))


def _attempts(found: EvaluationManifest) -> Iterator[Finding]:
    """Attempts count from 1 without a gap, and only an infrastructure failure has another after it."""
    tried: defaultdict[tuple[str, str, str, int], list[Cell]] = defaultdict(list)
    for cell in found.cells:
        tried[cell.candidate, cell.workload, cell.split, cell.nuisance].append(cell)
    for key, cells in tried.items():
        cells.sort(key=lambda cell: cell.attempt)
        numbers, path = [cell.attempt for cell in cells], ("cells", *key)
        if len(set(numbers)) != len(numbers):
            yield _found("CELL_TWICE", path, "each attempt once", f"attempts {numbers}")
        elif numbers != list(range(1, len(numbers) + 1)):
            yield _found("FAILED_ATTEMPT_NOT_KEPT", path, "attempts from 1 on", f"attempts {numbers}")
        elif any(cell.outcome != "infrastructure_failure" for cell in cells[:-1]):
            yield _found("OUTCOME_RETRIED", path, "one outcome", ", ".join(cell.outcome for cell in cells))


def _paired(found: EvaluationManifest, contrast: Contrast, quality: Quality, split: Split) -> Paired:
    workload = found.qualities[quality]
    ours, theirs = (_scores(found, digest, workload, split) for digest in (contrast.candidate, contrast.baseline))
    both = sorted(ours.keys() & theirs.keys())
    differences = [ours[unit] - theirs[unit] for unit in both]
    count = len(differences)
    mean = sum(differences) / count if count else None
    variance = None if mean is None or count < 2 else sum((d - mean) ** 2 for d in differences) / (count - 1)
    return Paired(
        candidate=contrast.candidate,
        baseline=contrast.baseline,
        quality=quality,
        pairs=count,
        missing=len(found.design.nuisances) - count,
        mean=mean,
        variance=variance,
        standard_error=None if variance is None else sqrt(variance) / sqrt(count),
    )


def _scores(found: EvaluationManifest, candidate: Digest, workload: str, split: Split) -> dict[int, float]:
    """The completed value of each nuisance tuple."""
    return {
        cell.nuisance: cell.value
        for cell in found.cells
        if (cell.candidate, cell.workload, cell.split) == (candidate, workload, split) and cell.value is not None
    }


def _found(code: str, path: Path, expected: str, observed: str) -> Finding:
    return finding(code, "evaluation", path, expected, observed)
