"""What a job does, apart from who takes it: once, for the question as it was asked, and nothing when called off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from registry.db.rows import RunRecordRow
from registry.errors import NotAllowedError, NotFoundError
from registry.service import add as adding
from registry.service import jobs, resolve, retire, specs
from registry.service.context import Context
from registry.service.export import Form
from registry.service.grants import Grants, Scope
from registry.service.jobs import Job
from registry.service.results import Exported
from registry.service.wishes import Wish
from registry.service.work import HandedBack, Worker, perform
from schemas.canonical import JsonObject
from schemas.model import validate
from tests.support import tiny

SHARDS = 4


class Died(BaseException):
    """The end of a worker, which no handler sees."""


@dataclass
class Memory:
    """Steps as a queue remembers them: by their order in the job. `mortal` is the step its worker dies of."""

    said: list[tuple[str, JsonObject]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    mortal: int | None = None

    def worker(self, leaving: Callable[[], bool] = lambda: False) -> Worker:
        """A worker that begins a job with what is remembered."""
        begun: list[str] = []

        def once(name: str, make: Callable[[], JsonObject]) -> JsonObject:
            begun.append(name)
            if len(begun) > len(self.said):
                if len(begun) - 1 == self.mortal:
                    raise Died
                self.made.append(name)
                self.said.append((name, make()))
            known, answer = self.said[len(begun) - 1]
            assert known == name
            return answer

        return Worker("w", once, leaving)


@pytest.fixture
def filled(context: Context, tmp_path: Path) -> Context:
    """With a base in several files and two adapters."""
    adding.add_base(context, tiny.write_base(tmp_path / "base", shards=SHARDS), "tiny")
    for seed, name in enumerate(("one", "two"), 1):
        adding.add_adapter(context, tiny.write_adapter(tmp_path / name, seed), "tiny", name)
    return context


def composition(context: Context, name: str = "merged", first: str = "one", **fields: Any) -> Job:
    """Ask for ``one + two``."""
    members = [{"ref": first, "weight": 1.0}, {"ref": "two", "weight": 1.0}]
    document = {"name": name, "base": "tiny", "method": "cat", "space": "delta", "members": members} | fields
    return jobs.submit_composition(context, specs.spec_from(document))


def run_records(context: Context) -> int:
    """Compositions that ran."""
    with context.database.reading() as reader:
        return reader.session.scalar(select(func.count()).select_from(RunRecordRow)) or 0


def test_the_same_question_is_one_job_and_another_name_is_another(filled: Context) -> None:
    first = composition(filled)
    assert composition(filled).id == first.id
    assert composition(filled, "other").id != first.id
    perform(filled, first.id, Memory().worker())
    assert composition(filled).id == first.id
    assert jobs.get(filled, first.id).status == "done"


def test_a_job_that_is_taken_twice_runs_once(filled: Context) -> None:
    job = composition(filled)
    for _ in range(2):
        perform(filled, job.id, Memory().worker())
    done = jobs.get(filled, job.id)
    assert (done.status, done.attempts, run_records(filled)) == ("done", 1, 1)


def test_a_job_composes_what_was_admitted_whatever_its_names_mean_later(filled: Context, tmp_path: Path) -> None:
    job = composition(filled)
    adding.add_adapter(filled, tiny.write_adapter(tmp_path / "newer", 9), "tiny", "one")
    perform(filled, job.id, Memory().worker())
    result = jobs.get(filled, job.id).result
    assert result is not None
    with filled.database.reading() as reader:
        shown = resolve.digest_of(reader, "merged@1")
    assert result["composition"] == shown
    again = composition(filled, first="one@1")
    assert again.id == job.id


def test_a_job_called_off_before_it_stores_leaves_nothing(filled: Context) -> None:
    job = composition(filled)

    def call_off() -> bool:
        if jobs.get(filled, job.id).status == "running":
            jobs.cancel(filled, job.id)
        return False

    perform(filled, job.id, Memory().worker(call_off))
    assert jobs.get(filled, job.id).status == "cancelled"
    assert run_records(filled) == 0
    with filled.database.reading() as reader, pytest.raises(NotFoundError):
        resolve.digest_of(reader, "merged")
    assert composition(filled).id != job.id


def test_a_conversion_called_off_while_it_computes_is_undone(filled: Context) -> None:
    job = jobs.submit_conversion(filled, "one", Wish("balanced", name="even"))

    class Late:
        """A composer during whose work the job is called off."""

        def __getattr__(self, name: str) -> Any:
            if name == "convert":
                jobs.cancel(filled, job.id)
            return getattr(filled.composer, name)

    perform(replace(filled, composer=Late()), job.id, Memory().worker())
    assert jobs.get(filled, job.id).status == "cancelled"
    with filled.database.reading() as reader, pytest.raises(NotFoundError):
        resolve.digest_of(reader, "even")


def test_a_leaving_worker_hands_its_job_back_and_the_attempt_does_not_count(filled: Context) -> None:
    job = composition(filled)
    with pytest.raises(HandedBack):
        perform(filled, job.id, Memory().worker(lambda: True))
    left = jobs.get(filled, job.id)
    assert (left.status, left.attempts, left.worker) == ("queued", 0, None)
    perform(filled, job.id, Memory().worker())
    assert jobs.get(filled, job.id).status == "done"


def test_a_job_that_kills_its_workers_is_given_up(filled: Context) -> None:
    job = jobs.submit_export(filled, "one", Form("base", "dense"))
    for _ in range(5):
        with pytest.raises(Died):
            perform(filled, job.id, Memory(mortal=0).worker())
    assert jobs.get(filled, job.id).status == "running"
    perform(filled, job.id, Memory().worker())
    ended = jobs.get(filled, job.id)
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error["code"], ended.error["type"]) == ("JOB_GIVEN_UP", "urn:adapter-registry:internal")


def test_a_refusal_fails_the_job_with_its_class_and_frees_the_question(filled: Context) -> None:
    wish = Wish("rebase", base="tiny@1", name="moved")
    taken = jobs.submit_conversion(filled, "one", Wish("balanced", name="moved"))
    perform(filled, taken.id, Memory().worker())
    job = jobs.submit_conversion(filled, "one", wish)
    perform(filled, job.id, Memory().worker())
    ended = jobs.get(filled, job.id)
    assert ended.error is not None
    assert (ended.error["code"], ended.error["type"]) == ("NAME_TAKEN_BY_KIND", "urn:adapter-registry:conflict")
    assert jobs.submit_conversion(filled, "one", wish).id != job.id


def test_a_dense_release_goes_on_with_the_files_that_are_missing(filled: Context) -> None:
    job = jobs.submit_export(filled, "one", Form("base", "dense"))
    memory = Memory(mortal=3)
    with pytest.raises(Died):
        perform(filled, job.id, memory.worker())
    before = list(memory.made)
    memory.mortal = None
    perform(filled, job.id, memory.worker())
    assert len(before) == 3
    assert len(memory.made) == len(set(memory.made)) == len(memory.said)
    whole = jobs.get(filled, job.id)
    assert (whole.status, whole.attempts) == ("done", 2)
    assert whole.result is not None
    again = Memory()
    other = jobs.submit_export(filled, "one", Form("elsewhere", "dense"))
    perform(filled, other.id, again.worker())
    uncut = jobs.get(filled, other.id).result
    assert uncut is not None
    files = [
        {file.path: file.blob for file in validate(Exported, made).files if file.path != "registry.json"}
        for made in (whole.result, uncut)
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize("profile", ["peft", "plain-lora", "dense"])
def test_every_file_of_an_export_is_a_blob(filled: Context, profile: Any) -> None:
    job = jobs.submit_export(filled, "one", Form("base", profile))
    perform(filled, job.id, Memory().worker())
    done = jobs.get(filled, job.id)
    assert done.result is not None, done.error
    made = validate(Exported, done.result)
    assert made.files[-1].path == "registry.json"
    assert made.directory == f"one@1-{made.adapter.removeprefix('blake3:')[:8]}"
    for file in made.files:
        assert filled.store.verify(file.blob).size == file.size


def test_an_export_whose_files_were_collected_is_made_anew(filled: Context) -> None:
    first = jobs.submit_export(filled, "one", Form("base"))
    perform(filled, first.id, Memory().worker())
    assert jobs.submit_export(filled, "one", Form("base")).id == first.id
    retire.gc(filled, 0.0)
    again = jobs.submit_export(filled, "one", Form("base"))
    assert again.id != first.id
    perform(filled, again.id, Memory().worker())
    assert jobs.get(filled, again.id).status == "done"


def test_the_job_of_another_is_cancelled_by_an_administrator_only(filled: Context) -> None:
    job = composition(filled)
    other = replace(filled, principal="other", grants=Grants((Scope("compose"),)))
    with pytest.raises(NotAllowedError):
        jobs.cancel(other, job.id)
    admin = replace(filled, principal="root", grants=Grants((Scope("admin"),)))
    assert jobs.cancel(admin, job.id).status == "cancelled"


def test_a_page_of_jobs_names_them_without_their_results(filled: Context) -> None:
    made = [composition(filled, name) for name in ("a", "b", "c")]
    perform(filled, made[0].id, Memory().worker())
    first = jobs.ls(filled, limit=2)
    rest = jobs.ls(filled, after=first.next, limit=2)
    assert [job.id for job in (*first.items, *rest.items)] == [job.id for job in reversed(made)]
    assert rest.next is None
    done = jobs.ls(filled, "done").items
    assert [(job.id, job.result) for job in done] == [(made[0].id, None)]
