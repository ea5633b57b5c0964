"""Jobs, idempotency keys, uploads and leases: rows that come and go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import text

from registry.db import Change, Database, idempotency, jobs, leases, uploads, webhooks
from registry.db.rows import JobRow
from registry.db.session import stamp
from registry.errors import NotFoundError, RefusedError
from schemas.canonical import JsonObject
from tests.registry.db.examples import ME, digest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.moment = NOON

    def __call__(self) -> datetime:
        return self.moment

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.moment += timedelta(seconds=seconds)


def queue(database: Database, key: str) -> tuple[JobRow, bool]:
    """Queue a job."""
    return database.change("queue", ME, lambda change: jobs.insert(change, "compose", key, {"key": key}))


def test_one_live_job_a_key(database: Database) -> None:
    first, created = queue(database, "k")
    again, created_again = queue(database, "k")
    assert (created, created_again, again.id) == (True, False, first.id)
    database.change("done", ME, lambda change: jobs.finish(change, first, {"digest": "d"}))
    assert queue(database, "k")[1] is False
    other, _ = queue(database, "other")
    database.change("fail", ME, lambda change: jobs.fail(change, other, {"code": "X"}))
    assert queue(database, "other")[1] is True


def take(database: Database, job_id: str, worker: str) -> JobRow:
    """Take a job."""
    taken = database.change("start", ME, lambda change: jobs.start(change, job_id, worker))
    assert taken is not None
    return taken


def test_a_job_goes_from_queued_to_done(database: Database) -> None:
    job, _ = queue(database, "k")
    taken = take(database, job.id, "w1")
    assert (taken.status, taken.worker, taken.attempts) == ("running", "w1", 1)
    assert database.change("progress", ME, lambda change: jobs.progress(change, taken, {"done": 1}))
    assert database.change("finish", ME, lambda change: jobs.finish(change, taken, {"digest": "d"}))
    assert not database.change("finish", ME, lambda change: jobs.finish(change, taken, {"digest": "e"}))
    assert database.change("start", ME, lambda change: jobs.start(change, job.id, "w2")) is None
    with database.reading() as reader:
        found = jobs.get(reader, job.id)
        assert (found.status, found.result, found.progress) == ("done", {"digest": "d"}, {"done": 1})
        assert found.request == {"key": "k"}
        assert [row.id for row in jobs.page(reader, "done").items] == [job.id]


def test_an_attempt_that_was_handed_back_does_not_count(database: Database) -> None:
    job, _ = queue(database, "k")
    first = take(database, job.id, "w1")
    assert database.change("back", ME, lambda change: jobs.hand_back(change, first))
    taken = take(database, job.id, "w2")
    assert (taken.worker, taken.attempts) == ("w2", 1)


def test_a_worker_that_lost_its_job_changes_nothing_of_it(database: Database) -> None:
    job, _ = queue(database, "k")
    lost = take(database, job.id, "w1")
    for worker in ("w2", "w1"):
        holder = take(database, job.id, worker)
        assert not database.change("progress", ME, lambda change: jobs.progress(change, lost, {"done": 1}))
        assert not database.change("finish", ME, lambda change: jobs.finish(change, lost, {}))
        assert not database.change("fail", ME, lambda change: jobs.fail(change, lost, {}))
        assert not database.change("back", ME, lambda change: jobs.hand_back(change, lost))
    assert database.change("finish", ME, lambda change: jobs.finish(change, holder, {}))


def test_unfinished_jobs_are_the_running_and_the_oldest_queued_ones(database_url: str) -> None:
    clock = Clock()
    with Database(database_url, clock=clock) as database:
        order = []
        for key in "abcde":
            order.append(queue(database, key)[0])
            clock.forward(1)
        take(database, order[4].id, "w1")
        database.change("finish", ME, lambda change: jobs.finish(change, order[0], {}))
        with database.reading() as reader:
            assert [row.id for row in jobs.unfinished(reader, 2)] == [order[n].id for n in (4, 1, 2)]


def test_a_key_that_was_forgotten_is_free(database: Database) -> None:
    job, _ = queue(database, "k")
    database.change("forget", ME, lambda change: jobs.forget(change, job.id))
    assert queue(database, "k")[1] is False
    database.change("finish", ME, lambda change: jobs.finish(change, job, {}))
    database.change("forget", ME, lambda change: jobs.forget(change, job.id))
    assert queue(database, "k")[1] is True


def test_a_cancelled_job_is_not_finished(database: Database) -> None:
    job, _ = queue(database, "k")
    assert database.change("cancel", ME, lambda change: jobs.cancel(change, job.id)).status == "cancelled"
    assert not database.change("finish", ME, lambda change: jobs.finish(change, job, {}))
    with pytest.raises(NotFoundError) as caught:
        database.change("cancel", ME, lambda change: jobs.cancel(change, "none"))
    assert caught.value.code == "JOB_UNKNOWN"


def test_jobs_that_ended_before_a_time_are_those_that_may_be_removed(database_url: str) -> None:
    clock = Clock()
    with Database(database_url, clock=clock) as database:
        rows = {key: queue(database, key)[0] for key in ("done", "queued", "late", "off")}
        database.change("finish", ME, lambda change: jobs.finish(change, rows["done"], {}))
        database.change("cancel", ME, lambda change: jobs.cancel(change, rows["off"].id))
        clock.forward(60)
        with database.reading() as reader:
            moment = reader.now
        database.change("finish", ME, lambda change: jobs.finish(change, rows["late"], {}))
        with database.reading() as reader:
            found = jobs.ended(reader, moment, 9)
            assert set(found) == {rows["done"].id, rows["off"].id}
            assert len(jobs.ended(reader, moment, 1)) == 1
        database.change("remove", ME, lambda change: jobs.remove(change, found))
        with database.reading() as reader:
            assert {row.key for row in jobs.page(reader).items} == {"queued", "late"}


def test_messages_are_forgotten_once_they_were_settled_before_a_time(database_url: str) -> None:
    clock = Clock()
    with Database(database_url, clock=clock) as database:
        hook = database.change("hook", ME, lambda change: webhooks.add(change, "https://a.example", "", "s")).webhook
        for number in range(3):
            database.change("put", ME, partial(webhooks.put, channel="bot", number=number, body={}))
        for status in ("delivered", "waiting"):
            row = database.change("claim", ME, lambda change: webhooks.claim(change, 1.0))
            assert row is not None
            database.change("settle", ME, partial(webhooks.settle, row=row, status=status, answer="200"))
        with database.reading() as reader:
            assert len(webhooks.deliveries(reader, hook).items) == 3
            early = reader.now
        assert database.change("sweep", ME, lambda change: webhooks.sweep(change, early)) == 0
        clock.forward(60)
        assert database.change("sweep", ME, lambda change: webhooks.sweep(change, change.now)) == 1
        with database.reading() as reader:
            assert {row.status for row in webhooks.deliveries(reader, hook).items} == {"waiting"}


def test_working_rows_leave_no_history(database: Database) -> None:
    queue(database, "k")
    with database.reading() as reader:
        assert reader.session.scalar(text("SELECT count(*) FROM audit_event")) == 0


def test_the_same_request_under_a_key_gets_its_answer_and_another_is_refused(database: Database) -> None:
    answer: JsonObject = {"generation": 3}

    def put(request: str) -> None:
        database.change("put", ME, lambda change: idempotency.put(change, ME, "key", digest(request), answer))

    put("request")
    put("request")
    with database.reading() as reader:
        assert idempotency.check(reader, ME, "key", digest("request")) == answer
        assert idempotency.check(reader, "someone else", "key", digest("request")) is None
    with pytest.raises(RefusedError) as caught:
        put("another")
    assert caught.value.code == "IDEMPOTENCY_KEY_REUSED"


def test_old_idempotency_keys_are_swept(database_url: str) -> None:
    clock = Clock()

    def put(change: Change) -> None:
        idempotency.put(change, ME, f"key at {change.now}", digest("r"), {})

    with Database(database_url, clock=clock) as database:
        database.change("put", ME, put)
        clock.forward(60)
        database.change("put", ME, put)
        assert database.change("sweep", ME, lambda change: idempotency.sweep(change, stamp(NOON))) == 0
        limit = stamp(NOON + timedelta(seconds=1))
        assert database.change("sweep", ME, lambda change: idempotency.sweep(change, limit)) == 1


def test_an_upload_advances_until_it_expires_or_is_removed(database_url: str) -> None:
    clock = Clock()
    with Database(database_url, clock=clock) as database:
        until = stamp(NOON + timedelta(seconds=30))
        row = database.change("begin", ME, lambda c: uploads.create(c, expected=digest("f"), size=10, expires=until))
        assert database.change("go", ME, lambda c: uploads.advance(c, row.id, 4, until))
        with database.reading() as reader:
            assert uploads.get(reader, row.id).offset == 4
            again = uploads.begun(reader, ME, digest("f"), 10)
            assert again is not None
            assert again.id == row.id
            assert uploads.begun(reader, "another", digest("f"), 10) is None
            assert uploads.begun(reader, ME, digest("f"), 11) is None
            assert uploads.expired(reader, 10) == ()
        clock.forward(30)
        with database.reading() as reader:
            assert [item.id for item in uploads.expired(reader, 10)] == [row.id]
            assert uploads.begun(reader, ME, digest("f"), 10) is None
        database.change("end", ME, lambda c: uploads.remove(c, row.id))
        assert not database.change("go", ME, lambda c: uploads.advance(c, row.id, 8, until))
        with database.reading() as reader, pytest.raises(NotFoundError):
            uploads.get(reader, row.id)


def test_a_blob_is_claimed_by_whoever_brings_it_and_until_the_claim_expires(database_url: str) -> None:
    clock = Clock()
    with Database(database_url, clock=clock) as database:
        until = stamp(NOON + timedelta(seconds=30))
        wanted = [digest("f"), digest("g"), digest("h")]
        database.change("begin", ME, lambda c: uploads.create(c, expected=digest("f"), size=10, expires=until))
        row = database.change("begin", ME, lambda c: uploads.create(c, expected=None, size=None, expires=until))
        assert database.change("gc", ME, lambda c: uploads.claimed(c, wanted)) == {digest("f")}
        assert database.change("claim", ME, lambda c: uploads.claim(c, row.id, digest("g"), 7, until))
        assert database.change("gc", ME, lambda c: uploads.claimed(c, wanted)) == {digest("f"), digest("g")}
        clock.forward(30)
        assert database.change("gc", ME, lambda c: uploads.claimed(c, wanted)) == set()


def test_a_lease_is_held_until_it_is_released(database_url: str) -> None:
    with Database(database_url) as database:
        held = [
            database.change("lease", ME, partial(leases.acquire, channel="live", number=3, holder=holder, ttl_s=60.0))
            for holder in ("a", "b")
        ]
        assert database.change("release", ME, lambda c: leases.release(c, held[0].id)).holder == "a"
        with pytest.raises(NotFoundError) as caught:
            database.change("release", ME, lambda c: leases.release(c, held[0].id))
        assert caught.value.code == "LEASE_UNKNOWN"
        with database.reading() as reader:
            assert [(row.holder, holds) for row, holds in leases.of(reader, "live")] == [("b", True)]
