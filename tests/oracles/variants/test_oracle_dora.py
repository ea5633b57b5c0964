"""DoRA's traps: each wrong operator keeps the shapes and fails a named check (V 0x08O)."""

import json

import pytest

from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.dora import effective_weight, merge

DIRECTIONS: Matrix = ((3.0, 4.0), (0.0, 2.0))


def test_a_scaled_direction_gives_the_same_weight() -> None:
    doubled = tuple(tuple(2.0 * x for x in row) for row in DIRECTIONS)
    assert (
        effective_weight(doubled, (10.0, -1.0))
        == effective_weight(DIRECTIONS, (10.0, -1.0))
        == ((6.0, 8.0), (0.0, -1.0))
    )


def test_a_zero_magnitude_is_refused_before_merging() -> None:
    with pytest.raises(FixtureRefusedError, match="zero magnitude"):
        merge(DIRECTIONS, ((0.0, 0.0), (0.0, 0.0)), (1.0, 0.0))


def test_a_zero_direction_is_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="zero norm"):
        effective_weight(((0.0, 0.0), (0.0, 2.0)), (1.0, 1.0))


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [("s", 1.0, "U"), ("norm_axis", "input_column", "row norms c"), ("m", [5.5, 2.7, 3.2], "factors f")],
)
def test_a_substitution_that_keeps_the_shapes_fails_the_check_of_its_step(
    field: str, value: object, check: str
) -> None:
    oracle = load("dora")
    document = {**json.loads(oracle.fixture_bytes()), field: value}
    assert rejection(oracle, document) == check
