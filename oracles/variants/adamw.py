"""AdamW on named matrices, one learning rate and decay a name (V 0x0AB)."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from oracles.matrix import Matrix, shape, zeros


class Group(NamedTuple):
    """Learning rate eta and decoupled weight decay lambda of one parameter."""

    eta: float
    decay: float


class Adam(NamedTuple):
    """beta_1, beta_2 and epsilon."""

    beta1: float
    beta2: float
    epsilon: float


class State(NamedTuple):
    """Parameters, first and second moments of the trained ones, and the number of steps taken."""

    parameters: dict[str, Matrix]
    m: dict[str, Matrix]
    v: dict[str, Matrix]
    step: int


def start(parameters: Mapping[str, Matrix], trained: tuple[str, ...]) -> State:
    """Zero moments for the trained parameters and for no other."""
    moments = {name: zeros(*shape(parameters[name])) for name in trained}
    return State(dict(parameters), moments, dict(moments), 0)


def _mean(beta: float, old: Matrix, new: Matrix, power: int) -> Matrix:
    rows = zip(old, new, strict=True)
    return tuple(tuple(beta * x + (1.0 - beta) * g**power for x, g in zip(a, b, strict=True)) for a, b in rows)


def update(state: State, gradients: Mapping[str, Matrix], groups: Mapping[str, Group], adam: Adam) -> State:
    """theta - eta (m_hat / (sqrt v_hat + epsilon) + lambda theta) for every parameter that owns moments."""
    t = state.step + 1
    m = {name: _mean(adam.beta1, old, gradients[name], 1) for name, old in state.m.items()}
    v = {name: _mean(adam.beta2, old, gradients[name], 2) for name, old in state.v.items()}

    def moved(name: str) -> Matrix:
        eta, decay = groups[name]

        def one(theta: float, first: float, second: float) -> float:
            m_hat, v_hat = first / (1.0 - adam.beta1**t), second / (1.0 - adam.beta2**t)
            return theta - eta * (m_hat / (math.sqrt(v_hat) + adam.epsilon) + decay * theta)

        rows = zip(state.parameters[name], m[name], v[name], strict=True)
        return tuple(tuple(map(one, *row)) for row in rows)

    return State({**state.parameters, **{name: moved(name) for name in m}}, m, v, t)
