"""Leases and draining: exact versions, the database's clock, expired never drained, 32 replicas (R 0x08G, 0x09G)."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from registry.client import EmbeddedRegistry
from registry.db import Database
from registry.db.rows import LeaseRow
from registry.db.session import stamp
from registry.errors import ConflictError, NotFoundError, UsageProblemError
from registry.service import leases
from registry.service.results import DrainView, Lease
from tests.routed.conftest import Api, Run
from tests.support import tiny

REPLICAS = 32


def states(view: DrainView) -> list[tuple[int, str, int, int]]:
    """Each generation with its state and counts."""
    return [(item.generation, item.state, item.held, item.expired) for item in view.generations]


def test_new_work_binds_the_newest_generation_and_older_ones_drain(registry: EmbeddedRegistry) -> None:
    first = registry.publish("bot", ["one", "two"])
    old = [registry.acquire_lease("bot", f"replica-{number}") for number in range(2)]
    registry.publish("bot", ["three"])
    new = registry.acquire_lease("bot", "replica-0")
    assert [lease.generation for lease in (*old, new)] == [1, 1, 2]
    assert old[0].artifacts == first.artifacts
    assert states(registry.drain("bot")) == [(1, "draining", 2, 0), (2, "live", 1, 0)]
    assert registry.renew_lease(old[0].id).generation == 1
    registry.release_lease(old[0].id)
    assert states(registry.drain("bot")) == [(1, "draining", 1, 0), (2, "live", 1, 0)]
    registry.release_lease(old[1].id)
    assert states(registry.drain("bot")) == [(2, "live", 1, 0)]


def test_an_expired_lease_is_expired_for_good_and_never_drained(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["one"])
    lost = registry.acquire_lease("bot", "lost", 1.0)
    kept = registry.acquire_lease("bot", "kept", 60.0)
    registry.publish("bot", ["two"])
    time.sleep(1.2)
    assert states(registry.drain("bot"))[0] == (1, "draining", 1, 1)
    registry.release_lease(kept.id)
    for late in (registry.release_lease, registry.renew_lease):
        with pytest.raises(ConflictError) as caught:
            late(lost.id)
        assert caught.value.code == "LEASE_EXPIRED"
    assert states(registry.drain("bot")) == [(1, "expired", 0, 1), (2, "live", 0, 0)]
    assert [(lease.holder, lease.held) for lease in registry.drain("bot").leases] == [("lost", False)]


def test_nothing_is_purged_that_a_replica_still_serves_from_an_older_generation(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["one"])
    lease = registry.acquire_lease("bot", "replica", 60.0)
    registry.publish("bot", ["two"])
    with pytest.raises(ConflictError) as caught:
        registry.purge("one", "wrong data")
    assert caught.value.code == "STILL_LEASED"
    assert caught.value.problems[0].observed == "bot@g1 by replica"
    registry.release_lease(lease.id)
    assert registry.purge("one", "wrong data").reason == "wrong data"


@pytest.mark.parametrize("days", [-400, 400])
def test_a_replica_whose_clock_jumps_changes_nothing(registry: EmbeddedRegistry, days: int) -> None:
    registry.publish("bot", ["one"])
    registry.acquire_lease("bot", "steady", 60.0)
    url = registry.context.database.url
    with Database(url, clock=lambda: datetime.now(UTC) + timedelta(days=days)) as jumped:
        context = replace(registry.context, database=jumped)
        lease = leases.acquire(context, "bot", "jumping", 60.0)
        assert abs(datetime.fromisoformat(lease.acquired) - datetime.now(UTC)) < timedelta(minutes=1)
        assert states(leases.drain(context, "bot")) == [(1, "live", 2, 0)]
    assert states(registry.drain("bot")) == [(1, "live", 2, 0)]


def test_a_database_clock_set_back_brings_no_expired_lease_to_life(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["one"])
    early = registry.acquire_lease("bot", "early", 60.0)
    ahead = datetime.now(UTC) + timedelta(hours=1)
    row = LeaseRow(
        id="taken-while-the-clock-was-ahead",
        channel="bot",
        number=1,
        holder="late",
        created=stamp(ahead),
        expires=stamp(ahead + timedelta(minutes=1)),
    )
    registry.context.database.change("test", "tester", lambda change: change.insert(row))
    assert states(registry.drain("bot")) == [(1, "live", 1, 1)]
    with pytest.raises(ConflictError):
        registry.renew_lease(early.id)


def test_thirty_two_replicas_take_renew_and_release_while_a_channel_moves(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["one"])

    def work(number: int) -> Lease:
        taken = registry.acquire_lease("bot", f"replica-{number}", 60.0)
        return registry.renew_lease(taken.id, 120.0)

    with ThreadPoolExecutor(REPLICAS) as pool:
        running = [pool.submit(work, number) for number in range(REPLICAS)]
        registry.publish("bot", ["two"])
        taken = [job.result() for job in running]
        assert len({lease.id for lease in taken}) == REPLICAS
        view = registry.drain("bot")
        assert sum(item.held for item in view.generations) == REPLICAS
        assert {lease.generation for lease in taken} <= {1, 2}
        list(pool.map(lambda lease: registry.release_lease(lease.id), taken))
    assert states(registry.drain("bot")) == [(2, "live", 0, 0)]
    assert registry.verify().clean


@pytest.mark.parametrize(("holder", "ttl"), [("", 60.0), ("x" * 129, 60.0), ("x", 0.5), ("x", 90_000.0)])
def test_a_lease_has_a_holder_and_a_bounded_time(registry: EmbeddedRegistry, holder: str, ttl: float) -> None:
    registry.publish("bot", ["one"])
    with pytest.raises(UsageProblemError) as caught:
        registry.acquire_lease("bot", holder, ttl)
    assert caught.value.code == "LEASE_INVALID"
    with pytest.raises(NotFoundError):
        registry.acquire_lease("nobody", "x")


def test_a_replica_finds_its_own_leases_on_every_channel(registry: EmbeddedRegistry, api: Api) -> None:
    for channel in ("bot", "aide"):
        registry.publish(channel, ["one"])
    lost = registry.acquire_lease("aide", "mine", 1.0)
    first = registry.acquire_lease("bot", "mine", 60.0)
    registry.acquire_lease("bot", "other", 60.0)
    registry.publish("bot", ["two"])
    second, gone = (registry.acquire_lease("bot", "mine", 60.0) for _ in range(2))
    registry.release_lease(gone.id)
    time.sleep(1.2)
    answer = api.get("/v1/leases?holder=mine")
    assert answer.status_code == 200
    assert [(lease["id"], lease["generation"], lease["held"]) for lease in answer.json()] == [
        (lost.id, 1, False),
        (first.id, 1, True),
        (second.id, 2, True),
    ]
    assert registry.leases_of("nobody") == ()
    assert api.get("/v1/leases").status_code in (400, 422)


def test_leases_by_command_and_by_request(run: Run, api: Api, tmp_path: Path) -> None:
    run("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    run("add", "adapter", tiny.write_adapter(tmp_path / "cli"), "--base", "tiny", "--name", "one")
    run("publish", "bot", "one")
    taken = json.loads(run("lease", "acquire", "bot", "--holder", "a", "--ttl", "30", "-o", "json").stdout)
    assert "held until" in run("lease", "renew", taken["id"]).stdout
    assert "live" in run("lease", "ls", "bot").stdout
    assert json.loads(run("lease", "ls", "bot", "-o", "json").stdout)["leases"][0]["holder"] == "a"
    assert run("lease", "release", taken["id"]).stdout.startswith(taken["id"])
    run("lease", "release", taken["id"], code=4)
    assert '"request_fields"' in run("kv-identity", "bot", "-o", "json").stdout
    assert "the server adds: token_prefix" in run("kv-identity", "bot", "--generation", "g1").stdout
    api.post("/v1/channels/bot/generations", json={"refs": ["one"]}, headers={"If-Match": '"g0"'})
    made = api.post("/v1/channels/bot/leases", json={"holder": "a"})
    assert (made.status_code, made.json()["generation"]) == (201, 1)
    assert api.put(f"/v1/leases/{made.json()['id']}", json={"ttl_s": 90}).json()["held"]
    assert api.get("/v1/channels/bot/leases").json()["generations"][0]["held"] == 1
    assert not api.delete(f"/v1/leases/{made.json()['id']}").json()["held"]
    assert api.delete(f"/v1/leases/{made.json()['id']}").status_code == 404
