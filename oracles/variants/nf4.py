"""QLoRA: a frozen 4-bit base whose codes decode exactly, under floating factors that learn (V 0x02).

Shapes: W [d_out, d_in] flattened into blocks of `block` weights; codes [d_out * d_in]; scales [blocks]; the adapter
as in `lora`.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    matmul,
    max_abs,
    require_length,
    require_shape,
    scale,
    shape,
    subtract,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.lora import backward, effective, held_against_differences, live, output, require_factors

MANIFEST, TABLE, TRACE = "V 0x02A", "V 0x02B", "V 0x02C"
NESTED, PAGED, STEP = "V 0x02D", "V 0x02E", "V 0x02F"

Tensor = Literal["codes", "scales", "A", "B"]
Positive = Annotated[int, Field(gt=0)]
Codes = tuple[int, ...]


class Representation(Fixture):
    """The four separate fields of V 0x02A: none is inferred from another."""

    load_in_4bit: bool
    quant_type: Literal["nf4", "fp4"]
    double_quant: bool
    compute_dtype: Literal["bfloat16", "float16", "float32"]


class ScaleQuantizer(Fixture):
    """The second quantizer: signed codes in [-q_max, q_max] over centred or raw first-level scales."""

    q_max: Positive
    centred: bool


class Geometry(Fixture):
    """The block sizes and widths of the paper's metadata ledger."""

    block: Positive
    second_block: Positive
    scale_bits: Positive
    code_bits: Positive


class Adapter(Fixture):
    """Floating factors over the decoded base, an input and an upstream gradient."""

    A: FixtureMatrix
    B: FixtureMatrix
    s: float
    X: FixtureMatrix
    G: FixtureMatrix


class Moments(Fixture):
    """What the optimizer owns, and one snapshot of where its pages lie."""

    owns: tuple[Tensor, ...]
    moments: Positive
    bytes_each: Positive
    resident_bytes: int
    backed_bytes: int
    paged_out: Literal["backed", "removed"]


class Nf4Fixture(Fixture):
    """The 3 x 4 matrix of V 0x02C in blocks of 4."""

    representation: Representation
    codebook: FixtureVector
    W: FixtureMatrix
    block: Positive
    flatten: Literal["row_major", "column_major"]
    nibbles: Literal["low_first", "high_first"]
    scales: ScaleQuantizer
    geometry: Geometry
    adapter: Adapter
    optimizer: Moments


def flat(fixture: Nf4Fixture) -> Vector:
    """The weights in storage order."""
    rows = fixture.W if fixture.flatten == "row_major" else tuple(zip(*fixture.W, strict=True))
    return tuple(x for row in rows for x in row)


def blocks(fixture: Nf4Fixture) -> Matrix:
    """Consecutive blocks; a partial last block is refused."""
    weights, size = flat(fixture), fixture.block
    if len(weights) % size:
        raise FixtureRefusedError("block", size, f"a divisor of {len(weights)}")
    return tuple(weights[i : i + size] for i in range(0, len(weights), size))


def absmax(block: Vector) -> float:
    """c = max_i |w_i|; an all-zero block is refused."""
    if not (c := max(abs(x) for x in block)):
        raise FixtureRefusedError("block", list(block), "a block that is not all zero")
    return c


def encode(block: Vector, codebook: Vector) -> Codes:
    """The nearest code of every w_i / c."""
    c = absmax(block)
    return tuple(min(range(len(codebook)), key=lambda z: abs(x / c - codebook[z])) for x in block)


def pack(codes: Codes, nibbles: str) -> Codes:
    """Two codes a byte."""
    pairs = zip(codes[::2], codes[1::2], strict=True)
    return tuple(a + 16 * b if nibbles == "low_first" else 16 * a + b for a, b in pairs)


def unpack(packed: Codes, nibbles: str) -> Codes:
    """The codes of packed bytes."""
    pairs = ((byte % 16, byte // 16) for byte in packed)
    return tuple(z for low, high in pairs for z in ((low, high) if nibbles == "low_first" else (high, low)))


def decode(packed: Codes, c: float, codebook: Vector, nibbles: str = "low_first") -> Vector:
    """c Q^-1(z) for every packed code of one block."""
    return tuple(c * codebook[z] for z in unpack(packed, nibbles))


def nested(c: Vector, quantizer: ScaleQuantizer) -> tuple[float, float, Codes]:
    """(mu_c, a_g, z): offset, absmax of the centred scales and their signed codes."""
    mean = math.fsum(c) / len(c) if quantizer.centred else 0.0
    a = absmax(tuple(x - mean for x in c))
    return mean, a, tuple(round(quantizer.q_max * (x - mean) / a) for x in c)


def denested(mean: float, a: float, z: Codes, q_max: int) -> Vector:
    """mu_c + a_g z / q_max."""
    return tuple(mean + a * code / q_max for code in z)


def packed_blocks(fixture: Nf4Fixture) -> tuple[Codes, ...]:
    """The stored bytes of every block."""
    return tuple(pack(encode(block, fixture.codebook), fixture.nibbles) for block in blocks(fixture))


def block_scales(fixture: Nf4Fixture) -> Vector:
    """The first-level scales c."""
    return tuple(absmax(block) for block in blocks(fixture))


def dequantised(fixture: Nf4Fixture, scales: Vector) -> Matrix:
    """The compute view of the stored base under these block scales."""
    pairs = zip(packed_blocks(fixture), scales, strict=True)
    return tuple(decode(packed, c, fixture.codebook, fixture.nibbles) for packed, c in pairs)


def compute_view(fixture: Nf4Fixture) -> Matrix:
    """The whole path: nested scale codes to block scales to weights."""
    z = nested(block_scales(fixture), fixture.scales)
    return dequantised(fixture, denested(*z, fixture.scales.q_max))


def table_checks(fixture: Nf4Fixture) -> Iterator[Check]:
    """The four manifest fields and the sixteen levels."""
    r = fixture.representation
    fields = (r.load_in_4bit, r.quant_type, r.double_quant, r.compute_dtype)
    yield equal("four separate fields", fields, (True, "nf4", True, "bfloat16"), source=MANIFEST)
    yield close("codebook", fixture.codebook, LEVELS, source=TABLE, digits=7)
    yield equal("exact zero", fixture.codebook.index(0.0), 7, source=TABLE)


def trace_checks(fixture: Nf4Fixture) -> Iterator[Check]:
    """Codes, bytes and decoded values of the three blocks, and the swapped nibbles."""
    parts = blocks(fixture)
    yield equal("absmax of the blocks", block_scales(fixture), (1.0, 0.5, 0.75), source=TRACE)
    codes = tuple(encode(block, fixture.codebook) for block in parts)
    yield equal("codes", codes, CODES, source=TRACE)
    packed = packed_blocks(fixture)
    yield equal("packed bytes", packed, BYTES, source=TRACE)
    base = dequantised(fixture, block_scales(fixture))
    yield close("dequantised rows", base, DECODED, source=TRACE, digits=9)
    yield close("quantization residual", subtract(parts, base), RESIDUAL, source=TRACE, digits=9)
    swapped = decode(packed[0], absmax(parts[0]), fixture.codebook, "high_first")
    yield close("swapped nibbles, first block", swapped, SWAPPED, source=TRACE, digits=7)


def nested_checks(fixture: Nf4Fixture) -> Iterator[Check]:
    """Centred double quantization of the scales, and the metadata ledger."""
    c = block_scales(fixture)
    mean, a, z = nested(c, fixture.scales)
    yield equal("scale mean and absmax", (mean, a), (0.75, 0.25), source=NESTED)
    yield equal("scale codes", z, (127, -127, 0), source=NESTED)
    yield equal("reconstructed scales", denested(mean, a, z, fixture.scales.q_max), (1.0, 0.5, 0.75), source=NESTED)
    g = fixture.geometry
    single = g.scale_bits / g.block
    double = g.code_bits / g.block + g.scale_bits / (g.block * g.second_block)
    yield equal("single scale bits a weight", single, 0.5, source=NESTED)
    yield equal("nested scale bits a weight", double, 0.126953125, source=NESTED)
    yield equal("bits a weight saved", single - double, 0.373046875, source=NESTED)


def paging_checks(fixture: Nf4Fixture) -> Iterator[Check]:
    """Logical moment bytes follow ownership; paging moves them and removes none."""
    o, a = fixture.optimizer, fixture.adapter
    sizes = {"A": _scalars(a.A), "B": _scalars(a.B), "codes": _scalars(fixture.W), "scales": len(blocks(fixture))}
    owned = sum(sizes[name] for name in o.owns)
    logical = o.moments * o.bytes_each * owned
    counted = o.resident_bytes + (o.backed_bytes if o.paged_out == "backed" else 0)
    yield equal("the optimizer owns the factors", o.owns, ("A", "B"), source=STEP)
    yield equal("adapter scalars", owned, 14, source=PAGED)
    yield equal("moments an adapter scalar", (o.moments, o.bytes_each), (2, 4), source=PAGED)
    yield equal("logical moment bytes", logical, 112, source=PAGED)
    snapshot = (o.resident_bytes, o.backed_bytes, counted)
    yield equal("paged snapshot", snapshot, (56, 56, logical), source=PAGED)


def _scalars(a: Matrix) -> int:
    rows, columns = shape(a)
    return rows * columns


def step_checks(fixture: Nf4Fixture) -> Iterator[Check]:
    """Forward and gradients through the decoded base; codes receive none."""
    a, base = fixture.adapter, compute_view(fixture)
    merged = effective(base, a.A, a.B, a.s)
    error = distance(live(a.X, base, a.A, a.B, a.s), output(a.X, merged))
    yield below("live branch against the dense update", error, 1e-14, source=STEP)
    grads = backward(base, a.A, a.B, a.s, a.X, a.G)
    yield equal("hidden U", output(a.X, a.A), HIDDEN, source=STEP)
    yield equal("dB", grads["B"], GRAD_B, source=STEP)
    yield equal("dA", grads["A"], GRAD_A, source=STEP)
    branch = scale(a.s, matmul(matmul(a.G, a.B), a.A))
    yield equal("adapter part of dX", branch, GRAD_X_BRANCH, source=STEP)
    yield below("dX", distance(grads["X"], add(matmul(a.G, base), branch)), 1e-15, source=STEP)
    difference = held_against_differences(base, a.A, a.B, a.s, a.X, a.G)
    yield gradient("dX, dA and dB against differences", difference, 1e-9, source=STEP)
    stale = max_abs(matmul(a.G, subtract(fixture.W, base)))
    yield above("dX through W instead of its decoded view", stale, 1e-3, source=STEP)
    again = tuple(decode(pack(encode(row, LEVELS), "low_first"), absmax(row), LEVELS) for row in merged)
    yield above("a merged delta needs new codes and loses digits", distance(again, merged), 1e-2, source=TRACE)


def evaluate(fixture: Nf4Fixture) -> Iterator[Check]:
    """Every check of V 0x02, in the order of its subsections."""
    require_length("codebook", fixture.codebook, 16)
    if 0.0 not in fixture.codebook:
        raise FixtureRefusedError("codebook", list(fixture.codebook), "an exact zero")
    a = fixture.adapter
    require_factors(fixture.W, a.A, a.B)
    require_shape("G", a.G, (len(a.X), len(fixture.W)))
    yield from table_checks(fixture)
    yield from trace_checks(fixture)
    yield from nested_checks(fixture)
    yield from paging_checks(fixture)
    yield from step_checks(fixture)


LEVELS: Vector = (
    *(-1.0000000, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0000000),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0000000),
)
CODES: tuple[Codes, ...] = ((0, 2, 7, 14), (11, 6, 13, 0), (8, 11, 4, 15))
BYTES: tuple[Codes, ...] = ((32, 231), (107, 13), (184, 244))
DECODED: Matrix = (
    (-1.0, -0.5250731, 0.0, 0.7229568),
    (0.1689576, -0.045525, 0.2813085, -0.5),
    (0.059685225, 0.2534364, -0.21333105, 0.75),
)
RESIDUAL: Matrix = (
    (0.0, -0.0249269, 0.0, -0.0029568),
    (-0.0189576, -0.004475, 0.0186915, 0.0),
    (-0.009685225, -0.0034364, 0.01333105, 0.0),
)
SWAPPED: Vector = (-0.5250731, -1.0, 0.7229568, 0.0)
HIDDEN: Matrix = ((1.5, -2.75), (1.25, 0.0))
GRAD_B: Matrix = ((0.125, -1.375), (0.25, 0.6875), (1.8125, -2.75))
GRAD_A: Matrix = ((0.0, 0.25, -0.25, 0.125), (0.375, 0.625, -0.8125, 1.25))
GRAD_X_BRANCH: Matrix = ((0.0, 0.375, 0.1875, -0.375), (0.25, 1.0, 0.25, -0.875))

ORACLE = Oracle(
    name="nf4",
    document="V",
    sections=("0x02A", "0x02B", "0x02C", "0x02D", "0x02E", "0x02F", "0x02G"),
    module=__name__,
    fixture=Nf4Fixture,
    evaluate=evaluate,
    proves=(
        "the sixteen levels, block scales, codes and packed bytes, and what swapped nibbles decode to",
        "centred double quantization of the scales and the bits it saves",
        "optimizer ownership, logical moment bytes under paging, and all gradients through the decoded base",
    ),
    does_not_prove=(
        "the CUDA kernel's 8-bit code map, its tiles or its liveness",
        "paging latency, memory of a real run, or any quality figure of the paper",
    ),
    own=("adapter",),
)
