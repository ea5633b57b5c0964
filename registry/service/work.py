"""Doing what a job asks for: once, whoever takes it and however often it is taken.

A job ends in the transaction that stores its result or, called off meanwhile, undoes that transaction. So a job whose
worker dies is done again from its last finished file, and a cancelled one leaves nothing under a name. A worker that
was given up while it was only silent may wake: what it then stores is undone in the same way, for the job is another's.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from registry.db import Change, blobs, jobs
from registry.db.rows import JobRow
from registry.errors import CancelledError, InternalError, Problem, ProblemError, UnavailableError, error_document
from registry.service import admit, convert, export
from registry.service.context import Context
from registry.service.export import CARD, Form
from registry.service.problem_types import type_of
from registry.service.results import FileEntry
from registry.service.task import Task
from registry.service.wishes import Wish
from schemas.canonical import JsonObject
from schemas.digests import BlobDigests, Digest
from schemas.model import Record

T = TypeVar("T")
EVERY_S: Final = 0.5
"""How often a running job writes its progress and looks whether it was called off."""
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Waits between attempts while a store or a base is away."""
MOST_ATTEMPTS: Final = 5
"""Workers that may die of one job before it is given up."""


class HandedBack(BaseException):
    """This process leaves, and the job is for another: no error, so that no handler of errors takes it for one."""


@dataclass(frozen=True)
class Worker:
    """Who does the work: its name, `once`, which remembers the answer of a step by the step's order in its job, and
    whether it has to leave."""

    name: str
    once: Callable[[str, Callable[[], JsonObject]], JsonObject]
    leaving: Callable[[], bool]

    def pause(self, seconds: float) -> None:
        """Wait. Raises HandedBack when the worker has to leave."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.leaving():
                raise HandedBack
            time.sleep(min(EVERY_S, seconds))


class JobTask(Task):
    """The task of one job under one worker."""

    def __init__(self, context: Context, row: JobRow, worker: Worker) -> None:
        self.kept: set[Digest] = set()
        self._files = 0
        self._context = context
        self._row = row
        self._worker = worker
        self._due = 0.0

    def progress(self, done: int, total: int, what: str) -> None:
        """See `Task`. Raises HandedBack when the worker leaves."""
        if self._worker.leaving():
            raise HandedBack
        if time.monotonic() < self._due:
            return
        value: JsonObject = {"done": done, "total": total, "what": what}
        if not self.change("job.progress", lambda change: jobs.progress(change, self._row, value)):
            raise _called_off(self._row)
        self._due = time.monotonic() + EVERY_S

    def file(self, path: Path, make: Callable[[], JsonObject]) -> JsonObject:
        """See `Task`: the file is kept as a blob, found again by its digest."""

        def keep() -> JsonObject:
            return {"said": make(), "blob": self._context.store.put_file(path).digest}

        self._files += 1
        told = self._worker.once(f"file {path.name}", lambda: self.patiently(keep))
        blob = str(told["blob"])
        if not path.exists():
            shutil.copyfile(self._context.store.local_path(blob), path)
        self.kept.add(blob)
        return cast(JsonObject, told["said"])

    def ending(self, change: Change, result: Record) -> None:
        """See `Task`: the job is done when its own result is stored, not with a conversion on the way to an export."""
        if self._row.kind != "export" and not jobs.finish(change, self._row, result.document()):
            raise _called_off(self._row)

    def patiently(self, work: Callable[[], T]) -> T:
        """Do what may have to wait for a store or a base that is away.

        Work that has begun to keep files is not done again: it would ask for them in another order, and each has waited
        for itself.
        """
        begun = self._files
        for pause in PAUSES_S:
            try:
                return work()
            except UnavailableError:
                if self._files != begun:
                    raise
                self._worker.pause(pause)
        return work()

    def change(self, action: str, work: Callable[[Change], T]) -> T:
        """A change of the job's own row."""
        return _change(self._context, self._worker, action, work)


def perform(context: Context, job_id: str, worker: Worker) -> None:
    """Do one job, unless it ended before.

    Raises:
        HandedBack: the worker leaves, and the job is queued again.
    """
    row = _change(context, worker, "job.start", lambda change: jobs.start(change, job_id, worker.name))
    if row is None:
        return
    task = JobTask(context, row, worker)
    try:
        result = _result(replace(context, principal=row.principal, task=task), row, task)
    except CancelledError:
        return
    except HandedBack:
        with suppress(UnavailableError):
            context.database.change("job.hand_back", worker.name, lambda change: jobs.hand_back(change, row))
        raise
    except ProblemError as error:
        document = told(error)
        task.change("job.fail", lambda change: jobs.fail(change, row, document))
    else:
        # most use cases have ended the job with what they stored; those that stored nothing end it here
        task.change("job.finish", lambda change: jobs.finish(change, row, result.document()))


def _change(context: Context, worker: Worker, action: str, work: Callable[[Change], T]) -> T:
    """A change of a job's row; a database that is away is waited for, however long."""
    while True:
        try:
            return context.database.change(action, worker.name, work)
        except UnavailableError:
            worker.pause(PAUSES_S[0])


def _result(context: Context, row: JobRow, task: JobTask) -> Record:
    if row.attempts > MOST_ATTEMPTS:
        raise _given_up(row)
    return task.patiently(lambda: _WORK[row.kind](context, row.request))


def _compose(context: Context, request: JsonObject) -> Record:
    def progress(done: int, total: int) -> None:
        context.task.progress(done, total, "modules")

    return admit.compose_admitted(context, str(request["admission"]), str(request["name"]), progress)


def _convert(context: Context, request: JsonObject) -> Record:
    options = {key: value for key, value in request.items() if key not in ("ref", "acknowledge")}
    accepted = frozenset(cast(list[str], request["acknowledge"]))
    return convert.convert(context, str(request["ref"]), Wish(acknowledge=accepted, **cast(dict[str, Any], options)))


def _export(context: Context, request: JsonObject) -> Record:
    """Write the directory, and keep each of its files, the card too."""
    options = {key: value for key, value in request.items() if key != "ref"}
    form = Form(**cast(dict[str, Any], options))
    with context.store.scratch.folder() as scratch:
        made = export.export(context, str(request["ref"]), scratch, form, named=True)
        folder = Path(made.directory)
        card = export.entry(folder, folder / CARD)
        for entry in (*made.files, card):
            _keep(context, folder, entry)
    _record(context, (*made.files, card))
    return made.model_copy(update={"directory": folder.name, "files": (*made.files, card)})


def _keep(context: Context, folder: Path, entry: FileEntry) -> None:
    task = context.task
    if not isinstance(task, JobTask) or entry.blob not in task.kept:
        context.store.put_file(folder / entry.path, expect=entry.blob)


def _record(context: Context, entries: Sequence[FileEntry]) -> None:
    """Let the files be found by their digests; nothing names them, so that they go when the grace is over."""

    def work(change: Change) -> None:
        blobs.put(change, [BlobDigests(entry.blob, entry.sha256, entry.size) for entry in entries])
        blobs.mark_present(change, [entry.blob for entry in entries])

    context.database.change("export.keep", context.principal, work)


_WORK: Final[dict[str, Callable[[Context, JsonObject], Record]]] = {
    "composition": _compose,
    "conversion": _convert,
    "export": _export,
}


def told(error: ProblemError) -> JsonObject:
    """An error as a job keeps it: with its class, so that whoever waits can raise the same one."""
    return {"type": type_of(error), **error_document(error)}


def _called_off(row: JobRow) -> CancelledError:
    return CancelledError(
        Problem(
            code="JOB_CANCELLED",
            path=(row.id,),
            expected="a job that is open",
            observed="one that was called off, or that another worker took",
            hint="Ask for it again; nothing of it was kept.",
        )
    )


def _given_up(row: JobRow) -> InternalError:
    return InternalError(
        Problem(
            code="JOB_GIVEN_UP",
            path=(row.id,),
            expected="a worker that lives until the job is done",
            observed=f"{MOST_ATTEMPTS} workers died of it",
            hint="See why they died (memory?), give them room, and ask for it again.",
        )
    )
