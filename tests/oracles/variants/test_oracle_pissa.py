"""PiSSA's traps: the shapes agree, the base does not (V 0x06L)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix, distance, matmul, scale
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.lora import effective, rounded, spectral_factors
from oracles.variants.pissa import Split, portable_factors, split

ENTRIES = st.integers(-8, 8).map(float)
SQUARES = st.lists(st.tuples(ENTRIES, ENTRIES, ENTRIES), min_size=3, max_size=3)


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("roots", "unscaled", "B0"),
        ("native_base", "original", "native base"),
        ("portable", "trained_only", "portable on W"),
        ("r", 2, "B0"),
    ],
)
def test_a_wrong_pairing_of_the_same_shapes_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("pissa")
    document = {**json.loads(oracle.fixture_bytes()), field: value}
    assert rejection(oracle, document) == check


def test_a_start_in_the_null_space_is_refused_by_contract() -> None:
    oracle = load("pissa")
    document = {**json.loads(oracle.fixture_bytes()), "fast_start": [0.0, 0.0, 0.0]}
    assert rejection(oracle, document) == "contract"


@given(SQUARES, st.sampled_from([0.5, 1.0, 4.0]))
def test_the_initial_function_is_kept_at_every_scale(rows: list[tuple[float, float, float]], s: float) -> None:
    W: Matrix = tuple(rows)
    residual, B, A = split(W, 2, s)
    assert distance(effective(residual, A, B, s), W) < 1e-12


@given(SQUARES, SQUARES)
def test_the_portable_pair_is_trained_minus_initial(
    first: list[tuple[float, float, float]], second: list[tuple[float, float, float]]
) -> None:
    start = Split(tuple(first), tuple(first), tuple(second))
    B, A = portable_factors(start, tuple(second), tuple(first))
    expected = effective(scale(-1.0, matmul(start.B, start.A)), tuple(first), tuple(second), 1.0)
    assert distance(matmul(B, A), expected) < 1e-9


def test_a_rank_above_the_matrix_is_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="rank"):
        spectral_factors(((1.0, 0.0), (0.0, 1.0)), 3, 1.0)


def test_halves_round_to_the_even_multiple() -> None:
    assert rounded(((0.25, 0.75, -0.3),), 0.5) == ((0.0, 1.0, -0.5),)
