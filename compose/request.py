"""What is asked of the engine and what it answers: digests, paths and offsets, no references or foreign keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from schemas.base import TensorRef
from schemas.canonical import JsonObject
from schemas.composition import ModuleRecord, StochasticIdentity
from schemas.digests import Digest
from schemas.methods import Choices, Method, Space

Role = Literal["lora_A", "lora_B", "full"]


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor where it lies: `length` bytes at the absolute byte `offset` of a file, row-major, little-endian."""

    path: Path
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FactorSource:
    """One module's pair: ``delta [d_out, d_in] = scale * b [d_out, rank] @ a [rank, d_in]``.

    A convolution's `a` comes flat, ``[rank, channels * kh * kw]``, with its `kernel` ``(kh, kw)``; the output is
    written with that kernel again. Coordinates of masks and ties are those of the delta, however the weight is stored.
    Of stacked `experts` a is ``[experts * rank, d_in]`` and b ``[d_out, rank * experts]`` (`compose.experts`).
    """

    module: str
    rank: int
    scale: float
    a: TensorSource
    b: TensorSource
    kernel: tuple[int, ...] = ()
    experts: int | None = None


@dataclass(frozen=True)
class ReplacementSource:
    """A tensor an adapter replaces as a whole; it is carried byte for byte."""

    name: str
    tensor: TensorSource


@dataclass(frozen=True)
class Member:
    """An adapter and its request coefficient lambda. `factors` may make them when they are asked for."""

    adapter: Digest
    weight: float
    factors: Sequence[FactorSource]
    replacements: tuple[ReplacementSource, ...] = ()


@dataclass(frozen=True)
class ComposeRequest:
    """One composition. Members are computed in the order given; `schemas.composition.in_identity_order` gives it."""

    method: Method
    space: Space
    choices: Choices
    base: Digest
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Progress:
    """`done` of `total` modules; `module` is the one that finished last."""

    done: int
    total: int
    module: str


@dataclass(frozen=True)
class Options:
    """How to run; nothing here changes a byte of the output.

    Args:
        workers: modules in work at once, each on one BLAS thread; null takes one a core. Dense methods use as many of
        them
            as `memory_limit` allows.
        memory_limit: bytes of tensors in work at once; a plan above it is refused before work.
        progress: called after each module, in the caller's thread.
        cancel: asked before each module; true stops the run.
        device: where the kernels run.
    """

    workers: int | None = None
    memory_limit: int | None = None
    progress: Callable[[Progress], None] | None = None
    cancel: Callable[[], bool] | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class WrittenTensor:
    """A tensor of the written file: `length` bytes at the absolute byte `offset`.

    `module` is the replaced tensor's own name where `role` is `full`; in the file factors are named
    ``<module>.<role>``.
    """

    module: str
    role: Role
    tensor: TensorRef
    offset: int
    length: int


@dataclass(frozen=True)
class ComposeResult:
    """The written file and everything known about it.

    The output's scale is 1: ``delta = lora_B @ lora_A``, written as alpha = r = the module's output rank. `modules`
    are discrete facts for the manifest; `ledger` is the floating measurement (nine significant digits) and
    `run_record` what the run cost.
    """

    path: Path
    tensors: tuple[WrittenTensor, ...]
    modules: tuple[ModuleRecord, ...]
    stochastic: StochasticIdentity | None
    ledger: JsonObject = field(repr=False)
    run_record: JsonObject = field(repr=False)
