"""The engine's parts against plain Python: selection, masks, small norms, and the truncated SVD with its bound."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
import torch
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.fields import DeltaField, Dropped, Trimmed
from compose.krylov import TOLERANCE as EXCESS
from compose.krylov import truncated_svd
from compose.lowrank import difference_norm, factor_error, product_norm
from compose.masks import MaskRole, draw_mask
from compose.merge import merge
from compose.select import kept_count, kth_magnitude
from oracles.matrix import Matrix, Vector, distance, frobenius, identity, matmul, matrix, scale, subtract
from schemas.methods import Choices, DareChoices, ties_preset
from tests.witness.cases import Numbers, adapter, draw_matrix
from tests.witness.exact import exact_distance, exact_product, rounded
from tests.witness.harness import TOLERANCE, module_of
from tests.witness.reference import Case, Plain, gram, keep_mask, mask_digest, nonzero, prepare, trim
from tests.witness.reference import kept_count as plain_count
from tests.witness.reference import merge as plain_merge

FEW = settings(max_examples=40, deadline=None, derandomize=True)
FINITE: Final = st.floats(-1e300, 1e300, allow_nan=False, allow_infinity=False, allow_subnormal=True)
VALUES: Final = st.one_of(FINITE, st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 5e-324, -5e-324]))


@FEW
@given(st.lists(VALUES, min_size=1, max_size=40), st.data())
def test_the_radix_select_is_a_sort_in_any_tiling(values: list[float], data: st.DataObject) -> None:
    k, width = data.draw(st.integers(0, len(values))), data.draw(st.integers(1, len(values)))
    density = k / len(values)
    tensor = torch.tensor([values], dtype=torch.float64)

    def tiles() -> Iterator[torch.Tensor]:
        return (tensor[:, at : at + width] for at in range(0, len(values), width))

    threshold = kth_magnitude(tiles, k)
    trimmed = [threshold.trim(tile, width * index) for index, tile in enumerate(tiles())]
    found = torch.cat(trimmed, dim=1).tolist()[0]
    ((*wanted,),) = trim((tuple(values),), density + 1e-9, "floor")
    assert found == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_a_million_equal_magnitudes_the_first_k_are_kept(dtype: torch.dtype) -> None:
    count, k = (1 << 20) + 9, 777_777
    tensor = torch.ones(1, count, dtype=dtype)
    tensor[0, ::3] = -1.0
    threshold = kth_magnitude(lambda: iter([tensor]), k)
    assert (threshold.magnitude, threshold.last) == (1.0, k - 1)


@FEW
@given(st.floats(0.001, 1.0), st.integers(1, 10**6), st.sampled_from(["floor", "round"]))
def test_k_follows_its_rule(density: float, count: int, rule: str) -> None:
    assert kept_count(density, count, "floor" if rule == "floor" else "round") == plain_count(density, count, rule)


@FEW
@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from(["delta", "a", "b"]),
    st.sampled_from([1e-6, 0.1, 0.5, 0.9, 1.0]),
    st.integers(1, 300),
)
def test_a_mask_is_the_stream_read_by_hand(seed: int, role: MaskRole, density: float, count: int) -> None:
    mask = draw_mask(str(seed), adapter("x"), "model.layers.0.q_proj", role, density, count)
    bits = keep_mask(str(seed), adapter("x"), "model.layers.0.q_proj", role, density, count)
    assert tuple(mask.between(0, count).tolist()) == bits
    assert (mask.ref(adapter("x"), role).mask, mask.retained) == (mask_digest(bits), sum(bits))
    start = count // 16 * 8
    assert tuple(mask.between(start, count).tolist()) == bits[start:]


def test_the_stream_is_the_keyed_derivation_of_blake3_and_not_its_plain_hash() -> None:
    key = f'["7","{adapter("x")}","m","delta"]'.encode()
    first = blake3(key, derive_key_context="adapter-registry v1 mask").digest(length=4)
    kept = struct.unpack("<I", first)[0] < 2**31
    assert bool(draw_mask("7", adapter("x"), "m", "delta", 0.5, 1).between(0, 1).item()) is kept


def test_a_delta_of_several_tiles_is_dropped_trimmed_and_merged_as_one() -> None:
    source, numbers = Random(17), Numbers("dyadic")
    members = tuple(
        Plain(adapter(str(i)), w, 2.0, draw_matrix(source, numbers, 9, 1), draw_matrix(source, numbers, 1, 4100))
        for i, w in enumerate((1.0, -0.25))
    )
    # Products of quarters: thousands of magnitudes equal the threshold, in both tiles.
    elect, dare = ties_preset("peft", 0.5), DareChoices(density=0.75, seed="5")
    case = Case("dare_ties", "delta", members, Choices(ties=elect, dare=dare))
    ready = prepare(case, tuple(m.delta for m in members), "delta")
    wanted = plain_merge(case, ready.values, (1.0, -0.25))
    fields = []
    for factor in module_of(case).factors:
        mask = draw_mask(dare.seed, factor.adapter, "m", "delta", dare.density, 9 * 4100)
        fields.append(Trimmed(Dropped(DeltaField(factor, torch.float64), mask, dare.density), elect))
    found = merge(fields, [1.0, -0.25], elect)
    assert fields[0].tiling.count == 2
    assert distance(matrix(found.values.tolist()), wanted.values) <= TOLERANCE
    assert (found.conflict, found.retained) == (wanted[1:], [nonzero(x) for x in ready.values])


def tensor(values: Matrix) -> torch.Tensor:
    """A plain matrix as the engine takes it."""
    return torch.tensor(values, dtype=torch.float64)


@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from(["dyadic", "normal"]))
def test_small_norms_equal_dense_ones(seed: int, entries: str) -> None:
    source, numbers = Random(seed), Numbers(entries)
    d_out, d_in, r, other = (source.randint(1, 6) for _ in range(4))
    b, a = draw_matrix(source, numbers, d_out, r), draw_matrix(source, numbers, r, d_in)
    b2, a2 = draw_matrix(source, numbers, d_out, other), draw_matrix(source, numbers, other, d_in)
    size = frobenius(b) * frobenius(a) + frobenius(b2) * frobenius(a2)
    assert abs(product_norm(tensor(b), tensor(a)) - frobenius(matmul(b, a))) <= TOLERANCE * size
    apart = frobenius(subtract(matmul(b, a), matmul(b2, a2)))
    assert abs(difference_norm(tensor(b), tensor(a), tensor(b2), tensor(a2)) - apart) <= TOLERANCE * size


@FEW
@given(st.integers(0, 2**32 - 1))
def test_a_rounding_error_keeps_its_digits_where_a_difference_would_lose_them(seed: int) -> None:
    source, numbers = Random(seed), Numbers("normal")
    b, a = draw_matrix(source, numbers, 5, 3), draw_matrix(source, numbers, 3, 4)
    near_b, near_a = (tuple(tuple(rounded(x, "float32") for x in row) for row in side) for side in (b, a))
    exact = exact_distance(exact_product(b, a), exact_product(near_b, near_a))
    assert factor_error(tensor(b), tensor(a), tensor(near_b), tensor(near_a)) == pytest.approx(exact, rel=TOLERANCE)
    assert factor_error(tensor(b), tensor(a), tensor(near_b), tensor(a)) == pytest.approx(
        exact_distance(exact_product(b, a), exact_product(near_b, a)), rel=TOLERANCE
    )


ROWS, COLUMNS, KEEP = 300, 280, 5
SPECTRA: Final[dict[str, Vector]] = {
    "decaying": tuple(1.1**-k for k in range(COLUMNS)),
    "flat tail": (9.0, 8.0, 7.0, 6.0, 5.0, *(1.0,) * (COLUMNS - KEEP)),
    "equal at the cut": (4.0, 3.0, *(2.0,) * 6, *(0.5,) * (COLUMNS - 8)),
    "low rank": (4.0, 3.0, 2.0, 1.0, 0.5, 0.25, *(0.0,) * (COLUMNS - 6)),
    "no gap": tuple(1.0 - k / (2 * COLUMNS) for k in range(COLUMNS)),
}


def with_spectrum(sigma: Vector) -> Matrix:
    """``(I - 2 u u^T) diag(sigma) (I - 2 v v^T)`` [rows, columns] for unit u and v: the SVD is known."""
    u, v = unit(ROWS, 3), unit(COLUMNS, 4)
    left = [-2.0 * u[j] * sigma[j] for j in range(COLUMNS)]
    right = [-2.0 * s * x for s, x in zip(sigma, v, strict=True)]
    middle = 4.0 * math.fsum(x * s * y for x, s, y in zip(u[:COLUMNS], sigma, v, strict=True))
    rows = []
    for i in range(ROWS):
        row = [u[i] * (x + middle * y) for x, y in zip(left, v, strict=True)]
        if i < COLUMNS:
            row = [x + right[i] * y for x, y in zip(row, v, strict=True)]
            row[i] += sigma[i]
        rows.append(row)
    return matrix(rows)


def unit(length: int, seed: int) -> Vector:
    """A vector of norm 1."""
    source = Random(seed)
    entries = [source.gauss(0.0, 1.0) for _ in range(length)]
    size = math.sqrt(math.fsum(x * x for x in entries))
    return tuple(x / size for x in entries)


@pytest.mark.parametrize("name", list(SPECTRA))
def test_a_truncated_svd_stays_within_its_bound_of_the_known_best(name: str) -> None:
    sigma = SPECTRA[name]
    dense = with_spectrum(sigma)
    found = truncated_svd(tensor(dense), KEEP)
    u, v, values = matrix(found.u.T.tolist()), matrix(found.vh.tolist()), tuple(found.s.tolist())
    for rows in (u, v):
        assert distance(gram(rows), identity(KEEP)) <= TOLERANCE
    scaled = tuple(scale(s, (row,))[0] for s, row in zip(values, v, strict=True))
    discarded = missed_energy(dense, u, scaled)
    best = math.fsum(s * s for s in sigma[KEEP:])
    energy = math.fsum(s * s for s in sigma)
    assert discarded >= best - TOLERANCE * energy
    assert discarded <= best + found.certificate.excess + TOLERANCE * energy
    assert found.certificate.excess <= EXCESS * best + TOLERANCE * energy
    assert energy - math.fsum(s * s for s in values) == pytest.approx(discarded, abs=TOLERANCE * energy)
    assert all(s <= true + TOLERANCE for s, true in zip(values, sigma, strict=False))


def missed_energy(dense: Matrix, u: Matrix, scaled: Matrix) -> float:
    """``|M - U diag(s) V^T|_F^2`` entry by entry; `u` and `scaled` hold one triplet a row."""
    total = []
    for i, row in enumerate(dense):
        weights = [column[i] for column in u]
        kept = [math.fsum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*scaled, strict=True)]
        total.append(math.fsum((x - y) ** 2 for x, y in zip(row, kept, strict=True)))
    return math.fsum(total)


def test_the_reference_runs_without_torch_and_numpy() -> None:
    code = (
        "import sys, tests.witness.reference\n"
        "print([name for name in ('torch', 'numpy', 'compose', 'validators') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
