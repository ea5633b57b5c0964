"""Processes that die in the middle of a job: it is finished by another, once."""

from __future__ import annotations

import signal
import time

import pytest

from tests.registry.jobs import large
from tests.registry.jobs.shop import Shop, midway, small_spec
from tests.support.house import assert_whole

WITHIN_S = 60.0


def test_a_job_of_a_killed_worker_is_finished_by_another_within_a_minute(shop: Shop) -> None:
    job = shop.submit(large.spec())
    assert shop.submit(large.spec()).id == job.id
    with shop.worker() as first:
        taken = shop.until(job.id, midway)
        with shop.worker():
            first.kill()
            killed = time.monotonic()
            again = shop.until(job.id, lambda seen: seen.worker != taken.worker, WITHIN_S)
            noticed = time.monotonic() - killed
            done = shop.until(job.id, lambda seen: not seen.open, WITHIN_S)
            print(f"noticed after {noticed:.1f} s, finished after {time.monotonic() - killed:.1f} s")
    assert (again.attempts, done.status, done.attempts) == (2, "done", 2), done
    assert shop.counts() == (1, 1)
    with shop.open() as registry:
        assert done.result is not None
        assert registry.show("merged").digest == done.result["composition"]
        assert_whole(registry)


@pytest.mark.long
def test_a_job_of_a_killed_server_is_finished_when_it_is_back(shop: Shop) -> None:
    with shop.open() as registry:
        token = registry.create_token("ci", ("read", "compose")).secret
    with shop.server() as server:
        asked = server.ask("POST", "/v1/compositions", token=token, body=large.spec())
        assert asked.status == 202, asked
        job_id = asked.json()["id"]
        shop.until(job_id, midway)
        server.kill()
    assert shop.job(job_id).status == "running"
    with shop.server() as server:
        again = server.ask("POST", "/v1/compositions", token=token, body=large.spec())
        assert again.json()["id"] == job_id
        done = shop.until(job_id, lambda seen: not seen.open, WITHIN_S)
    assert (done.status, done.attempts) == ("done", 2), done
    assert shop.counts() == (1, 1)
    with shop.open() as registry:
        assert_whole(registry)


@pytest.mark.long
def test_a_worker_that_is_asked_to_stop_loses_nothing(shop: Shop) -> None:
    job = shop.submit(large.spec())
    with shop.worker() as first:
        shop.until(job.id, midway)
        assert first.ask_to_stop() == 0, first.log.read_text(encoding="utf-8")
    left = shop.job(job.id)
    assert (left.status, left.attempts) in {("done", 1), ("queued", 0)}
    with shop.worker():
        done = shop.until(job.id, lambda seen: not seen.open, WITHIN_S)
    assert (done.status, done.attempts) == ("done", 1)
    assert shop.counts() == (1, 1)


@pytest.mark.long
def test_a_job_of_a_frozen_worker_is_finished_once_though_it_wakes(shop: Shop) -> None:
    job = shop.submit(large.spec())
    with shop.worker() as first, shop.worker() as second:
        taken = shop.until(job.id, midway)
        frozen, other = (first, second) if str(first.handle.pid) in str(taken.worker) else (second, first)
        frozen.handle.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        again = shop.until(job.id, lambda seen: seen.worker != taken.worker, WITHIN_S)
        print(f"taken over after {time.monotonic() - began:.1f} s")
        frozen.handle.send_signal(signal.SIGCONT)
        done = shop.until(job.id, lambda seen: not seen.open)
        assert (again.attempts, done.status, done.attempts, done.worker) == (2, "done", 2, again.worker), done
        for seed, busy in enumerate((other, frozen), 3):
            later = shop.submit(small_spec(f"later-{seed}", 1 / seed))
            assert shop.until(later.id, lambda seen: not seen.open).status == "done"
            busy.kill()
    assert shop.counts() == (3, 3)
    with shop.open() as registry:
        assert_whole(registry)
