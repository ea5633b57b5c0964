"""Jobs as callers see them: what was asked for, how far it is, what came of it. Their rows are made and read here.

A job is a row first; whatever process runs jobs finds it there. `registry.service.work` does what a row asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol, cast, get_args

from registry.db import Change, jobs
from registry.db.rows import JobRow
from registry.service import decide, export, resolve
from registry.service.context import Context
from registry.service.export import Form
from registry.service.results import Exported
from registry.service.wishes import Wish, check_options
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import blob_digest
from schemas.model import Record, validate
from schemas.names import ChannelRef, parse_ref
from schemas.spec import CompositionSpec

Kind = Literal["composition", "conversion", "export"]
Status = Literal["queued", "running", "done", "failed", "cancelled"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
STATUSES: Final[tuple[Status, ...]] = get_args(Status)


class Job(Record):
    """A job: `result` is an `Admitted`, `Conversion` or `Exported` document, `error` a problem document.

    `key` names the question: asked again while it is open or done, it is the same job. `progress` counts what is done
    of a total (modules of a composition, files of a dense release). `attempts` counts the workers that took it.
    """

    id: str
    kind: str
    key: str
    status: Status
    principal: str
    created: str
    updated: str
    attempts: int = 0
    worker: str | None = None
    progress: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None

    @property
    def open(self) -> bool:
        """Whether it has not ended yet."""
        return self.status in ("queued", "running")


class JobPage(Record):
    """A keyset page of jobs, newest first, without their results."""

    items: tuple[Job, ...]
    next: str | None


class Runner(Protocol):
    """What runs jobs in this process."""

    @property
    def alive(self) -> bool:
        """Whether it takes jobs, or waits to."""
        ...

    def start(self) -> None:
        """Start taking jobs."""
        ...

    def wake(self) -> None:
        """There may be a new one."""
        ...

    def stop(self) -> None:
        """Take no more; let what runs finish within a moment, or hand it back."""
        ...


def submit_composition(context: Context, spec: CompositionSpec) -> Job:
    """Decide now and queue the work; the same admitted inputs under the same name are one job.

    Raises:
        DecisionRefusedError, NotAcknowledgedError: with the stored decision; no job is made.
    """
    answer = decide.require_proceeding(decide.store(context, decide.ask(context, spec)))
    request: JsonObject = {"admission": answer.admission, "name": spec.name}
    return _submit(context, "composition", request)


def submit_conversion(context: Context, ref: str, wish: Wish) -> Job:
    """Queue a conversion of the adapter that a reference means now.

    Raises:
        UsageProblemError: `CONVERSION_OPTION`.
        NotFoundError: a reference that means nothing.
    """
    check_options(wish)
    context.require("compose", *([] if wish.name is None else [wish.name]))
    with context.database.reading() as reader:
        pinned = {key: resolve.digest_of(reader, value) for key, value in _refs(ref, wish).items()}
    request: JsonObject = {
        **pinned,
        "rule": wish.rule,
        "name": wish.name,
        "store": wish.store,
        "acknowledge": list[JsonValue](sorted(wish.acknowledge)),
    }
    return _submit(context, "conversion", request)


def submit_export(context: Context, ref: str, form: Form) -> Job:
    """Queue an export of what a reference means now; its files come to lie in the store.

    Raises:
        NotFoundError: a reference that means nothing.
    """
    with context.database.reading() as reader:
        parsed = parse_ref(ref)
        if isinstance(parsed, ChannelRef):
            pinned = f"channel:{export.generation_of(reader, parsed.channel, parsed.generation).label}"
        else:
            pinned = resolve.digest_of(reader, ref)
    request: JsonObject = {
        "ref": pinned,
        "base_name": form.base_name,
        "profile": form.profile,
        "engine": form.engine,
        "max_lora_rank": form.max_lora_rank,
    }
    return _submit(context, "export", request)


def get(context: Context, job_id: str) -> Job:
    """One job. Raises NotFoundError `JOB_UNKNOWN`."""
    with context.database.reading() as reader:
        return job_of(jobs.get(reader, job_id))


def ls(context: Context, status: Status | None = None, after: str | None = None, limit: int = 50) -> JobPage:
    """One page of jobs, newest first; ask for a single one to see its result."""
    with context.database.reading() as reader:
        page = jobs.page(reader, status, after, limit)
    return JobPage(items=tuple(_without_result(row) for row in page.items), next=page.next)


def cancel(context: Context, job_id: str) -> Job:
    """Call an open job off: its worker stops soon and nothing of it is kept; another is returned as it is.

    Raises:
        NotFoundError: `JOB_UNKNOWN`.
        NotAllowedError: `PERMISSION_MISSING`; somebody else's job takes an administrator.
    """

    def work(change: Change) -> Job:
        row = jobs.get(change, job_id)
        if row.principal != context.principal:
            context.require("admin")
        row = jobs.cancel(change, job_id)
        if row.status == "cancelled":
            change.note(None, {"job": row.id, "kind": row.kind})
        return job_of(row)

    return context.database.change("job.cancel", context.principal, work)


def job_of(row: JobRow) -> Job:
    """A row as callers see it."""
    return _without_result(row).model_copy(update={"result": row.result, "error": row.error})


def _without_result(row: JobRow) -> Job:
    return Job(
        id=row.id,
        kind=row.kind,
        key=row.key,
        status=cast(Status, row.status),
        principal=row.principal,
        created=row.created,
        updated=row.updated,
        attempts=row.attempts,
        worker=row.worker,
        progress=row.progress,
    )


def _submit(context: Context, kind: Kind, request: JsonObject) -> Job:
    """One live job a question; an export whose files were collected meanwhile is made anew."""
    key = f"{kind} {blob_digest(canonical_bytes(request))}"

    def work(change: Change) -> Job:
        row, _ = jobs.insert(change, kind, key, request)
        return job_of(row)

    with context.database.reading() as reader:
        known = jobs.live(reader, key)
    if known is not None and kind == "export" and known.result is not None and not _held(context, known.result):
        old = known.id
        context.database.change("job.forget", context.principal, lambda change: jobs.forget(change, old))
    return context.conclude("job.submit", work)


def _held(context: Context, result: JsonObject) -> bool:
    files = validate(Exported, result).files
    return all(context.store.has(file.blob) for file in files)


def _refs(ref: str, wish: Wish) -> dict[str, str]:
    given: Iterable[tuple[str, str | None]] = (("ref", ref), ("initial", wish.initial), ("base", wish.base))
    return {key: value for key, value in given if value is not None}
