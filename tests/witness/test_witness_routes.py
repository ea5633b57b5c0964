"""Broken operations the engine has no operator for: each fails the check of the oracle that owns it.

A check is held again with the value another function gives; its name, expectation and tolerance stay the oracle's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import pytest

import oracles.routed.routed_operator as routed
import oracles.routed.routing_granularity as granularity
import oracles.variants.dora as dora
from oracles.checks import Check, Value, below, close, equal
from oracles.matrix import Matrix, Vector, add, matmul, row_norms, scale_rows, softmax, transpose
from oracles.registry import load
from oracles.routed.mixture import expert_output, mix, top_k
from oracles.runner import run

DORA: Final = dora.DoraFixture.model_validate_json(load("dora").fixture_bytes())
ROUTED: Final = routed.OperatorFixture.model_validate_json(load("routed_operator").fixture_bytes())
XLORA: Final = granularity.GranularityFixture.model_validate_json(load("routing_granularity").fixture_bytes()).xlora


@cache
def checks(oracle: str) -> dict[str, Check]:
    """The checks of an oracle by name."""
    return {check.name: check for check in run(oracle).checks}


def passes(oracle: str, name: str, value: Value) -> bool:
    """Whether the oracle's own check accepts another value."""
    check = checks(oracle)[name]
    if check.kind == "close":
        return close(
            name, value, check.expected, source=check.source, digits=check.digits or 0, tolerance=check.tolerance
        ).passed
    if check.kind == "equal":
        return equal(name, value, check.expected, source=check.source).passed
    assert isinstance(value, float)
    assert isinstance(check.expected, float)
    return below(name, value, check.expected, source=check.source).passed


Gates = Callable[[Matrix, tuple[tuple[int, ...], ...]], Matrix]


def selected(Z: Matrix, supports: tuple[tuple[int, ...], ...]) -> Matrix:
    """Softmax over the selected logits of each row."""
    return tuple(routed.gates(ROUTED, z, support) for z, support in zip(Z, supports, strict=True))


def flattened(Z: Matrix, supports: tuple[tuple[int, ...], ...]) -> Matrix:
    """One softmax over the selected logits of all rows together."""
    places = [(t, j) for t, support in enumerate(supports) for j in support]
    shares = dict(zip(places, softmax(tuple(Z[t][j] for t, j in places)), strict=True))
    return tuple(tuple(shares.get((t, j), 0.0) for j in range(len(z))) for t, z in enumerate(Z))


def zeroed_losers(Z: Matrix, supports: tuple[tuple[int, ...], ...]) -> Matrix:
    """Softmax over all, the losers zeroed and the winners not normalised again."""
    return tuple(
        tuple(g if j in support else 0.0 for j, g in enumerate(softmax(z)))
        for z, support in zip(Z, supports, strict=True)
    )


def unnormalised(Z: Matrix, supports: tuple[tuple[int, ...], ...]) -> Matrix:
    """Exponentials that nobody divides."""
    return tuple(
        tuple(math.exp(x) if j in support else 0.0 for j, x in enumerate(z))
        for z, support in zip(Z, supports, strict=True)
    )


def losses(gates: Gates) -> Vector:
    """The losses of all policies, the two top-2 ones with other gates."""
    point = routed.start(ROUTED)
    found = []
    for policy in routed.POLICIES:
        ran = routed.forward(ROUTED, policy, point)
        G = gates(ran.Z, ran.support) if policy.startswith("selected_top2") else ran.G
        outputs = tuple(expert_output(ROUTED.X, expert) for expert in routed.members(ROUTED, point))
        found.append(routed.loss(ROUTED, add(matmul(ROUTED.X, transpose(ROUTED.W)), mix(G, outputs))))
    return tuple(found)


def excess(gates: Gates) -> float:
    """How far the gates of a top-2 row are from summing to one."""
    ran = routed.forward(ROUTED, "selected_top2", routed.start(ROUTED))
    return max(abs(math.fsum(row) - 1.0) for row in gates(ran.Z, ran.support))


def test_selected_gates_pass_where_they_are_the_oracle_s_own() -> None:
    assert passes("routed_operator", "losses", losses(selected))
    assert passes("routed_operator", "gates of a row sum to one", excess(selected))


@pytest.mark.parametrize("gates", [flattened, zeroed_losers, unnormalised])
def test_gates_that_do_not_sum_to_one_in_a_row_fail(gates: Gates) -> None:
    assert not passes("routed_operator", "gates of a row sum to one", excess(gates))
    assert not passes("routed_operator", "losses", losses(gates))


def test_a_softmax_over_the_flattened_selection_fails_where_the_rows_are_printed() -> None:
    def by_row() -> Matrix:
        kept = [top_k(row, XLORA.k) for row in XLORA.dense]
        return tuple(
            tuple(g / math.fsum(row[q] for q in support) if j in support else 0.0 for j, g in enumerate(row))
            for row, support in zip(XLORA.dense, kept, strict=True)
        )

    wrong = flattened(XLORA.dense, tuple(top_k(row, XLORA.k) for row in XLORA.dense))
    for name, pick in (("selected weights", tuple), ("row sums", lambda rows: tuple(map(math.fsum, rows)))):
        assert passes("routing_granularity", name, pick(by_row()))
        assert not passes("routing_granularity", name, pick(wrong))
    # What the wrong one gives is printed too, so it is this very mistake.
    assert passes("routing_granularity", "flattened softmax", wrong)


def later_first(z: Vector, k: int) -> tuple[int, ...]:
    """Top-k that lets the later of two equal logits win."""
    return tuple(sorted(range(len(z)), key=lambda j: (-z[j], -j))[:k])


def test_equal_logits_resolved_by_the_higher_index_fail() -> None:
    name = "ties: logit descending, then candidate order"
    assert passes("routed_operator", name, top_k(ROUTED.tied_logits, 2))
    assert not passes("routed_operator", name, later_first(ROUTED.tied_logits, 2))


def test_a_norm_over_the_transposed_axis_fails_in_every_step_that_reads_it() -> None:
    U = dora.direction(DORA, DORA.B)

    def steps(c: Vector) -> dict[str, Value]:
        f = tuple(m / norm for m, norm in zip(DORA.m, c, strict=True))
        return {"row norms c": c, "factors f": f, "W_DoRA": scale_rows(f, U)}

    for name, value in steps(row_norms(U)).items():
        assert passes("dora", name, value)
    for name, value in steps(row_norms(transpose(U))).items():
        assert not passes("dora", name, value)


def test_one_scale_outside_the_norm_fails_as_well() -> None:
    # U is normalised with its scale inside: W0 + s B A, not W0 + B A.
    unscaled = row_norms(add(DORA.W0, matmul(DORA.B, DORA.A)))
    assert passes("dora", "row norms c", row_norms(dora.direction(DORA, DORA.B)))
    assert not passes("dora", "row norms c", unscaled)
