"""What a server tells of a job while it runs, and that a job called off stops soon and leaves nothing."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from registry.errors import NotFoundError
from tests.registry.jobs import large
from tests.registry.jobs.shop import Shop, midway
from tests.support.house import assert_whole
from tests.support.served import Served


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: str
    name: str
    job: dict[str, Any]


def events(server: Served, job_id: str, token: str, last: str | None = None) -> Iterator[Event]:
    """The stream of a job as it arrives."""
    headers = {"Authorization": f"Bearer {token}"} | ({} if last is None else {"Last-Event-ID": last})
    with closing(http.client.HTTPConnection(*server.address, timeout=120)) as connection:
        connection.request("GET", f"/v1/jobs/{job_id}/events", headers=headers)
        answer = connection.getresponse()
        assert answer.getheader("Content-Type", "").startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "event" in fields:
                yield Event(fields["id"], fields["event"], json.loads(fields["data"]))
                fields = {}


def done_modules(event: Event) -> int:
    """How many modules an event says are done."""
    progress = event.job["progress"]
    return 0 if progress is None else int(progress["done"])


def test_a_stream_tells_progress_in_order_goes_on_where_it_broke_and_ends(shop: Shop) -> None:
    with shop.open() as registry:
        token = registry.create_token("ci", ("read", "compose")).secret
    with shop.server() as server:
        job_id = server.ask("POST", "/v1/compositions", token=token, body=large.spec()).json()["id"]
        first = []
        for event in events(server, job_id, token):
            first.append(event)
            if done_modules(event):
                break
        rest = list(events(server, job_id, token, first[-1].id))
        told = [*first, *rest]
        assert [event.id for event in told] == sorted({event.id for event in told})
        counts = [done_modules(event) for event in told]
        assert counts == sorted(counts)
        assert {event.name for event in told[:-1]} == {"progress"}
        assert (told[-1].name, told[-1].job["status"]) == ("done", "done")
        assert told[-1].job["result"]["name"] == "merged"
        path = f"/v1/jobs/{job_id}/events"
        assert server.ask("GET", path, token=token, headers={"Last-Event-ID": told[-1].id}).status == 204
        assert [event.name for event in events(server, job_id, token)] == ["done"]
        assert server.ask("GET", "/v1/jobs/none/events", token=token).status == 404


@pytest.mark.long
def test_a_job_called_off_stops_soon_and_leaves_nothing(shop: Shop) -> None:
    with shop.open() as registry:
        token = registry.create_token("ci", ("read", "compose")).secret
    with shop.server() as server:
        job_id = server.ask("POST", "/v1/compositions", token=token, body=large.spec()).json()["id"]
        shop.until(job_id, midway)
        cancelled = server.ask("DELETE", f"/v1/jobs/{job_id}", token=token)
        assert (cancelled.status, cancelled.json()["status"]) == (200, "cancelled")
        off = time.monotonic()
        assert [event.name for event in events(server, job_id, token)] == ["cancelled"]
        after = server.ask("POST", "/v1/compositions", token=token, body=large.spec("after", 0.4)).json()["id"]
        shop.until(after, lambda seen: seen.status == "running")
        print(f"the next job began after {time.monotonic() - off:.1f} s")
        shop.until(after, lambda seen: seen.status == "done")
        assert server.ask("DELETE", f"/v1/jobs/{after}", token=token).json()["status"] == "done"
    assert shop.counts() == (1, 1)
    with shop.open() as registry:
        with pytest.raises(NotFoundError):
            registry.show("merged")
        assert_whole(registry)
