"""Figures that float64 cannot settle, in rational numbers: every float is one. And rounding to another format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from oracles.matrix import Matrix

Rational = list[list[Fraction]]


def rational(values: Matrix) -> Rational:
    """The same numbers, exactly."""
    return [[Fraction(x) for x in row] for row in values]


def exact_product(B: Matrix, A: Matrix) -> Rational:
    """B A in rational numbers."""
    columns = list(zip(*rational(A), strict=True))
    return [
        [sum((x * y for x, y in zip(row, column, strict=True)), Fraction()) for column in columns]
        for row in rational(B)
    ]


def exact_sum(blocks: Sequence[tuple[float, Matrix, Matrix]]) -> Rational:
    """sum_i c_i B_i A_i of blocks (c, B, A) in rational numbers."""
    products = [(Fraction(c), exact_product(B, A)) for c, B, A in blocks]
    rows, columns = range(len(blocks[0][1])), range(len(blocks[0][2][0]))
    return [[sum((c * p[i][j] for c, p in products), Fraction()) for j in columns] for i in rows]


def exact_rank(values: Rational) -> int:
    """Rank by elimination without rounding."""
    work, found = [list(row) for row in values], 0
    for column in range(len(work[0])):
        pivot = next((row for row in work[found:] if row[column]), None)
        if pivot is None:
            continue
        work.remove(pivot)
        work.insert(found, pivot)
        found += 1
        for row in work[found:]:
            factor = row[column] / pivot[column]
            row[:] = [x - factor * y for x, y in zip(row, pivot, strict=True)]
    return found


def exact_distance(left: Rational, right: Rational) -> float:
    """|L - R|_F without cancellation."""
    pairs = zip(left, right, strict=True)
    squares = sum(((x - y) ** 2 for one, other in pairs for x, y in zip(one, other, strict=True)), Fraction())
    return math.sqrt(squares)


FORMATS: Final = {"float64": (53, -1074), "float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}
"""Bits of the significand, and the exponent of the smallest positive number (IEEE 754; bfloat16 as a short float32)."""


def rounded(x: float, name: str) -> float:
    """The nearest number of a format, ties to even; x within its range."""
    bits, smallest = FORMATS[name]
    exponent = max(math.frexp(x)[1] - bits, smallest)
    return math.ldexp(round(math.ldexp(x, -exponent)), exponent)
