"""Many jobs, several servers and workers on one PostgreSQL, some of which die: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.registry.jobs.shop import Shop, small_spec
from tests.support.house import assert_whole

JOBS = 30


@pytest.mark.long
def test_two_servers_and_three_workers_of_which_two_die_do_every_job_once(shared_shop: Shop) -> None:
    shop = shared_shop
    with shop.open() as registry:
        token = registry.create_token("ci", ("read", "compose")).secret
    with (
        shop.server() as one,
        shop.server("--no-jobs") as two,
        shop.worker() as first,
        shop.worker() as second,
        shop.worker() as third,
    ):
        for worker in (first, second, third):
            worker.ready()
        ids = []
        for number in range(JOBS):
            body = small_spec(f"merged-{number}", 0.5 + number / 64)
            answers = [server.ask("POST", "/v1/compositions", token=token, body=body) for server in (one, two)]
            assert {answer.status for answer in answers} == {202}
            assert len({answer.json()["id"] for answer in answers}) == 1
            ids.append(answers[0].json()["id"])
        shop.until(ids[JOBS // 3], lambda seen: seen.status == "done")
        first.kill()
        second.kill()
        ended = [shop.until(job_id, lambda seen: not seen.open) for job_id in ids]
    assert {job.status for job in ended} == {"done"}
    assert shop.counts() == (JOBS, JOBS)
    print(Counter(job.worker for job in ended), Counter(job.attempts for job in ended))
    with shop.open() as registry:
        for number in range(JOBS):
            assert registry.show(f"merged-{number}").refs[0].startswith(f"merged-{number}@1")
        assert_whole(registry)
