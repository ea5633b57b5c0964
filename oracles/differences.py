"""Central finite differences over named matrices: the witness every analytic gradient is held against."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix, shape

Point: TypeAlias = Mapping[str, Matrix]
Loss: TypeAlias = Callable[[Point], float]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far an analytic gradient is from central differences: coordinates seen, worst error and where."""

    coordinates: int
    worst: float
    where: str


def moved(point: Point, name: str, row: int, column: int, step: float) -> Point:
    """The point with one coordinate of one matrix moved by `step`."""
    rows = [list(entries) for entries in point[name]]
    rows[row][column] += step
    return {**point, name: tuple(tuple(entries) for entries in rows)}


def coordinates(point: Point) -> Iterator[tuple[str, int, int]]:
    """Every (name, row, column) of the point."""
    for name, value in point.items():
        rows, columns = shape(value)
        yield from ((name, i, j) for i in range(rows) for j in range(columns))


def central(loss: Loss, point: Point, *, step: float = 1e-5) -> dict[str, Matrix]:
    """(L(x + h e_k) - L(x - h e_k)) / 2h for every coordinate k, in the shapes of the point."""
    found: dict[tuple[str, int], list[float]] = {}
    for name, i, j in coordinates(point):
        rise = loss(moved(point, name, i, j, step)) - loss(moved(point, name, i, j, -step))
        found.setdefault((name, i), []).append(rise / (2.0 * step))
    return {name: tuple(tuple(found[name, i]) for i in range(len(value))) for name, value in point.items()}


def compare(loss: Loss, point: Point, gradient: Point, *, step: float = 1e-5) -> Difference:
    """Hold `gradient` (same names and shapes as `point`) against central differences of `loss`."""
    expected = {name: shape(value) for name, value in point.items()}
    if {name: shape(value) for name, value in gradient.items()} != expected:
        raise FixtureRefusedError("gradient", sorted(gradient), f"the names and shapes {expected}")
    numeric = central(loss, point, step=step)
    errors = {f"{name}[{i}][{j}]": abs(gradient[name][i][j] - numeric[name][i][j]) for name, i, j in coordinates(point)}
    where = max(errors, key=lambda key: errors[key])
    return Difference(coordinates=len(errors), worst=errors[where], where=where)
