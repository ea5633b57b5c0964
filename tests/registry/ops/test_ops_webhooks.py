"""Webhooks: told after the commit, signed, sent by one at a time, tried again, and never into the own network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from registry.api.app import create_app
from registry.db import Database
from registry.db import webhooks as rows
from registry.errors import NotFoundError, StaleHeadError, UsageProblemError
from registry.service import add, publish, sender, tokens, webhooks
from registry.service.context import Context
from tests.support import tiny


@dataclass
class Heard:
    """A receiver: what came, and with which status it answers next."""

    url: str = ""
    status: int = 200
    location: str | None = None
    messages: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def heard() -> Iterator[Heard]:
    state = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.messages.append(({key.lower(): value for key, value in self.headers.items()}, body))
            self.send_response(state.status)
            if state.location is not None:
                self.send_header("Location", state.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/hook?a=b"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def filled(context: Context, tiny_base: Path, tmp_path: Path) -> Context:
    add.add_base(context, tiny_base, "tiny")
    add.add_adapter(context, tiny.write_adapter(tmp_path / "one", 1), "tiny", "one")
    return context


def send_all(context: Context, *, private: bool = True) -> int:
    """Send what is due now; how many."""
    count = 0
    while sender.send_next(context, private=private):
        count += 1
    return count


def test_a_generation_is_told_with_a_signature_that_the_secret_checks(filled: Context, heard: Heard) -> None:
    made = webhooks.add(filled, heard.url, "prod-")
    publish.publish(filled, "test-bot", ["one"])
    shown = publish.publish(filled, "prod-bot", ["one"], reason="hotfix")
    assert send_all(filled) == 1
    ((headers, body),) = heard.messages
    assert json.loads(body)["data"] == shown.document()
    assert json.loads(body)["type"] == "channel.generation"
    # the receiver's side, by the text of the Standard Webhooks specification
    key = base64.b64decode(made.secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    (delivery,) = webhooks.deliveries(filled, made.id).items
    assert (delivery.status, delivery.attempts, delivery.answer, delivery.generation) == ("delivered", 1, "200", 1)
    assert delivery.id == headers["webhook-id"]


def test_the_example_of_the_standard_has_the_signature_that_it_prints() -> None:
    """The test vector of the Standard Webhooks reference libraries."""
    secret, message, stamp = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert sender.signature(secret, message, stamp, b'{"test": 2432232314}') == expected


def test_a_publication_that_fails_tells_nothing(filled: Context, heard: Heard) -> None:
    webhooks.add(filled, heard.url)
    publish.publish(filled, "bot", ["one"])
    with pytest.raises(StaleHeadError):
        publish.publish(filled, "bot", ["one"], expect=0)
    assert send_all(filled) == 1


def test_a_rollback_is_told_too(filled: Context, heard: Heard, tmp_path: Path) -> None:
    add.add_adapter(filled, tiny.write_adapter(tmp_path / "two", 2), "tiny", "two")
    webhooks.add(filled, heard.url)
    publish.publish(filled, "bot", ["one"])
    publish.publish(filled, "bot", ["two"])
    publish.rollback(filled, "bot")
    assert send_all(filled) == 3
    assert sorted(json.loads(body)["data"]["generation"] for _, body in heard.messages) == [1, 2, 3]


def test_many_senders_send_each_message_once(filled: Context, heard: Heard) -> None:
    made = webhooks.add(filled, heard.url)
    for _ in range(8):
        publish.publish(filled, "bot", ["one"])
    threads = [threading.Thread(target=send_all, args=(filled,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({headers["webhook-id"] for headers, _ in heard.messages}) == len(heard.messages) == 8
    assert {item.status for item in webhooks.deliveries(filled, made.id).items} == {"delivered"}


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_what_does_not_arrive_is_tried_again_after_growing_waits_and_dies_at_last(
    filled: Context, heard: Heard
) -> None:
    clock = Clock()
    heard.status = 500
    with Database(filled.database.url, clock=clock) as database:
        later = Context(database, filled.store, filled.composer, "tester")
        made = webhooks.add(later, heard.url)
        publish.publish(later, "bot", ["one"])
        assert send_all(later) == 1
        for wait in sender.WAITS_S:
            assert send_all(later) == 0
            clock.pass_s(wait - 0.1)
            assert send_all(later) == 0
            clock.pass_s(0.2)
            assert send_all(later) == 1
        clock.pass_s(1e7)
        assert send_all(later) == 0
        (delivery,) = webhooks.deliveries(later, made.id).items
    assert (delivery.status, delivery.attempts, delivery.answer) == ("dead", len(sender.WAITS_S) + 1, "500")
    assert list(sender.WAITS_S) == sorted(sender.WAITS_S)
    assert len({headers["webhook-id"] for headers, _ in heard.messages}) == 1


def test_a_sender_that_died_leaves_its_message_to_another(filled: Context, heard: Heard) -> None:
    clock = Clock()
    with Database(filled.database.url, clock=clock) as database:
        later = Context(database, filled.store, filled.composer, "tester")
        webhooks.add(later, heard.url)
        publish.publish(later, "bot", ["one"])
        dead = database.change("claim", "x", partial(rows.claim, hold_s=sender.HOLD_S))
        assert dead is not None
        assert send_all(later) == 0
        clock.pass_s(sender.HOLD_S + 1)
        assert send_all(later) == 1
        # should the first one still live, it changes nothing any more
        late = partial(rows.settle, row=dead, status="dead", answer="late")
        assert database.change("settle", "x", late) is False


def test_a_receiver_that_is_gone_for_good_is_not_tried_again(filled: Context, heard: Heard) -> None:
    heard.status = 410
    made = webhooks.add(filled, heard.url)
    publish.publish(filled, "bot", ["one"])
    send_all(filled)
    assert webhooks.deliveries(filled, made.id).items[0].status == "dead"


def test_a_redirect_is_not_followed(filled: Context, heard: Heard) -> None:
    heard.status, heard.location = 302, heard.url.replace("/hook", "/elsewhere")
    made = webhooks.add(filled, heard.url)
    publish.publish(filled, "bot", ["one"])
    send_all(filled)
    assert len(heard.messages) == 1
    assert webhooks.deliveries(filled, made.id).items[0].answer == "302"


def test_a_name_that_leads_into_the_own_network_is_not_called(filled: Context, heard: Heard) -> None:
    for url in (heard.url, heard.url.replace("127.0.0.1", "localhost")):
        webhooks.add(filled, url)
    publish.publish(filled, "bot", ["one"])
    send_all(filled, private=False)
    assert heard.messages == []
    answers = {webhooks.deliveries(filled, item.id).items[0].answer for item in webhooks.ls(filled)}
    assert answers == {"ADDRESS_REFUSED"}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:0:0::",
    ],
)  # fmt: skip
def test_addresses_of_the_own_network_are_not_public(address: str) -> None:
    assert not sender.is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_other_addresses_are_public(address: str) -> None:
    assert sender.is_public(address)


def test_a_receiver_that_never_answers_is_given_up(
    filled: Context, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhooks.add(filled, f"http://127.0.0.1:{silent.getsockname()[1]}/")
        publish.publish(filled, "bot", ["one"])
        began = time.monotonic()
        monkeypatch.setattr(sender, "TIMEOUT_S", 1.0)
        send_all(filled)
        assert time.monotonic() - began < 10
    assert heard.messages == []


def test_a_removed_webhook_hears_nothing_and_its_secret_is_forgotten(filled: Context, heard: Heard) -> None:
    made = webhooks.add(filled, heard.url)
    publish.publish(filled, "bot", ["one"])
    webhooks.remove(filled, made.id)
    webhooks.remove(filled, made.id)
    publish.publish(filled, "bot", ["one"])
    assert send_all(filled) == 0
    assert webhooks.ls(filled) == ()
    with filled.database.reading() as reader:
        assert rows.secret_of(reader, made.id) is None
    with pytest.raises(NotFoundError):
        webhooks.remove(filled, "nobody")
    with pytest.raises(NotFoundError):
        webhooks.deliveries(filled, "nobody")


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://a/", "http://", "http://u:p@a/", "http://a b/", "http://a:99999/", "file:///etc/passwd"]
)
def test_what_is_no_plain_url_is_refused(context: Context, url: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        webhooks.add(context, url)
    assert caught.value.code == "WEBHOOK_URL_INVALID"
    assert webhooks.ls(context) == ()


def test_webhooks_over_the_web_are_for_administrators_and_show_the_secret_once(filled: Context, heard: Heard) -> None:
    client = TestClient(create_app(filled))
    admin, other = (
        {"Authorization": f"Bearer {tokens.create(filled, 'x', (scope,)).secret}"} for scope in ("admin", "publish")
    )
    body = {"url": heard.url, "channel": "prod-"}
    assert client.post("/v1/webhooks", json=body, headers=other).status_code == 403
    made = client.post("/v1/webhooks", json=body, headers=admin)
    assert made.status_code == 201
    listed = client.get("/v1/webhooks", headers=admin)
    assert made.json()["secret"] not in listed.text
    assert [item["channel"] for item in listed.json()] == ["prod-"]
    for _ in range(3):
        publish.publish(filled, "prod-bot", ["one"])
    path = f"/v1/webhooks/{made.json()['id']}/deliveries"
    first = client.get(f"{path}?limit=2", headers=admin).json()
    rest = client.get(f"{path}?limit=2&after={first['next']}", headers=admin).json()
    assert [item["generation"] for item in first["items"] + rest["items"]] == [3, 2, 1]
    assert client.delete(f"/v1/webhooks/{made.json()['id']}", headers=admin).status_code == 204
