"""NF4's traps: each keeps every byte count and shape, and fails a named check (V 0x02G)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.nf4 import LEVELS, ScaleQuantizer, absmax, decode, denested, encode, nested, pack, unpack


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        (("nibbles",), "high_first", "packed bytes"),
        (("flatten",), "column_major", "absmax of the blocks"),
        (("scales", "centred"), False, "scale mean and absmax"),
        (("optimizer", "owns"), ["A", "B", "codes"], "the optimizer owns the factors"),
        (("optimizer", "paged_out"), "removed", "paged snapshot"),
        (("representation", "compute_dtype"), "float16", "four separate fields"),
    ],
)
def test_a_plausible_wrong_representation_fails_its_check(path: tuple[str, ...], value: object, check: str) -> None:
    oracle = load("nf4")
    document: dict[str, Any] = json.loads(oracle.fixture_bytes())
    place = document if len(path) == 1 else document[path[0]]
    place[path[-1]] = value
    assert rejection(oracle, document) == check


def test_another_codebook_of_the_same_length_is_another_datatype() -> None:
    oracle = load("nf4")
    document = json.loads(oracle.fixture_bytes())
    document["codebook"] = [i / 7.0 - 1.0 for i in range(16)]
    assert rejection(oracle, document) == "codebook"


@given(st.lists(st.integers(0, 15), min_size=2, max_size=16).filter(lambda z: len(z) % 2 == 0))
def test_packed_codes_unpack_to_themselves_in_either_order(codes: list[int]) -> None:
    for order in ("low_first", "high_first"):
        assert unpack(pack(tuple(codes), order), order) == tuple(codes)


@given(st.integers(0, 15))
def test_a_level_encodes_to_its_own_code(code: int) -> None:
    assert encode((1.0, LEVELS[code]), LEVELS)[1] == code


def test_a_byte_holds_the_first_code_in_its_low_nibble() -> None:
    assert pack((11, 6), "low_first") == (0x6B,)
    assert decode((0x6B,), 2.0, LEVELS) == (2.0 * 0.3379152, 2.0 * -0.0910500)


def test_centred_scales_use_the_whole_signed_range() -> None:
    mean, a, z = nested((3.0, 1.0), ScaleQuantizer(q_max=127, centred=True))
    assert (mean, a, z) == (2.0, 1.0, (127, -127))
    assert denested(mean, a, z, 127) == (3.0, 1.0)


def test_an_all_zero_block_is_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="all zero"):
        absmax((0.0, 0.0))
