"""What a composition will cost, from shapes alone: bytes, operations, memory, workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
    """One module's work: who acts on it, as (member position, factor), and the rank of the output."""

    module: str
    factors: tuple[tuple[int, FactorSource], ...]
    rank: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(d_out, d_in)``."""
        factor = self.factors[0][1]
        return factor.b.shape[0], factor.a.shape[1]

    @property
    def experts(self) -> int | None:
        """How many matrices of that shape are stacked; null for a module of one."""
        return self.factors[0][1].experts

    @property
    def input_rank(self) -> int:
        """R, the sum of the members' ranks."""
        return sum(factor.rank for _, factor in self.factors)


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


def plan(request: ComposeRequest, options: Options | None = None) -> Plan:
    """The cost of a request, without reading a tensor.

    Raises:
        ComposeRefusedError: the request itself is wrong.
        MemoryLimitError: `MEMORY_LIMIT` when one module alone needs more than the limit.
    """
    check(request)
    options = options or Options()
    jobs = module_jobs(request)
    need = max(_memory(request, job) for job in jobs)
    workers = _workers(options, need, len(jobs))
    size = layout(request, jobs).size
    read = sum(factor.a.length + factor.b.length for job in jobs for _, factor in job.factors)
    read += sum(item.tensor.length for member in request.members for item in member.replacements)
    flops = sum(_operations(request, job) for job in jobs)
    return Plan(read, size, flops, need * workers, size, workers, len(jobs))


def module_jobs(request: ComposeRequest) -> tuple[ModuleJob, ...]:
    """One job for every module any member acts on, sorted by name."""
    modules: dict[str, list[tuple[int, FactorSource]]] = {}
    for position, member in enumerate(request.members):
        for factor in member.factors:
            modules.setdefault(factor.module, []).append((position, factor))
    return tuple(
        ModuleJob(module, tuple(modules[module]), _rank(request, modules[module])) for module in sorted(modules)
    )


def layout(request: ComposeRequest, jobs: tuple[ModuleJob, ...]) -> Layout:
    """Where every tensor of the output goes."""
    dtype = STORE[request.choices.dtype.store]
    slots = []
    for job in jobs:
        d_out, d_in = job.shape
        kernel, rank = job.factors[0][1].kernel, job.rank * (job.experts or 1)
        slots += [
            Slot(job.module, "lora_A", dtype, (rank, d_in // prod(kernel), *kernel)),
            Slot(job.module, "lora_B", dtype, (d_out, rank, *(1 for _ in kernel))),
        ]
    for member in request.members:
        slots += [Slot(item.name, "full", item.tensor.dtype, item.tensor.shape) for item in member.replacements]
    return lay_out(slots)


def _rank(request: ComposeRequest, factors: list[tuple[int, FactorSource]]) -> int:
    ranks = [factor.rank for _, factor in factors]
    if request.space == "factor":
        return ranks[0]
    wanted = request.choices.rank
    if not needs_rank(request.method, request.space) or wanted is None:
        return sum(ranks)
    return min(wanted, sum(ranks)) if request.method == "delta_svd" else wanted


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
