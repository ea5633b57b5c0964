"""LoftQ: a quantized base and its low-rank factors are one initialization (V 0x07).

Shapes: W, Q [d_out, d_in]; A [r, d_in]; B [d_out, r]. Every error is a squared Frobenius norm.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, above, below, close, equal
from oracles.differences import Point, central
from oracles.errors import FixtureRefusedError
from oracles.linalg import svd
from oracles.matrix import (
    Matrix,
    Vector,
    distance,
    matmul,
    max_abs,
    require_length,
    require_shape,
    scale,
    squared_frobenius,
    subtract,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.lora import effective, spectral_factors
from schemas.canonical import canonical_bytes
from schemas.digests import blob_digest

BLOCKS, ENERGY, TRACE, COUNT, SCALE = "V 0x07B", "V 0x07C", "V 0x07D", "V 0x07E", "V 0x07F"
MERGE, ARTIFACT, ORDER = "V 0x07I", "V 0x07J", "V 0x07L"

Names = tuple[str, ...]
Positive = Annotated[int, Field(gt=0)]


class Manifest(Fixture):
    """What admission compares, beside the digest of the base."""

    quantizer: str
    source_tensors: Names
    rank: Positive
    scale: float
    target_modules: Names


class BaseState(Fixture):
    """What the quantized base declares."""

    quantizer: str
    source_tensors: Names


class AdapterState(Fixture):
    """What the adapter declares."""

    rank: Positive
    scale: float
    target_modules: Names


class Admission(Fixture):
    """The pair offered, and the manifest it is held against."""

    manifest: Manifest
    base: BaseState
    adapter: AdapterState


class LoftqFixture(Fixture):
    """The three-by-three trace of V 0x07D, and a matrix whose objective rises from the start."""

    W: FixtureMatrix
    increasing: FixtureMatrix
    codebook: FixtureVector
    r: Positive
    T: Positive
    forward_scale: Annotated[float, Field(gt=0)]
    order: Literal["quantize_first", "svd_first"]
    split: Literal["scale_aware", "unscaled"]
    factors_on: Literal["final_base", "fresh_base"]
    admission: Admission


class Quantized(NamedTuple):
    """Codes under one matrix-wide absmax scale."""

    codes: tuple[tuple[int, ...], ...]
    absmax: float
    codebook: Vector

    @property
    def weight(self) -> Matrix:
        """The dequantized matrix."""
        return tuple(tuple(self.absmax * self.codebook[z] for z in row) for row in self.codes)

    def digest(self) -> str:
        """Identity of the stored base."""
        return blob_digest(canonical_bytes([[list(row) for row in self.codes], self.absmax, list(self.codebook)]))


class Iteration(NamedTuple):
    """One alternation: the base, its factors, and the error before and after the SVD."""

    base: Quantized
    B: Matrix
    A: Matrix
    quantized_error: float
    error: float


def quantize(Z: Matrix, codebook: Vector) -> Quantized:
    """The nearest code of every entry over a newly computed absmax; an all-zero matrix is refused."""
    if not (c := max_abs(Z)):
        raise FixtureRefusedError("Z", "an all-zero matrix", "a matrix with a non-zero entry")
    codes = tuple(tuple(min(range(len(codebook)), key=lambda z: abs(x / c - codebook[z])) for x in row) for row in Z)
    return Quantized(codes, c, codebook)


def alternate(W: Matrix, codebook: Vector, r: int, steps: int, s: float = 1.0) -> tuple[Iteration, ...]:
    """Quantize W - s B A, then fit rank r to W - Q, `steps` times from B A = 0."""
    product, found = zeros(len(W), len(W[0])), []
    for _ in range(steps):
        base = quantize(subtract(W, product), codebook)
        before = squared_frobenius(subtract(subtract(W, base.weight), product))
        B, A = spectral_factors(subtract(W, base.weight), r, s)
        product = scale(s, matmul(B, A))
        after = squared_frobenius(subtract(subtract(W, base.weight), product))
        found.append(Iteration(base, B, A, before, after))
    return tuple(found)


def objective(W: Matrix, base: Matrix, B: Matrix, A: Matrix, s: float) -> float:
    """J = |W - Q - s B A|^2, the error of the executed weight."""
    return squared_frobenius(subtract(W, effective(base, A, B, s)))


def svd_first(W: Matrix, codebook: Vector, r: int) -> float:
    """The swapped order: fit W, then quantize what remains."""
    B, A = spectral_factors(W, r, 1.0)
    rest = subtract(W, matmul(B, A))
    return squared_frobenius(subtract(rest, quantize(rest, codebook).weight))


def differences(manifest: Manifest, base: BaseState, adapter: AdapterState, against: str, digest: str) -> Names:
    """The fields on which admission fails; none for a matching pair."""
    pairs = {
        "quantizer": (base.quantizer, manifest.quantizer),
        "source_tensors": (base.source_tensors, manifest.source_tensors),
        "rank": (adapter.rank, manifest.rank),
        "scale": (adapter.scale, manifest.scale),
        "target_modules": (adapter.target_modules, manifest.target_modules),
        "initialized_against": (against, digest),
    }
    return tuple(name for name, (found, expected) in pairs.items() if found != expected)


def trace_checks(fixture: LoftqFixture, run: tuple[Iteration, ...]) -> Iterator[Check]:
    """Four iterations: errors before and after each SVD, the first codes and factors."""
    first, W = run[0], fixture.W
    yield equal("iterations and rank", (fixture.T, fixture.r), (4, 1), source=TRACE)
    yield equal("codes of Q(W)", first.base.codes, ((2, 3, 3), (1, 3, 1), (2, 0, 1)), source=TRACE)
    yield close("absmax of Q(W)", first.base.absmax, 3.91, source=TRACE, digits=2, tolerance=1e-12)
    yield close("error of Q(W)", first.quantized_error, 5.276988888889, source=TRACE, digits=12)
    yield close("B1", first.B, B1, source=TRACE, digits=12)
    yield close("A1", first.A, A1, source=TRACE, digits=12)
    energies = tuple(x * x for x in svd(subtract(W, first.base.weight)).sigma)
    yield close("recovered energy fraction", energies[0] / math.fsum(energies), 0.764836830295, source=TRACE, digits=12)
    yield close("error after one SVD", first.error, 1.240953433611, source=TRACE, digits=12)
    before = tuple(step.quantized_error for step in run[:4])
    yield close("errors before the SVD", before, BEFORE, source=TRACE, digits=6)
    yield close("errors after the SVD", tuple(step.error for step in run[:4]), AFTER, source=TRACE, digits=6)


def guarantee_checks(fixture: LoftqFixture, run: tuple[Iteration, ...]) -> Iterator[Check]:
    """The SVD block is optimal for its base; the quantizer block is no descent, nor is the whole iteration."""
    lowered = all(step.error < step.quantized_error for step in run)
    yield equal("every SVD lowers its own base's error", lowered, True, source=BLOCKS)
    yield equal("the second quantizer call raises it", run[1].quantized_error > run[0].error, True, source=TRACE)
    later = tuple(step.error for step in run[4:])
    yield close("errors after four more iterations", later, LATER, source=BLOCKS, digits=6)
    other = alternate(fixture.increasing, fixture.codebook, fixture.r, 4)
    yield equal("codes of the rising matrix", other[0].base.codes, ((2, 1, 0), (0, 2, 3), (2, 2, 2)), source=BLOCKS)
    yield close("errors that rise from the start", tuple(s.error for s in other), RISING, source=BLOCKS, digits=6)
    first = run[0]

    def loss(point: Point) -> float:
        return objective(fixture.W, first.base.weight, point["B"], point["A"], 1.0)

    slopes = central(loss, {"B": first.B, "A": first.A})
    yield below("the SVD is stationary (6 coordinates)", max(map(max_abs, slopes.values())), 1e-8, source=BLOCKS)
    sigma = svd(subtract(fixture.W, first.base.weight)).sigma
    tail = abs(math.fsum(x * x for x in sigma[fixture.r :]) - first.error)
    yield below("error after the SVD is the squared tail", tail, 1e-12, source=ENERGY)


def state_checks(fixture: LoftqFixture, run: tuple[Iteration, ...]) -> Iterator[Check]:
    """T = 0, 1, 4 and replacement on a fixed base; factors and base belong together."""
    W, last = fixture.W, run[fixture.T - 1]
    fresh = quantize(W, fixture.codebook)
    yield equal("at T = 1 the base is QLoRA's", run[0].base == fresh, True, source=COUNT)
    yield equal("at T = 4 it is another", last.base == fresh, False, source=COUNT)
    base = last.base if fixture.factors_on == "final_base" else fresh
    paired = objective(W, base.weight, last.B, last.A, 1.0)
    yield close("T = 4 factors on their base", paired, 0.855185, source=COUNT, digits=6)
    mismatched = objective(W, fresh.weight, last.B, last.A, 1.0)
    yield close("T = 4 factors on a fresh Q(W)", mismatched, 3.337499353875, source=COUNT, digits=12)
    B, A = spectral_factors(subtract(W, fresh.weight), fixture.r, 1.0)
    replaced = objective(W, fresh.weight, B, A, 1.0)
    yield close("replacement on the fixed base", replaced, 1.240953433611, source=COUNT, digits=12)
    merged = effective(last.base.weight, last.A, last.B, 1.0)
    requantized = quantize(merged, fixture.codebook).weight
    yield above("a merge needs new codes", distance(requantized, merged), 0.1, source=MERGE)


def scale_checks(fixture: LoftqFixture, run: tuple[Iteration, ...]) -> Iterator[Check]:
    """Factors under a forward scale of 1/2, and the swapped order."""
    W, base, s = fixture.W, run[0].base.weight, fixture.forward_scale
    E = subtract(W, base)
    unscaled = objective(W, base, *spectral_factors(E, fixture.r, 1.0), s)
    yield close("unscaled factors at s = 1/2", unscaled, 2.249962297431, source=SCALE, digits=12)
    divided = spectral_factors(E, fixture.r, s if fixture.split == "scale_aware" else 1.0)
    aware = objective(W, base, *divided, s)
    yield close("scale-aware factors at s = 1/2", aware, 1.240953433611, source=SCALE, digits=12)
    swapped = svd_first(W, fixture.codebook, fixture.r)
    yield close("SVD first", swapped, 3.650081878597, source=ORDER, digits=12)
    chosen = run[0].error if fixture.order == "quantize_first" else swapped
    yield close("quantize first", chosen, 1.240953433611, source=ORDER, digits=12)


def admission_checks(fixture: LoftqFixture, run: tuple[Iteration, ...]) -> Iterator[Check]:
    """A matching pair is admitted; each of six differences is refused by name."""
    a, digest = fixture.admission, run[fixture.T - 1].base.digest()
    yield equal("a matching pair", differences(a.manifest, a.base, a.adapter, digest, digest), (), source=ARTIFACT)
    m = a.manifest
    declared = (m.quantizer, m.source_tensors, m.rank, m.scale, m.target_modules)
    yield equal("manifest", declared, DECLARED, source=ARTIFACT)
    fresh = quantize(fixture.W, fixture.codebook).digest()
    refused = differences(m, a.base, a.adapter, digest, fresh)
    yield equal("the adapter on a fresh base", refused, ("initialized_against",), source=ARTIFACT)
    changes = {"quantizer": "", "source_tensors": (), "rank": m.rank + 1, "scale": 0.0, "target_modules": ()}
    others = tuple(m.model_copy(update={name: value}) for name, value in changes.items())
    found = tuple(differences(other, a.base, a.adapter, digest, digest) for other in others)
    yield equal("each change is refused by name", found, tuple((name,) for name in changes), source=ARTIFACT)


def evaluate(fixture: LoftqFixture) -> Iterator[Check]:
    """Every check of V 0x07, in the order of its subsections."""
    require_shape("W", fixture.W, (3, 3))
    require_shape("increasing", fixture.increasing, (3, 3))
    require_length("codebook", fixture.codebook, 4)
    run = alternate(fixture.W, fixture.codebook, fixture.r, 2 * fixture.T)
    yield from trace_checks(fixture, run)
    yield from guarantee_checks(fixture, run)
    yield from state_checks(fixture, run)
    yield from scale_checks(fixture, run)
    yield from admission_checks(fixture, run)


B1: Matrix = ((-0.480669894675,), (-0.477533666939,), (1.244952494712,))
A1: Matrix = ((0.876171940883, 0.827920287789, 0.745559784238),)
BEFORE: Vector = (5.276989, 1.574891, 1.028072, 0.929800)
AFTER: Vector = (1.240953, 0.943482, 0.868030, 0.855185)
LATER: Vector = (0.892505, 1.038784, 1.396043, 2.129980)
RISING: Vector = (0.489813, 0.595456, 0.779754, 1.009957)
DECLARED = ("absmax_four_levels", ("proj.weight",), 1, 1.0, ("proj",))

ORACLE = Oracle(
    name="loftq",
    document="V",
    sections=("0x07B", "0x07C", "0x07D", "0x07E", "0x07F", "0x07I", "0x07J", "0x07L"),
    module=__name__,
    fixture=LoftqFixture,
    evaluate=evaluate,
    proves=(
        "the alternating trace, its factors, and two matrices on which whole iterations raise the objective",
        "the optimality of the SVD block for its base, and the error of a wrong scale, order or base",
        "admission of a base and adapter pair, with each difference refused by name",
    ),
    does_not_prove=(
        "any quantizer but this absmax codebook, or a task metric",
        "the document's second matrix and its dropout figure, whose tensors it does not print",
    ),
    own=("increasing", "admission"),
)
