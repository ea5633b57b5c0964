"""`registry serve`: addresses, processes, limits, an orderly end; health, figures and logs of a real server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from urllib.request import urlopen

import pytest

from tests.registry.ops.conftest import Place
from tests.support.ports import free_port
from tests.support.served import Served
from tests.support.warmed import Warmed

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""Where the database makes no difference."""
ON_POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
IDLE = 500
"""Connections that say nothing; the campaign takes thousands."""


def figure(server: Served, name: str) -> float:
    """The sum of one figure over its labels."""
    text = server.ask("GET", "/metrics").body.decode()
    found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    assert found, name
    return sum(map(float, found))


def answering(server: Served) -> set[int]:
    """The processes that have answered a request."""
    return {event["process"] for event in server.events() if event["event"] == "request"}


def both_answer(server: Served, place: Place) -> bool:
    """Whether both processes of a server have, once one more request is answered."""
    server.ask("GET", "/v1/refs/one", token=place.token)
    return len(answering(server)) == 2


def refused(place: Place, *options: str) -> tuple[int, str]:
    """Exit code and message of a server that does not start."""
    done = Warmed().run(["serve", *options], {**place.environment, "NO_COLOR": "1"}, place.folder)
    assert done.exit is not None
    return done.exit, done.err


def test_a_server_says_where_it_is_ready_and_what_it_did(place: Place) -> None:
    with place.server() as server:
        ready = server.ask("GET", "/readyz")
        assert (ready.status, ready.json()["status"]) == (200, "ready"), ready
        secret = "areg_" + "s" * 43
        for token in (place.token, secret):
            server.ask("GET", f"/v1/refs/one?token={secret}", token=token, headers={"X-Request-Id": "mine"})
        assert server.ask("GET", "/v1/refs/one").status == 401
        server.ask("BREW", f"/v1/{secret}", token=secret)
        assert figure(server, "registry_generations") == 0
        assert figure(server, "registry_requests_in_flight") == 1
        text = server.ask("GET", "/metrics").body.decode()
        assert 'registry_requests_total{method="GET",route="/v1/refs/{ref}",status="200"} 1.0' in text
        assert 'registry_requests_total{method="GET",route="/v1/refs/{ref}",status="401"} 2.0' in text
        assert 'registry_jobs{state="queued"} 0.0' in text
        assert secret not in text
        assert server.terminate() == 0
        told = [event for event in server.events() if event["event"] == "request" and event["request_id"] == "mine"]
        assert [(event["principal"], event["status"]) for event in told] == [("ci", 200), (None, 401)]
        assert {event["route"] for event in told} == {"/v1/refs/{ref}"}
        assert all(event["ms"] > 0 for event in told)
        assert secret not in server.log_text()
        assert place.token not in server.log_text()


def test_several_processes_need_postgresql_and_answer_as_one(place: Place) -> None:
    if not place.shared:
        code, said = refused(place, "--workers", "2", "--port", "0", "--no-jobs")
        assert (code, "PROCESSES_NEED_POSTGRESQL" in said, "PostgreSQL" in said) == (2, True, True)
        return
    with place.server("--workers", "2") as server:
        asked = 0

        def both() -> bool:
            nonlocal asked
            asked += 1
            return both_answer(server, place)

        server.until(both)
        series = 'registry_requests_total{method="GET",route="/v1/refs/{ref}",status="200"}'
        assert f"{series} {asked}.0" in server.ask("GET", "/metrics").body.decode()
        assert server.terminate() == 0


@ON_SQLITE
def test_a_taken_port_is_refused_in_words(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = refused(place, "--port", str(taken.getsockname()[1]), "--no-jobs")
    assert (code, "ADDRESS_UNAVAILABLE" in said) == (8, True)


@ON_SQLITE
def test_reads_are_open_only_when_the_operator_says_so(place: Place) -> None:
    with place.server("--open-reads") as opened:
        assert opened.ask("GET", "/v1/refs/one").status == 200
        denied = opened.ask("POST", "/v1/tokens", body={"principal": "x", "allow": ["admin"]})
        assert (denied.status, denied.json()["code"]) == (401, "TOKEN_MISSING")


def half_sent(server: Served, place: Place, body: bytes) -> socket.socket:
    """A publication of which all but the last byte is sent."""
    made = socket.create_connection(server.address, timeout=60)
    lines = [
        "POST /v1/channels/bot/generations HTTP/1.1", "Host: x", f"Authorization: Bearer {place.token}",
        'If-Match: "g0"', "Content-Type: application/json", f"Content-Length: {len(body)}", "", "",
    ]  # fmt: skip
    made.sendall("\r\n".join(lines).encode() + body[:-1])
    time.sleep(0.5)
    return made


@ON_SQLITE
def test_a_server_that_is_told_to_end_finishes_what_it_has_begun(place: Place) -> None:
    body = json.dumps({"refs": ["one"]}).encode()
    with place.server() as server, half_sent(server, place, body) as connection:
        asked = server.ask("POST", "/v1/conversions", token=place.token, body={"ref": "one", "rule": "balanced"})
        stream = http.client.HTTPConnection(*server.address, timeout=20)
        stream.request("GET", f"{asked.headers['location']}/events", headers={"Authorization": f"Bearer {place.token}"})
        events = stream.getresponse()
        assert events.readline().startswith(b"id: ")
        ending = threading.Thread(target=server.terminate)
        ending.start()
        server.until(lambda: not listens(server))
        assert events.read().endswith(b"\n\n")  # a stream without an end has ended, long before the grace has
        stream.close()
        connection.sendall(body[-1:])
        assert connection.recv(4096).startswith(b"HTTP/1.1 201")
        ending.join(30)
        assert not ending.is_alive()
    place.assert_whole()


@ON_SQLITE
def test_a_request_that_never_ends_does_not_keep_a_server_from_ending(place: Place) -> None:
    with place.server("--grace", "1") as server, half_sent(server, place, b'{"refs": ["one"]}'):
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 15


def listens(server: Served) -> bool:
    """Whether new connections are taken."""
    try:
        socket.create_connection(server.address, timeout=1).close()
    except OSError:
        return False
    return True


@ON_SQLITE
@pytest.mark.parametrize(
    "count", [pytest.param(IDLE, id="sample"), pytest.param(4000, id="long", marks=pytest.mark.long)]
)
def test_idle_connections_starve_nobody(place: Place, count: int) -> None:
    with place.server() as server, ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(socket.create_connection(server.address, timeout=30))
            if number % 2:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        for _ in range(5):
            began = time.monotonic()
            assert server.ask("GET", "/v1/refs/one", token=place.token).status == 200
            assert time.monotonic() - began < 5


@ON_SQLITE
def test_a_head_that_is_too_long_is_refused_and_others_are_served(place: Place) -> None:
    with place.server() as server:
        try:
            answer = server.ask("GET", "/healthz", headers={"X-Long": "x" * 100_000}).status
        except (OSError, http.client.HTTPException):
            answer = 400  # it was cut off while sending
        assert answer == 400
        assert server.ask("GET", "/healthz").status == 200


@ON_POSTGRESQL
def test_a_process_that_dies_is_replaced(place: Place) -> None:
    with place.server("--workers", "2") as server:
        # one that is still starting is not missed for a minute, the time that a start may take
        server.until(lambda: both_answer(server, place))
        os.kill(min(answering(server)), signal.SIGKILL)
        server.until(lambda: sum("died" in event["event"] for event in server.events()) == 1)
        for _ in range(10):
            server.until(lambda: server.ask("GET", "/readyz").status == 200)
        assert figure(server, "registry_requests_in_flight") == 1
        os.kill(server.pid, signal.SIGKILL)
        server.until(lambda: not listens(server))


@ON_SQLITE
def test_a_port_of_ones_own_choice_is_listened_on(place: Place) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "registry.app", "serve", "--port", str(port), "--no-jobs"],
        env={**place.environment, "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"http://127.0.0.1:{port}\n"
    with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
        assert answer.status == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    process.stdout.close()
