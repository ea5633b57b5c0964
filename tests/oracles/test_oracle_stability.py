"""Another machine's mathematics library may round the last bit the other way: the semantic digests must not notice."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from oracles.registry import names
from oracles.replay import read_lock
from oracles.runner import run

NOT_CORRECTLY_ROUNDED = ("exp", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos", "erf", "hypot", "atan2")


def off_by_one(function: Callable[..., float], seed: int) -> Callable[..., float]:
    """The function with its last bit moved up or down, always the same way for the same arguments."""

    def moved(*arguments: float) -> float:
        value = function(*arguments)
        if value == 0.0:
            return value  # zeros such as log(1) are exact in every library
        return math.nextafter(value, math.inf if hash((arguments, seed)) % 2 else -math.inf)

    return moved


@pytest.mark.parametrize("seed", [0, 1])
def test_semantic_digests_do_not_depend_on_the_last_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOT_CORRECTLY_ROUNDED:
        monkeypatch.setattr(math, name, off_by_one(getattr(math, name), seed))
    lock = read_lock()
    drifted = [name for name in names() if run(name).semantic() != lock[name].semantic]
    assert drifted == []
