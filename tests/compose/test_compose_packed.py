"""Packed factors are those that were given, and keep little."""

from __future__ import annotations

from dataclasses import replace
from math import copysign
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose import FactorSource, Forms, PackedFactors, TensorSource
from compose.tensors import FLOATS

SIDES = st.integers(1, 2**40)


@st.composite
def tensors(draw: st.DrawFn) -> TensorSource:
    path = Path(draw(st.sampled_from("abc")))
    shape = draw(st.tuples(SIDES, SIDES))
    return TensorSource(path, draw(st.integers(0, 2**63)), draw(SIDES), draw(st.sampled_from(sorted(FLOATS))), shape)


FACTORS = st.builds(
    FactorSource,
    module=st.sampled_from(["q", "k"]),
    rank=SIDES,
    scale=st.floats(allow_nan=False),
    a=tensors(),
    b=tensors(),
    kernel=st.sampled_from([(), (3, 3)]),
    experts=st.none() | SIDES,
)


@given(st.lists(st.lists(FACTORS, max_size=4), max_size=3))
def test_packed_factors_are_those_that_were_given(members: list[list[FactorSource]]) -> None:
    forms: Forms = {}
    for given_factors, packed in [(factors, PackedFactors(factors, forms)) for factors in members]:
        assert list(packed) == given_factors
        assert len(packed) == len(given_factors)
        assert [packed[index] for index in range(len(packed))] == given_factors
        assert packed[1:] == given_factors[1:]
        with pytest.raises(IndexError):
            packed[len(packed)]


def test_members_of_one_form_say_it_once() -> None:
    forms: Forms = {}
    a, b = (TensorSource(Path("first"), offset, 64, "F32", (4, 4)) for offset in (128, 192))
    first = FactorSource("q", 4, 0.5, a, b)
    second = replace(first, a=replace(a, path=Path("second")), b=replace(b, path=Path("second"), offset=2**40))
    packed = [PackedFactors([factor], forms) for factor in (first, second)]
    assert len(forms) == 1
    assert [*packed[0], *packed[1]] == [first, second]


def test_scales_keep_the_sign_of_zero() -> None:
    tensor = TensorSource(Path("file"), 0, 64, "F32", (4, 4))
    factors = [FactorSource("q", 4, scale, tensor, tensor) for scale in (0.0, -0.0)]
    assert [copysign(1.0, factor.scale) for factor in PackedFactors(factors, {})] == [1.0, -1.0]
