"""What a composition will cost, from shapes alone: bytes, operations, memory, workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import prod
from typing import Final

from compose.errors import MemoryLimitError, problem
from compose.request import ComposeRequest, FactorSource, Options
from compose.tensors import STORE
from compose.validation import check, needs_rank
from compose.writer import Layout, Slot, lay_out

KRYLOV_COLUMNS: Final = 256
"""Columns of basis and images a truncated SVD is planned to hold; it rarely needs half of them."""

_WORD: Final = 8
_DENSE_PASSES: Final = 3


@dataclass(frozen=True)
class ModuleJob:
    """One module's work: `members` act on it, each with the factor at its place in `places`; all agree on the shape of
    the `first`.

    `input_rank` is R, the sum of the members' ranks, `rank` that of the output, `length` the bytes that are read.
    """

    module: str
    members: tuple[int, ...]
    places: tuple[int, ...]
    first: FactorSource
    input_rank: int
    rank: int
    length: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(d_out, d_in)``."""
        return self.first.b.shape[0], self.first.a.shape[1]

    @property
    def experts(self) -> int | None:
        """How many matrices of that shape are stacked; null for a module of one."""
        return self.first.experts

    def factors(self, request: ComposeRequest) -> list[tuple[int, FactorSource]]:
        """Who acts on the module, as (member position, factor)."""
        return [
            (member, request.members[member].factors[place])
            for member, place in zip(self.members, self.places, strict=True)
        ]


@dataclass(frozen=True)
class Plan:
    """Sizes in bytes, `flops` in operations; `peak_bytes` counts the tensors of all workers together."""

    bytes_read: int
    bytes_written: int
    flops: int
    peak_bytes: int
    output_size: int
    workers: int
    modules: int


@dataclass(frozen=True)
class Work:
    """A request made out: its cost, its modules in order, and where every tensor of the output goes."""

    plan: Plan
    jobs: tuple[ModuleJob, ...]
    layout: Layout


def plan(request: ComposeRequest, options: Options | None = None) -> Plan:
    """The cost of a request, without reading a tensor.

    Raises:
        ComposeRefusedError: the request itself is wrong.
        MemoryLimitError: `MEMORY_LIMIT` when one module alone needs more than the limit.
    """
    return make_out(request, options or Options()).plan


def make_out(request: ComposeRequest, options: Options) -> Work:
    """All that is known of a request before a tensor is read; the errors are those of `plan`."""
    check(request)
    jobs = _jobs(request)
    need = max(_memory(request, job) for job in jobs)
    workers = _workers(options, need, len(jobs))
    layout = _layout(request, jobs)
    size = layout.size
    read = sum(job.length for job in jobs)
    read += sum(item.tensor.length for member in request.members for item in member.replacements)
    flops = sum(_operations(request, job) for job in jobs)
    return Work(Plan(read, size, flops, need * workers, size, workers, len(jobs)), jobs, layout)


def _jobs(request: ComposeRequest) -> tuple[ModuleJob, ...]:
    """One job for every module any member acts on, sorted by name."""
    modules: dict[str, _Gathered] = {}
    for position, member in enumerate(request.members):
        for place, factor in enumerate(member.factors):
            modules.setdefault(factor.module, _Gathered(factor)).take(position, place, factor)
    return tuple(_job(request, module, modules[module]) for module in sorted(modules))


@dataclass
class _Gathered:
    """A module while the members are gone through."""

    first: FactorSource
    members: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    rank: int = 0
    length: int = 0

    def take(self, member: int, place: int, factor: FactorSource) -> None:
        self.members.append(member)
        self.places.append(place)
        self.rank += factor.rank
        self.length += factor.a.length + factor.b.length


def _job(request: ComposeRequest, module: str, of: _Gathered) -> ModuleJob:
    rank = _rank(request, of.first, of.rank)
    return ModuleJob(module, tuple(of.members), tuple(of.places), of.first, of.rank, rank, of.length)


def _layout(request: ComposeRequest, jobs: tuple[ModuleJob, ...]) -> Layout:
    """Where every tensor of the output goes."""
    dtype = STORE[request.choices.dtype.store]
    slots = []
    for job in jobs:
        d_out, d_in = job.shape
        kernel, rank = job.first.kernel, job.rank * (job.experts or 1)
        slots += [
            Slot(job.module, "lora_A", dtype, (rank, d_in // prod(kernel), *kernel)),
            Slot(job.module, "lora_B", dtype, (d_out, rank, *(1 for _ in kernel))),
        ]
    for member in request.members:
        slots += [Slot(item.name, "full", item.tensor.dtype, item.tensor.shape) for item in member.replacements]
    return lay_out(slots)


def _rank(request: ComposeRequest, first: FactorSource, total: int) -> int:
    if request.space == "factor":
        return first.rank
    wanted = request.choices.rank
    if not needs_rank(request.method, request.space) or wanted is None:
        return total
    return min(wanted, total) if request.method == "delta_svd" else wanted


def is_dense(request: ComposeRequest) -> bool:
    """Whether the method has to see every element of the delta."""
    return needs_rank(request.method, request.space) and request.method != "delta_svd"


def _memory(request: ComposeRequest, job: ModuleJob) -> int:
    d_out, d_in = job.shape
    stacks = 4 * (d_out + d_in) * (job.input_rank + job.rank) + job.input_rank**2
    dense = d_out * d_in + (d_out + d_in) * KRYLOV_COLUMNS if is_dense(request) else 0
    # Of stacked experts one is in work, and the outputs of all wait to be joined.
    outputs = (d_out + d_in) * job.rank * (job.experts or 0)
    return _WORD * (stacks + dense + outputs)


def _operations(request: ComposeRequest, job: ModuleJob) -> int:
    d_out, d_in = job.shape
    total, width = job.input_rank, d_out + d_in
    operations = 4 * width * total**2 + 20 * total**3
    if is_dense(request):
        operations += d_out * d_in * (2 * total * _DENSE_PASSES + 2 * KRYLOV_COLUMNS)
    return operations * (job.experts or 1)


def _workers(options: Options, need: int, jobs: int) -> int:
    wanted = min(options.workers or os.cpu_count() or 1, jobs)
    limit = options.memory_limit
    if limit is None:
        return wanted
    if need > limit:
        raise MemoryLimitError(
            problem(
                "MEMORY_LIMIT",
                "options",
                "memory_limit",
                expected=f"at least {need} bytes",
                observed=f"{limit} bytes",
                hint="Raise the limit, or use a method that stays in low rank.",
            )
        )
    return min(wanted, limit // need)
