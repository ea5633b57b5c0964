"""LoRA-FA's traps: freezing A is only half the method (V 0x05M)."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix, distance, identity, matmul, scale, subtract, transpose
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.lora_fa import corrected, gram, ledger, projector, pseudoinverse

ENTRIES = st.integers(-4, 4).map(float)


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("correction", "raw", "s H_B* A at s = 1.0"),
        ("scale_power", "none", "s H_B* A at s = 0.5"),
        ("regularization", 0.01, "regularization 1e-8 moves H_B*"),
        ("named_parameters", ["q.lora_A", "q.lora_B", "v.lora_A", "v.lora_B"], "pairs by order"),
    ],
)
def test_a_half_implemented_correction_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("lora_fa")
    document = {**json.loads(oracle.fixture_bytes()), field: value}
    assert rejection(oracle, document) == check


def test_a_singular_factor_has_no_exact_projector() -> None:
    with pytest.raises(FixtureRefusedError, match="singular"):
        projector(((1.0, 2.0), (2.0, 4.0)))


@given(st.lists(st.tuples(ENTRIES, ENTRIES, ENTRIES), min_size=2, max_size=2))
def test_the_pseudoinverse_projects_onto_the_row_space_of_any_factor(rows: list[tuple[float, float, float]]) -> None:
    A: Matrix = tuple(rows)
    assume(any(x for row in A for x in row))
    P = matmul(matmul(transpose(A), pseudoinverse(gram(A), 1e-10)), A)
    assert distance(matmul(P, P), P) < 1e-9
    assert distance(matmul(A, P), A) < 1e-8


def test_a_dense_gradient_inside_the_row_space_is_recovered_whole() -> None:
    A: Matrix = ((1.0, 0.0, 1.0), (0.0, 2.0, 0.0))
    dense = matmul(((1.0, 2.0), (3.0, -1.0)), A)
    raw = scale(0.5, matmul(dense, transpose(A)))
    H = corrected(raw, pseudoinverse(gram(A)), 0.5)
    assert distance(scale(0.5, matmul(H, A)), dense) < 1e-14
    assert distance(matmul(dense, subtract(identity(3), projector(A))), scale(0.0, dense)) == 0.0


def test_the_saved_activation_of_the_frozen_factor_grows_with_rank() -> None:
    assert [ledger(10, 100, 50, r, 2)[1] for r in (1, 2)] == [(50, 20, 400), (100, 40, 800)]
