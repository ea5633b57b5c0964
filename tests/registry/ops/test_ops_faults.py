"""Real servers under faults: store away, database cut, killed; nothing lost, nothing half visible, a retry succeeds."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from tests.registry.ops.conftest import Place
from tests.support.served import Answer, Served

LONG = pytest.mark.long
ON_POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
"""Where there is a connection to cut, and where several servers share a database."""
NO_ANSWER = (OSError, http.client.HTTPException)


def head(server: Served, place: Place, channel: str) -> tuple[int, set[str]]:
    """The number of the live generation, and the reasons of every generation."""
    found = server.ask("GET", f"/v1/channels/{channel}/generations?limit=500", token=place.token)
    if found.status == 404:
        return 0, set()
    assert found.status == 200, found
    return int(found.headers["etag"].strip('"g')), {item["reason"] for item in _items(found)}


def _items(found: Answer) -> list[dict[str, str]]:
    body = found.json()
    items: list[dict[str, str]] = body["items"] if isinstance(body, dict) else body
    return items


def publish_once(server: Served, place: Place, channel: str, reason: str, expect: int) -> Answer:
    """One attempt."""
    return server.ask(
        "POST",
        f"/v1/channels/{channel}/generations",
        token=place.token,
        body={"refs": ["one"], "reason": reason},
        headers={"If-Match": f'"g{expect}"'},
    )


@dataclass
class Publisher:
    """Publishes under one reason after another, each until it is known to be there; whom it asks may change."""

    place: Place
    channel: str
    name: str
    servers: Callable[[], list[Served]]
    arrived: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Publish until told to stop; the one that is begun is finished."""
        number = 0
        while not self.stop.is_set():
            self._arrive(f"{self.name}-{number}")
            number += 1

    def _arrive(self, reason: str) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(*NO_ANSWER):
                server = random.choice(self.servers())
                number, reasons = head(server, self.place, self.channel)
                if reason in reasons:
                    self.arrived.append(reason)
                    return
                answer = publish_once(server, self.place, self.channel, reason, number)
                self.met[str(answer.status)] += 1
                assert answer.status in (201, 412, 503), answer
                assert answer.status != 503 or answer.headers["retry-after"] == "1"
                continue
            self.met["none"] += 1
            time.sleep(0.1)
        raise AssertionError(f"{reason} did not arrive: {self.met}")


@contextmanager
def publishing(place: Place, names: list[str], servers: Callable[[], list[Served]]) -> Iterator[list[Publisher]]:
    """Publishers on one channel, at work; at the end every one of theirs is there once and none is half there."""
    made = [Publisher(place, "bot", name, servers) for name in names]
    failed: list[BaseException] = []

    def run(publisher: Publisher) -> None:
        try:
            publisher.run()
        except BaseException as error:  # noqa: BLE001 - raised again by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in made]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for each in made:
            each.stop.set()
        for thread in threads:
            thread.join()
    assert failed == []
    with place.open() as registry:
        reasons = [item.reason for item in registry.history("bot", limit=1000)]
    assert sorted(reasons) == sorted(reason for each in made for reason in each.arrived)
    assert all(each.arrived for each in made)
    place.assert_whole()


@pytest.mark.parametrize("away_s", [pytest.param(1.0, id="sample"), pytest.param(10.0, id="long", marks=LONG)])
def test_while_the_store_is_away_requests_say_so_and_afterwards_succeed(place: Place, away_s: float) -> None:
    directory = place.adapter("three", 3)
    fields = {"name": "three", "base": "tiny"}
    with place.server() as server:
        server.until(lambda: server.ask("GET", "/readyz").status == 200)
        place.cut_store()
        until = time.monotonic() + away_s
        while True:
            refused = (
                server.upload("/v1/adapters", directory, fields, place.token),
                publish_once(server, place, "bot", "release", 0),
            )
            for answer in refused:
                assert (answer.status, answer.json()["code"]) == (503, "STORE_UNAVAILABLE"), answer
                assert answer.headers["retry-after"] == "1"
            if time.monotonic() > until:
                break
        ready = server.ask("GET", "/readyz")
        assert (ready.status, ready.headers["retry-after"]) == (503, "1")
        parts = {part["name"]: part["ok"] for part in ready.json()["parts"]}
        assert parts == {"schema": True, "database": True, "store": False}
        assert server.ask("GET", "/healthz").status == 200
        assert server.ask("GET", "/v1/refs/one", token=place.token).status == 200
        assert server.ask("GET", "/v1/refs/three", token=place.token).status == 404
        place.mend_store()
        server.until(lambda: server.ask("GET", "/readyz").status == 200)
        assert server.upload("/v1/adapters", directory, fields, place.token).status == 201
        assert publish_once(server, place, "bot", "release", 0).status == 201
    place.assert_whole()


@ON_POSTGRESQL
@pytest.mark.parametrize("cuts", [pytest.param(2, id="sample"), pytest.param(40, id="long", marks=LONG)])
def test_a_cut_database_connection_loses_and_doubles_nothing(place: Place, cuts: int) -> None:
    with place.server() as server, publishing(place, ["a", "b"], lambda: [server]) as publishers:
        for _ in range(cuts):
            time.sleep(random.uniform(0.1, 0.5))
            place.cut_database()
        reached = [len(each.arrived) for each in publishers]
        server.until(lambda: all(len(each.arrived) > before for each, before in zip(publishers, reached, strict=True)))


@pytest.mark.parametrize("kills", [pytest.param(1, id="sample"), pytest.param(20, id="long", marks=LONG)])
def test_a_server_killed_while_publishing_loses_and_doubles_nothing(place: Place, kills: int) -> None:
    with ExitStack() as stack:
        running = [stack.enter_context(place.server())]
        with publishing(place, ["a", "b"], lambda: running) as publishers:
            for _ in range(kills):
                time.sleep(random.uniform(0.3, 1.0))
                running[0].kill()
                running[:] = [stack.enter_context(place.server())]
            reached = [len(each.arrived) for each in publishers]
            running[0].until(
                lambda: all(len(each.arrived) > before for each, before in zip(publishers, reached, strict=True))
            )


@ON_POSTGRESQL
@pytest.mark.parametrize("seconds", [pytest.param(1.0, id="sample"), pytest.param(30.0, id="long", marks=LONG)])
def test_two_servers_on_one_database_publish_in_turn_and_one_may_die(place: Place, seconds: float) -> None:
    with place.server() as first, place.server("--workers", "2") as second:
        running = [first, second]
        with publishing(place, ["a", "b", "c"], lambda: running) as publishers:
            time.sleep(seconds)
            first.kill()
            running[:] = [second]
            reached = [len(each.arrived) for each in publishers]
            second.until(
                lambda: all(len(each.arrived) > before for each, before in zip(publishers, reached, strict=True))
            )
    assert sum(each.met["412"] + each.met["none"] for each in publishers) > 0
