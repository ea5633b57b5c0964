"""LoftQ's traps: base and factors fit by shape, and not by identity (V 0x07O)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.loftq import alternate, quantize

LEVELS = (-1.0, -1.0 / 3.0, 1.0 / 3.0, 1.0)
ENTRIES = st.integers(-40, 40).map(lambda k: k / 10.0)
ROWS = st.lists(st.tuples(ENTRIES, ENTRIES, ENTRIES), min_size=3, max_size=3).filter(
    lambda rows: any(x for row in rows for x in row)
)


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("order", "svd_first", "quantize first"),
        ("split", "unscaled", "scale-aware factors at s = 1/2"),
        ("factors_on", "fresh_base", "T = 4 factors on their base"),
        ("T", 5, "iterations and rank"),
    ],
)
def test_a_mismatched_state_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("loftq")
    document = {**json.loads(oracle.fixture_bytes()), field: value}
    assert rejection(oracle, document) == check


@pytest.mark.parametrize(
    ("side", "field", "value"),
    [
        ("base", "quantizer", "another"),
        ("base", "source_tensors", ["other.weight"]),
        ("adapter", "rank", 2),
        ("adapter", "scale", 0.5),
        ("adapter", "target_modules", ["other"]),
    ],
)
def test_a_pair_that_differs_from_its_manifest_is_not_admitted(side: str, field: str, value: object) -> None:
    oracle = load("loftq")
    document = json.loads(oracle.fixture_bytes())
    document["admission"][side][field] = value
    assert rejection(oracle, document) == "a matching pair"


@given(ROWS)
def test_the_low_rank_block_never_raises_the_error_of_its_own_base(rows: list[tuple[float, float, float]]) -> None:
    first = alternate(tuple(rows), LEVELS, 1, 1)[0]
    assert first.error <= first.quantized_error + 1e-12


def test_a_representable_matrix_leaves_no_error_to_fit() -> None:
    base = quantize(((3.0, -1.0), (1.0, -3.0)), LEVELS)
    assert (base.codes, base.absmax) == (((3, 1), (2, 0)), 3.0)


def test_an_all_zero_matrix_has_no_scale() -> None:
    with pytest.raises(FixtureRefusedError, match="all-zero"):
        quantize(((0.0, 0.0),), LEVELS)


def test_the_digest_of_a_base_covers_codes_scale_and_codebook() -> None:
    base = quantize(((3.0, -1.0), (1.0, -3.0)), LEVELS)
    others = (
        quantize(((6.0, -2.0), (2.0, -6.0)), LEVELS),
        quantize(((3.0, 1.0), (1.0, -3.0)), LEVELS),
        base._replace(codebook=(-1.0, -0.25, 0.25, 1.0)),
    )
    assert base.digest() not in {other.digest() for other in others}
