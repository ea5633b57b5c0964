"""Runs a composition: one module a worker, the same bytes at any worker count, nothing left by a failed run."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from compose.errors import ComposeCancelledError, problem, refusal
from compose.experts import join, split
from compose.ledger import Entry, facts, ledger
from compose.module import LoadedFactor, ModuleInput, ModuleOutput
from compose.operators import OPERATORS
from compose.plan import ModuleJob, Plan, make_out
from compose.reading import Files, read_pairs
from compose.request import ComposeRequest, ComposeResult, FactorSource, Options, Progress, WrittenTensor
from compose.tensors import all_finite, map_bytes, raw_bytes
from compose.threads import give_back, one_blas_thread, start_worker
from compose.writer import Layout, Slot, TensorFile, new_file
from schemas.canonical import JsonObject
from schemas.composition import ModuleRecord, StochasticIdentity

Finished = tuple[Entry, ModuleRecord, tuple[WrittenTensor, ...]]

_SYNCED: Final = 32 << 20
"""Bytes written between two waits for the disk: one wait a module costs it twice the time of writing all at once, and
one at the end all of it after the arithmetic."""


def compose(request: ComposeRequest, out: Path, *, options: Options | None = None) -> ComposeResult:
    """Compose into the safetensors file `out`, whose folder exists.

    Raises:
        ComposeRefusedError: the request, a tensor that is not finite, or a store dtype too narrow for the result.
        MemoryLimitError: refused before work.
        ComposeCancelledError: `options.cancel` said so.
        OSError: reading or writing failed. After any error `out` is as it was.
    """
    started = time.monotonic()
    options = options or Options()
    work = make_out(request, options)
    with closing(Files()) as files, new_file(out, work.layout) as file:
        done = _Done(list(_replacements(request, file, work.layout)), [])
        run = _Run(request, files, file, work.layout, options)
        with closing(_run(run, work.jobs, work.plan.workers)) as finished:
            figures = ledger(done.entries(finished), len(request.members))
    give_back()
    return ComposeResult(
        path=out,
        tensors=tuple(sorted(done.tensors, key=lambda item: (item.module, item.role))),
        modules=tuple(done.records),
        stochastic=_stochastic(request),
        ledger=figures,
        run_record=_run_record(work.plan, options, time.monotonic() - started),
    )


@dataclass(frozen=True)
class _Run:
    """What the modules of one composition share."""

    request: ComposeRequest
    files: Files
    file: TensorFile
    places: Layout
    options: Options


@dataclass(frozen=True)
class _Done:
    """What was written so far."""

    tensors: list[WrittenTensor]
    records: list[ModuleRecord]

    def entries(self, finished: Iterator[Finished]) -> Iterator[Entry]:
        """Take the modules in; what the ledger needs of one goes on and is not kept."""
        for entry, record, tensors in finished:
            self.tensors.extend(tensors)
            self.records.append(record)
            yield entry


def _run(run: _Run, jobs: tuple[ModuleJob, ...], workers: int) -> Generator[Finished, None, None]:
    """The modules in the order of the jobs."""
    progress, written = run.options.progress, 0
    with one_blas_thread(), ThreadPoolExecutor(workers, initializer=start_worker) as pool:
        futures = deque(pool.submit(_module, run, job) for job in jobs)
        try:
            for done, job in enumerate(jobs, start=1):
                finished = futures.popleft().result()
                written += sum(tensor.length for tensor in finished[2])
                if written >= _SYNCED:
                    run.file.flush()
                    written = 0
                if progress is not None:
                    progress(Progress(done, len(jobs), job.module))
                yield finished
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _module(run: _Run, job: ModuleJob) -> Finished:
    request, options = run.request, run.options
    if options.cancel is not None and options.cancel():
        hint = "Start the composition again; nothing was left behind."
        raise ComposeCancelledError(
            problem("COMPOSE_CANCELLED", job.module, expected="a whole run", observed="a cancel", hint=hint)
        )
    factors = job.factors(request)
    output = _operate(request, job, load(request, job, factors, run.files, options.device))
    tensors = _write(output, run.file, run.places, job)
    ranks = tuple(factor.rank for _, factor in factors)
    record = ModuleRecord(
        module=job.module, input_ranks=ranks, output_rank=job.rank, retained=output.retained, masks=output.masks
    )
    return Entry(job.module, job.members, ranks, job.rank, facts(output)), record, tensors


def _operate(request: ComposeRequest, job: ModuleJob, module: ModuleInput) -> ModuleOutput:
    operator = OPERATORS[request.method, request.space]
    return operator(module) if job.experts is None else join([operator(one) for one in split(module, job.experts)])


def load(
    request: ComposeRequest, job: ModuleJob, factors: Sequence[tuple[int, FactorSource]], files: Files, device: str
) -> ModuleInput:
    """Read one module's factors, refusing what is not finite."""
    names = [f"members/{position}/{job.module}" for position, _ in factors]
    pairs = read_pairs(files, [source for _, source in factors], names)
    loaded = []
    for (position, source), (a, b) in zip(factors, pairs, strict=True):
        member = request.members[position]
        loaded.append(LoadedFactor(member.adapter, member.weight, source.scale, a.to(device), b.to(device)))
    return ModuleInput(job.module, tuple(loaded), request.choices, job.rank)


def _write(output: ModuleOutput, file: TensorFile, places: Layout, job: ModuleJob) -> tuple[WrittenTensor, ...]:
    written = []
    for slot, tensor in (
        (places.slots[job.module, "lora_A"], output.a),
        (places.slots[job.module, "lora_B"], output.b),
    ):
        _check_storable(tensor, slot)
        written.append(file.write(slot, raw_bytes(tensor)))
    return tuple(written)


def _check_storable(tensor: torch.Tensor, slot: Slot) -> None:
    if not all_finite(tensor):
        raise refusal(
            "STORE_OVERFLOW", slot.name, expected=f"values within {slot.dtype}", observed="an overflow",
            hint="Store the composition in a wider dtype.",
        )  # fmt: skip


def _replacements(request: ComposeRequest, file: TensorFile, places: Layout) -> Iterator[WrittenTensor]:
    for member in request.members:
        for item in member.replacements:
            yield file.write(places.slots[item.name, "full"], memoryview(map_bytes(item.tensor)))


def _stochastic(request: ComposeRequest) -> StochasticIdentity | None:
    dare = request.choices.dare
    if dare is None or not request.method.startswith("dare"):
        return None
    return StochasticIdentity(generator=dare.generator, seed=dare.seed, density=dare.density)


def _run_record(planned: Plan, options: Options, seconds: float) -> JsonObject:
    return {
        "seconds": round(seconds, 6),
        "bytes_read": planned.bytes_read,
        "bytes_written": planned.bytes_written,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "device": options.device,
        "workers": planned.workers,
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
