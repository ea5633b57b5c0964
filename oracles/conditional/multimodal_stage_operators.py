"""The pinned two-choice gate with capacity over every materialised row, and its gradients (C 0x07D, 0x07E).

Shapes: h [B, S, d] flattened to [T, d] in batch-then-row order; W_g [E, d]; z, p, noise [T, E]; FFN: W_1 [d, h],
W_2 [h, d], F(x) = relu(x W_1) W_2. Rows and experts are counted from 0. Second choices follow the pinned dependency:
stored Gumbel noise, and capacity locations that start after all first choices.
"""

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.conditional.attention import row_times, scaled, weighted_sum
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    apply,
    dot,
    outer,
    softmax,
    softmax_backward,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector

EXPERTS, D, ROWS = 4, 2, 12
EPSILON = 2.0**-52
Kind = Literal["image", "text_prompt", "text_target", "pad"]
Sequence6 = tuple[Kind, Kind, Kind, Kind, Kind, Kind]


class Factors(Fixture):
    """Capacity factors: training as in C 0x07L, the stress case, and a separate evaluation factor (ours)."""

    train: float
    stress: float
    evaluation: float


class Stage(Fixture):
    """One training stage: the checkpoint it starts from, the one it leaves, what it trains by the paper's figure."""

    name: Literal["align", "dense_multimodal", "sparse_moe"]
    parent: Literal["base", "aligned_projector", "dense_lvlm", "sparse_lvlm"]
    output: Literal["base", "aligned_projector", "dense_lvlm", "sparse_lvlm"]
    trainable: tuple[Literal["projector", "language_model", "experts", "router"], ...]


class MultimodalFixture(Fixture):
    """Row kinds and dimensions as in C 0x07L; hidden rows, gate, noise and experts are ours."""

    kinds: tuple[Sequence6, Sequence6]
    hidden: FixtureMatrix
    W_g: FixtureMatrix
    noise: FixtureMatrix
    W_1: FixtureMatrix
    W_2: FixtureMatrix
    drift: FixtureVector
    factors: Factors
    min_capacity: Annotated[int, Field(ge=0)]
    activation_bytes: int
    population: Literal["materialised_rows", "valid_rows"]
    second_choice: Literal["gumbel", "second_largest"]
    admission: Literal["row_order", "by_probability"]
    second_offset: Literal["all_first_choices", "own_count"]
    combine: Literal["renormalised_survivors", "raw_survivors"]
    router_input: Literal["hidden", "hidden_and_modality"]
    stages: tuple[Stage, Stage, Stage]
    converted_layers: int
    projector_parameters: int
    setup_calls: tuple[Literal["initialize_moe_modules", "initialize_vision_modules"], ...]
    contingency: tuple[tuple[tuple[int, int], tuple[int, int]], tuple[tuple[int, int], tuple[int, int]]]


class Routes(NamedTuple):
    """All rows: logits, probabilities, first and second choice, and which of the two were admitted."""

    z: Matrix
    p: Matrix
    first: tuple[int, ...]
    second: tuple[int, ...]
    admitted: tuple[tuple[bool, bool], ...]


def modality(kind: str) -> str:
    """image, text or pad: metadata, never an input of the gate."""
    return "text" if kind.startswith("text") else kind


def flat_kinds(fixture: MultimodalFixture) -> tuple[str, ...]:
    """Row kinds in batch-then-row order."""
    return tuple(kind for row in fixture.kinds for kind in row)


def routed_rows(fixture: MultimodalFixture) -> tuple[int, ...]:
    """The population of the gate: the pinned path hands over the whole rectangle."""
    kinds = flat_kinds(fixture)
    return tuple(t for t in range(ROWS) if fixture.population == "materialised_rows" or kinds[t] != "pad")


def capacity(fixture: MultimodalFixture, rows: int, factor: float) -> int:
    """C = max(C_min, ceil(T / E * 2 c_f))."""
    return max(fixture.min_capacity, math.ceil(rows / EXPERTS * 2.0 * factor))


def logits(fixture: MultimodalFixture, W_g: Matrix, kinds: tuple[str, ...]) -> Matrix:
    """z = W_g h; adding the modality label is the trap."""
    bonus = 1.0 if fixture.router_input == "hidden_and_modality" else 0.0
    plain = (apply(W_g, fixture.hidden[t]) for t in routed_rows(fixture))
    labels = (modality(kinds[t]) == "image" for t in routed_rows(fixture))
    return tuple((z[0] + bonus * image, *z[1:]) for z, image in zip(plain, labels, strict=True))


def largest(scores: Vector, allowed: tuple[int, ...]) -> int:
    """The allowed expert of the largest score, the lower id on ties."""
    return min(allowed, key=lambda e: (-scores[e], e))


def choose(fixture: MultimodalFixture, z: Matrix) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First: argmax of z. Second: argmax of z + noise without the first."""
    everyone = tuple(range(EXPERTS))
    first = tuple(largest(row, everyone) for row in z)
    scores = noisy(fixture, z) if fixture.second_choice == "gumbel" else z
    rest = (tuple(e for e in everyone if e != one) for one in first)
    return first, tuple(largest(row, others) for row, others in zip(scores, rest, strict=True))


def noisy(fixture: MultimodalFixture, z: Matrix) -> Matrix:
    """z + stored Gumbel noise for the routed rows."""
    return add(z, tuple(fixture.noise[t] for t in routed_rows(fixture)))


def admit(
    fixture: MultimodalFixture, p: Matrix, first: tuple[int, ...], second: tuple[int, ...], C: int
) -> tuple[tuple[bool, bool], ...]:
    """Cumulative locations: first choices from 0, second choices after all first choices of that expert."""
    order = list(range(len(first)))
    if fixture.admission == "by_probability":
        order.sort(key=lambda t: -p[t][first[t]])
    shared = fixture.second_offset == "all_first_choices"
    used_first = [0] * EXPERTS
    used_second = [first.count(e) if shared else 0 for e in range(EXPERTS)]
    admitted = [(False, False)] * len(first)
    for t in order:
        admitted[t] = (used_first[first[t]] < C, used_second[second[t]] < C)
        used_first[first[t]] += 1
        used_second[second[t]] += 1
    return tuple(admitted)


def route(fixture: MultimodalFixture, W_g: Matrix, factor: float, kinds: tuple[str, ...]) -> Routes:
    """Gate, two choices and admission at one capacity factor."""
    z = logits(fixture, W_g, kinds)
    p = tuple(softmax(row) for row in z)
    first, second = choose(fixture, z)
    return Routes(z, p, first, second, admit(fixture, p, first, second, capacity(fixture, len(z), factor)))


def gates(fixture: MultimodalFixture, routes: Routes, t: int) -> Vector:
    """Surviving probabilities, renormalised over the survivors."""
    survivors = tuple(
        routes.p[t][e] * kept for e, kept in zip((routes.first[t], routes.second[t]), routes.admitted[t], strict=True)
    )
    if fixture.combine == "raw_survivors":
        return survivors
    return scaled(1.0 / (math.fsum(survivors) + EPSILON), survivors)


def dense_ffn(fixture: MultimodalFixture) -> Matrix:
    """F(h) of the Stage-II checkpoint for every routed row."""
    rows = (fixture.hidden[t] for t in routed_rows(fixture))
    return tuple(row_times(tuple(max(x, 0.0) for x in row_times(h, fixture.W_1)), fixture.W_2) for h in rows)


def moe(fixture: MultimodalFixture, routes: Routes, drift: Vector) -> Matrix:
    """sum_j g_j F_e(h) with expert e at (1 + drift_e) F; drift 0 is the exact clone."""
    return tuple(
        weighted_sum(
            gates(fixture, routes, t),
            tuple(scaled(1.0 + drift[e], F) for e in (routes.first[t], routes.second[t])),
        )
        for t, F in enumerate(dense_ffn(fixture))
    )


def gate_gradient(fixture: MultimodalFixture, routes: Routes, upstream: Matrix) -> Matrix:
    """Gradient of <upstream, MoE(h)> in W_g through the renormalised survivors, choices and admission held."""
    grad = zeros(EXPERTS, D)
    for t, F in enumerate(dense_ffn(fixture)):
        chosen = (routes.first[t], routes.second[t])
        mass = math.fsum(routes.p[t][e] * kept for e, kept in zip(chosen, routes.admitted[t], strict=True)) + EPSILON
        credit = tuple((1.0 + fixture.drift[e]) * dot(upstream[t], F) for e in chosen)
        mean = dot(gates(fixture, routes, t), credit)
        into_p = {e: kept * (c - mean) / mass for e, c, kept in zip(chosen, credit, routes.admitted[t], strict=True)}
        z_bar = softmax_backward(routes.p[t], tuple(into_p.get(e, 0.0) for e in range(EXPERTS)))
        grad = add(grad, outer(z_bar, fixture.hidden[t]))
    return grad


def auxiliary_loss(routes: Routes) -> float:
    """E sum_e f_e p_e: pre-capacity first choices and mean full-softmax probabilities of all routed rows."""
    T = len(routes.p)
    means = (math.fsum(row[e] for row in routes.p) / T for e in range(EXPERTS))
    return EXPERTS * math.fsum(routes.first.count(e) / T * mean for e, mean in enumerate(means))


def contingency(routes: Routes, kinds: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Requested edges by modality (image, text, pad) and expert."""
    edges = [
        (modality(kinds[t]), e) for t, pair in enumerate(zip(routes.first, routes.second, strict=True)) for e in pair
    ]
    return tuple(tuple(edges.count((m, e)) for e in range(EXPERTS)) for m in ("image", "text", "pad"))
