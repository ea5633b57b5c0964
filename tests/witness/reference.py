"""The operators and figures of a composition in plain Python float64: what the torch engine is compared with.

Written from the documents alone, over the oracles' matrices and factorizations; no torch, no numpy. Deltas are built
densely, norms entry by entry, selections by sorting, ranks and rounding errors in rational numbers: slow and short.

Shapes: A_i [r_i, d_in], B_i [d_out, r_i], c_i = lambda_i s_i, D_i = s_i B_i A_i [d_out, d_in].
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from blake3 import blake3

from oracles.linalg import rank, svd
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    frobenius,
    hadamard,
    hstack,
    inner,
    matmul,
    matrix,
    scale,
    shape,
    subtract,
    transpose,
    vstack,
    zeros,
)
from schemas.methods import Choices, Method, Space, TiesChoices
from tests.witness.exact import exact_rank, exact_sum

Role = Literal["delta", "a", "b"]
Bits = tuple[bool, ...]


class Pair(NamedTuple):
    """A factor pair; its delta is B A."""

    B: Matrix
    A: Matrix

    @property
    def delta(self) -> Matrix:
        """B A."""
        return matmul(self.B, self.A)


@dataclass(frozen=True)
class Plain:
    """One member of one module."""

    adapter: str
    weight: float
    scale: float
    B: Matrix
    A: Matrix

    @property
    def c(self) -> float:
        """c_i = lambda_i s_i."""
        return self.weight * self.scale

    @property
    def delta(self) -> Matrix:
        """D_i = s_i B_i A_i."""
        return scale(self.scale, matmul(self.B, self.A))

    @property
    def size(self) -> float:
        """|B_i|_F |A_i|_F times the largest of |c_i|, |s_i| and 1: bounds the delta with and without coefficients."""
        return max(abs(self.c), abs(self.scale), 1.0) * frobenius(self.B) * frobenius(self.A)


Members = Sequence[Plain]


def delta_sum(members: Members) -> Matrix:
    """D = sum_i c_i B_i A_i (R 0x05A)."""
    return add(*(scale(m.c, matmul(m.B, m.A)) for m in members))


def cat(members: Members) -> Pair:
    """B = [B_1 ... B_J], A = [c_1 A_1; ...; c_J A_J]: every block with its own coefficient (R 0x05B)."""
    return Pair(hstack(*(m.B for m in members)), vstack(*(scale(m.c, m.A) for m in members)))


def factor_weights(members: Members) -> tuple[Vector, Vector]:
    """sign(c_i) sqrt|c_i| for A and sqrt|c_i| for B (R 0x05D)."""
    roots = tuple(math.sqrt(abs(m.c)) for m in members)
    return tuple(math.copysign(root, m.c) for root, m in zip(roots, members, strict=True)), roots


def weighted_sum(values: Sequence[Matrix], weights: Vector) -> Matrix:
    """sum_i w_i x_i."""
    return add(*(scale(w, x) for w, x in zip(weights, values, strict=True)))


def kept_count(density: float, count: int, rule: str) -> int:
    """k as a float product rounded down, as PEFT 0.21.2 does, or to the nearest with halves to even."""
    return math.floor(density * count) if rule == "floor" else round(density * count)


def trim(values: Matrix, density: float, rule: str) -> Matrix:
    """The k largest magnitudes in place and zeros elsewhere; of equal ones the lower flat index stays (R 0x05E)."""
    flat = [x for row in values for x in row]
    k = kept_count(density, len(flat), rule)
    kept = set(sorted(range(len(flat)), key=lambda p: (-abs(flat[p]), p))[:k])
    return unflatten(tuple(x if p in kept else 0.0 for p, x in enumerate(flat)), values)


def unflatten(flat: Sequence[float], like: Matrix) -> Matrix:
    """Row-major entries in the shape of another matrix."""
    rows, columns = shape(like)
    return matrix([flat[i * columns : (i + 1) * columns] for i in range(rows)])


def sign(x: float) -> int:
    """-1, 0 or 1."""
    return (x > 0.0) - (x < 0.0)


SMALLEST_DIVISOR: Final = 1e-8
"""mergekit leaves a sum of aligned weights below it undivided."""


def ties_coordinate(values: Vector, weights: Vector, choices: TiesChoices) -> tuple[float, tuple[int, ...]]:
    """Elect and reduce one coordinate, and the signs that voted (R 0x05E steps 2 and 3)."""
    products = tuple(w * x for w, x in zip(weights, values, strict=True))
    votes = products if choices.values == "weighted" else values
    signs = tuple(map(sign, votes))
    elected = sign(math.fsum(votes) if choices.elect == "total" else sum(signs))
    if elected == 0 and choices.zero_sum == "plus":
        elected = 1
    aligned = [(y, w) for y, w, s in zip(products, weights, signs, strict=True) if s == elected and y != 0.0]
    total = math.fsum(y for y, _ in aligned)
    if choices.reduce == "count":
        return total / max(len(aligned), 1), signs
    divisor = math.fsum(w for _, w in aligned)
    divided = choices.reduce == "weight_sum" and abs(divisor) >= SMALLEST_DIVISOR
    return total / divisor if divided else total, signs


class Elected(NamedTuple):
    """The merged values; coordinates with votes of both signs, and with any vote."""

    values: Matrix
    conflicts: int
    covered: int


def ties(values: Sequence[Matrix], weights: Vector, choices: TiesChoices) -> Elected:
    """TIES on trimmed values, coordinate by coordinate."""
    columns = zip(*([x for row in each for x in row] for each in values), strict=True)
    merged = [ties_coordinate(column, weights, choices) for column in columns]
    conflicts = sum({1, -1} <= set(signs) for _, signs in merged)
    covered = sum(any(signs) for _, signs in merged)
    return Elected(unflatten([x for x, _ in merged], values[0]), conflicts, covered)


CONTEXT: Final = "adapter-registry v1 mask"


def keep_mask(seed: str, adapter: str, module: str, role: Role, density: float, count: int) -> Bits:
    """Coordinate i is kept iff u32 LE number i of the BLAKE3 derive-key stream is below floor(q 2^32)."""
    key = json.dumps([seed, adapter, module, role], separators=(",", ":")).encode("ascii")
    stream = blake3(key, derive_key_context=CONTEXT).digest(length=4 * count)
    threshold = math.floor(density * 2**32)
    return tuple(int.from_bytes(stream[4 * i : 4 * i + 4], "little") < threshold for i in range(count))


def mask_digest(bits: Bits) -> str:
    """BLAKE3 of the mask packed eight a byte, lowest bit first, the last byte filled with zeros."""
    packed = bytes(sum(bit << place for place, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))
    return f"blake3:{blake3(packed).hexdigest()}"


def drop(values: Matrix, bits: Bits, density: float) -> Matrix:
    """delta^_j = z_j delta_j / q, coordinates row-major (R 0x05F)."""
    return scale(1.0 / density, hadamard(values, unflatten([float(bit) for bit in bits], values)))


class Drawn(NamedTuple):
    """What the manifest records of a mask."""

    adapter: str
    role: Role
    mask: str
    retained: int


@dataclass(frozen=True)
class Prepared:
    """The members' values as they enter the merge; for DARE also as dropped before a trim, and the masks."""

    values: tuple[Matrix, ...]
    dropped: tuple[Matrix, ...] = ()
    masks: tuple[Drawn, ...] = ()


@dataclass(frozen=True)
class Case:
    """One module to compose: `keep` is the output rank of delta methods that factor anew."""

    method: Method
    space: Space
    members: tuple[Plain, ...]
    choices: Choices
    keep: int = 1
    module: str = "m"


def prepare(case: Case, values: tuple[Matrix, ...], role: Role) -> Prepared:
    """Trim, drop, or leave, as the method says."""
    choices = case.choices
    if case.method.startswith("dare"):
        return _dropped(case, values, role)
    limit = {"ties": choices.ties, "magnitude_prune": choices.prune}.get(case.method)
    return Prepared(values if limit is None else tuple(trim(x, limit.density, limit.k_rule) for x in values))


def _dropped(case: Case, values: tuple[Matrix, ...], role: Role) -> Prepared:
    dare, elect = case.choices.dare, case.choices.ties
    assert dare is not None
    count = math.prod(shape(values[0]))
    bits = [keep_mask(dare.seed, m.adapter, case.module, role, dare.density, count) for m in case.members]
    dropped = tuple(drop(x, z, dare.density) for x, z in zip(values, bits, strict=True))
    masks = tuple(Drawn(m.adapter, role, mask_digest(z), sum(z)) for m, z in zip(case.members, bits, strict=True))
    if case.method == "dare_linear" or elect is None:
        return Prepared(dropped, dropped, masks)
    return Prepared(tuple(trim(x, elect.density, elect.k_rule) for x in dropped), dropped, masks)


def merge(case: Case, values: Sequence[Matrix], weights: Vector) -> Elected:
    """The weighted sum, or TIES where the method elects."""
    if case.method.endswith("ties") and case.choices.ties is not None:
        return ties(values, weights, case.choices.ties)
    return Elected(weighted_sum(values, weights), 0, 0)


@dataclass(frozen=True)
class Factorwise:
    """Both sides of a factor-space method."""

    a: Prepared
    b: Prepared
    merged_a: Elected
    merged_b: Elected

    @property
    def pair(self) -> Pair:
        """The merged factors."""
        return Pair(self.merged_b.values, self.merged_a.values)


def factorwise(case: Case) -> Factorwise:
    """A and B prepared and merged apart, so B A has cross terms (R 0x05D)."""
    for_a, for_b = factor_weights(case.members)
    a = prepare(case, tuple(m.A for m in case.members), "a")
    b = prepare(case, tuple(m.B for m in case.members), "b")
    return Factorwise(a, b, merge(case, a.values, for_a), merge(case, b.values, for_b))


def gauge_change(case: Case) -> float:
    """The largest |B A - B' A'|_F when one member is regauged by A -> 2 A, B -> B / 2 (R 0x05D)."""
    plain = factorwise(case).pair.delta
    changes = []
    for i, chosen in enumerate(case.members):
        other = replace(chosen, A=scale(2.0, chosen.A), B=scale(0.5, chosen.B))
        members = (*case.members[:i], other, *case.members[i + 1 :])
        changes.append(frobenius(subtract(factorwise(replace(case, members=members)).pair.delta, plain)))
    return max(changes)


def cross_free(case: Case, found: Factorwise) -> Matrix:
    """sum_i c_i b_i a_i of the prepared factors: the product without its terms B_i A_j, i != j."""
    blocks = zip(case.members, found.b.values, found.a.values, strict=True)
    return add(*(scale(m.c, matmul(b, a)) for m, b, a in blocks))


@dataclass(frozen=True)
class Expected:
    """Output and figures of one module.

    `target` is what the method defines: the exact sum, the merged dense delta, or the product of the merged factors.
    `pair` is set where the factors themselves are defined and no SVD chooses them. `size` is what rounding is
    relative to. `gauge` is the absolute change; `drops` hold (expected relative error, |D^ - D|_F, |D|_F).
    """

    target: Matrix
    pair: Pair | None
    size: float
    keep: int
    sigma: Vector
    products: Matrix
    numerical_rank: int | None = None
    deviation: float | None = None
    cross_terms: float | None = None
    gauge: float | None = None
    conflict: tuple[int, int] | None = None
    retained: tuple[int, ...] = ()
    masks: tuple[Drawn, ...] = ()
    drops: tuple[tuple[float, float, float], ...] = ()

    @property
    def discarded(self) -> float:
        """sum_{k > r'} sigma_k^2 (R 0x05C)."""
        return math.fsum(s * s for s in self.sigma[self.keep :])


def expected(case: Case) -> Expected:
    """What the engine must give for a case, `dense_sum` apart."""
    if case.space == "factor":
        return _in_factors(case)
    return _exact_sum(case) if case.method in ("cat", "delta_svd") else _in_deltas(case)


def _common(case: Case, target: Matrix, pair: Pair | None) -> Expected:
    deltas = [m.delta for m in case.members]
    sizes = [frobenius(target), math.fsum(m.size for m in case.members)]
    if pair is not None:
        sizes.append(frobenius(pair.B) * frobenius(pair.A))
    products = tuple(tuple(inner(x, y) for y in deltas) for x in deltas)
    keep = case.keep if pair is None else len(pair.A)
    return Expected(target, pair, max(sizes), keep, svd(target).sigma, products)


def _exact_sum(case: Case) -> Expected:
    pair = cat(case.members) if case.method == "cat" else None
    found = _common(case, delta_sum(case.members), pair)
    blocks = [(m.c, m.B, m.A) for m in case.members]
    return replace(found, numerical_rank=exact_rank(exact_sum(blocks)))


def _in_deltas(case: Case) -> Expected:
    deltas = tuple(m.delta for m in case.members)
    ready = prepare(case, deltas, "delta")
    merged = merge(case, ready.values, tuple(m.weight for m in case.members))
    q = case.choices.dare.density if case.choices.dare is not None else 1.0
    drops = [
        (math.sqrt((1.0 - q) / q), frobenius(subtract(z, d)), frobenius(d))
        for z, d in zip(ready.dropped, deltas, strict=False)
    ]
    return replace(
        _common(case, merged.values, None),
        deviation=frobenius(subtract(merged.values, delta_sum(case.members))),
        conflict=(merged.conflicts, merged.covered) if case.method.endswith("ties") else None,
        retained=tuple(nonzero(x) for x in ready.values),
        masks=ready.masks,
        drops=tuple(drops),
    )


def _in_factors(case: Case) -> Expected:
    found = factorwise(case)
    target, q = found.pair.delta, case.choices.dare.density if case.choices.dare is not None else 1.0
    own = [Pair(m.B, m.A).delta for m in case.members]
    dropped = zip(found.b.dropped, found.a.dropped, own, strict=False)
    conflict = (
        found.merged_a.conflicts + found.merged_b.conflicts,
        found.merged_a.covered + found.merged_b.covered,
    )
    return replace(
        _common(case, target, found.pair),
        numerical_rank=0 if target == zeros(*shape(target)) else rank(target),
        deviation=frobenius(subtract(target, delta_sum(case.members))),
        cross_terms=frobenius(subtract(target, cross_free(case, found))),
        gauge=gauge_change(case),
        conflict=conflict if case.method.endswith("ties") else None,
        retained=tuple(nonzero(x) for pair in zip(found.a.values, found.b.values, strict=True) for x in pair),
        masks=tuple(mask for pair in zip(found.a.masks, found.b.masks, strict=True) for mask in pair),
        drops=tuple(
            (math.sqrt(1.0 / q**2 - 1.0), frobenius(subtract(matmul(b, a), d)), frobenius(d)) for b, a, d in dropped
        ),
    )


def nonzero(values: Matrix) -> int:
    """How many entries are not zero."""
    return sum(x != 0.0 for row in values for x in row)


def cosine(products: Matrix, i: int, j: int) -> float | None:
    """<D_i, D_j> / (|D_i| |D_j|); none where a member is zero."""
    size = math.sqrt(products[i][i]) * math.sqrt(products[j][j])
    return products[i][j] / size if size else None


def gram(rows: Matrix) -> Matrix:
    """X X^T."""
    return matmul(rows, transpose(rows))
