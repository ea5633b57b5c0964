"""What a client says when a server is away, busy, another program, of another release, or does not know the caller."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from registry.cli.exits import exit_code
from registry.client.remote import RemoteRegistry
from registry.client.remote.http import Patience
from registry.errors import (
    NotAuthenticatedError,
    ProblemError,
    StaleHeadError,
    UnavailableError,
    UsageProblemError,
)
from registry.service.jobs import Job
from registry.settings import Settings
from tests.support.ports import free_port

BRISK = Patience(tries=3, first_pause_s=0.01)
SAID = {"subject": "blake3:" + "0" * 64, "topic": "labels", "statement": "blake3:" + "1" * 64}
ITEM = {"code": "SOME_CODE", "path": "/a~1b/c", "expected": "this", "observed": "that", "hint": "Do so."}
Scripted = tuple[int, dict[str, str], bytes]


def problem(slug: str, status: int, **more: object) -> Scripted:
    """An answer as a registry refuses."""
    document = {"type": f"urn:adapter-registry:{slug}", "errors": [ITEM], **more}
    headers = {"Content-Type": "application/problem+json", "X-Request-Id": "r"}
    return status, headers, json.dumps(document).encode()


def answer(document: object) -> Scripted:
    """An answer as a registry gives."""
    return 200, {"Content-Type": "application/json", "X-Request-Id": "r"}, json.dumps(document).encode()


class Script:
    """A server that answers as written, one answer a request and the last one again and again."""

    def __init__(self, *answers: Scripted) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                script.seen.append((self.command, self.path, dict(self.headers)))
                status, headers, body = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = respond  # noqa: N815 - the names that the library calls

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def scripted(*answers: Scripted, token: str | None = "areg_secret") -> Iterator[tuple[RemoteRegistry, Script]]:
    """A client of a server that answers as written."""
    script = Script(*answers)
    try:
        with RemoteRegistry.open(Settings(url=script.url, token=token), BRISK) as remote:
            yield remote, script
    finally:
        script.close()


def refused(*answers: Scripted, token: str | None = "areg_secret") -> ProblemError:
    """How a reading request ends."""
    with scripted(*answers, token=token) as (remote, _), pytest.raises(ProblemError) as found:
        remote.show("one")
    return found.value


def test_a_problem_is_raised_as_the_class_it_was_with_every_field() -> None:
    found = refused(problem("stale-head", 412, head="g7"))
    assert isinstance(found, StaleHeadError)
    assert (found.head, found.code, found.problems[0].path) == (7, "SOME_CODE", ("a/b", "c"))
    assert (found.problems[0].expected, found.problems[0].hint) == ("this", "Do so.")


@pytest.mark.parametrize(
    ("answers", "code", "exits"),
    [
        ((200, {"Content-Type": "text/html"}, b"<html>"), "SERVER_NOT_REGISTRY", 2),
        ((404, {"Content-Type": "text/html"}, b"<html>"), "SERVER_NOT_REGISTRY", 2),
        ((302, {"Location": "https://elsewhere.example"}, b""), "SERVER_MOVED", 2),
        ((404, {"X-Request-Id": "r"}, b"{}"), "ROUTE_MISSING", 2),
        (answer({"another": "shape"}), "ANSWER_UNKNOWN", 2),
        ((502, {"Content-Type": "text/html"}, b"<html>"), "SERVER_BUSY", 8),
        ((503, {}, b""), "SERVER_BUSY", 8),
    ],
)
def test_what_is_no_registry_of_this_release_is_named_with_its_address(
    answers: Scripted, code: str, exits: int
) -> None:
    found = refused(answers)
    assert (found.code, exit_code(found)) == (code, exits)
    assert "http://127.0.0.1:" in str(found)
    assert "areg_secret" not in str(found)


def test_a_route_that_an_older_server_lacks_is_a_matter_of_releases() -> None:
    status, headers, body = problem("not-found", 404)
    found = refused((status, headers, body.replace(b"SOME_CODE", b"ROUTE_UNKNOWN")))
    assert isinstance(found, UsageProblemError)
    assert found.code == "ROUTE_MISSING"


def test_a_caller_without_a_token_is_told_where_to_put_one() -> None:
    found = refused(problem("not-authenticated", 401), token=None)
    assert isinstance(found, NotAuthenticatedError)
    assert (found.code, exit_code(found)) == ("TOKEN_MISSING", 6)
    assert "REGISTRY_TOKEN" in str(found)


def test_a_server_that_does_not_answer_is_unavailable_and_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with RemoteRegistry.open(Settings(url=url), BRISK) as remote, pytest.raises(UnavailableError) as found:
        remote.show("one")
    assert (found.value.code, exit_code(found.value)) == ("SERVER_UNREACHABLE", 8)
    assert url in str(found.value)


def test_plain_text_where_tls_was_asked_for_is_said_at_once() -> None:
    script = Script(answer({}))
    url = script.url.replace("http:", "https:")
    with RemoteRegistry.open(Settings(url=url), BRISK) as remote, pytest.raises(UnavailableError) as found:
        remote.show("one")
    script.close()
    assert found.value.code == "SERVER_UNTRUSTED"
    assert url in str(found.value)


@pytest.mark.parametrize(
    "url", ["registry.example.org", "ftp://host", "http://", "http://me:secret@host", "http://host?token=secret"]
)
def test_an_address_that_is_none_is_a_usage_error_and_tells_no_secret(url: str) -> None:
    with pytest.raises(UsageProblemError) as found, RemoteRegistry.open(Settings(url=url)):
        pass
    assert found.value.code == "URL_INVALID"
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
def test_a_token_that_cannot_be_sent_is_a_usage_error_and_is_not_shown(token: str) -> None:
    with pytest.raises(UsageProblemError) as found, RemoteRegistry.open(Settings(url="http://h", token=token)):
        pass
    assert found.value.code == "TOKEN_UNUSABLE"
    assert not token or token not in str(found.value)


def test_a_request_that_may_be_repeated_is_until_the_server_is_back() -> None:
    busy = problem("unavailable", 503)
    with scripted(busy, busy, answer(SAID)) as (remote, script):
        assert remote.label("one", {"a": "b"}).topic == "labels"
    assert len(script.seen) == 3
    assert len({headers["X-Request-Id"] for _, _, headers in script.seen}) == 1, "one request, however often it is sent"


def test_patience_ends() -> None:
    with scripted(problem("unavailable", 503)) as (remote, script), pytest.raises(UnavailableError):
        remote.show("one")
    assert len(script.seen) == BRISK.tries


def test_a_request_that_would_do_it_twice_is_sent_once() -> None:
    with scripted(problem("unavailable", 503)) as (remote, script), pytest.raises(UnavailableError):
        remote.acquire_lease("bot", "replica")
    assert len(script.seen) == 1


def test_a_publication_that_is_sent_again_carries_the_same_key_and_the_head_it_read() -> None:
    published = {
        "channel": "bot", "generation": 5, "publication": "blake3:" + "0" * 64, "artifacts": ["blake3:" + "1" * 64],
        "refs": ["one@1"], "previous": None, "reason": "release", "restored": None, "kv_identity": "blake3:" + "2" * 64,
        "live": True,
    }  # fmt: skip
    stale = problem("stale-head", 412, head="g6")
    answers = (answer([published]), problem("unavailable", 503), stale, answer(published))
    with scripted(*answers) as (remote, script):
        assert remote.publish("bot", ["one"]).generation == 5
    posts = [headers for method, _, headers in script.seen if method == "POST"]
    assert [headers["If-Match"] for headers in posts] == ['"g5"', '"g5"', '"g6"']
    assert posts[0]["Idempotency-Key"] == posts[1]["Idempotency-Key"] != posts[2]["Idempotency-Key"]


def job(status: str, **more: object) -> dict[str, object]:
    """A job as a server tells it."""
    known: dict[str, object] = {
        "id": "j", "kind": "conversion", "key": "k", "status": status, "principal": "me", "created": "c",
        "updated": "u",
    }  # fmt: skip
    return known | more


def test_a_job_is_followed_by_asking_where_events_do_not_come_through() -> None:
    progress = {"done": 1, "total": 2, "what": "modules"}
    page = (200, {"Content-Type": "text/html"}, b"<html>")
    with scripted(
        answer(job("queued")), page, answer(job("running", progress=progress)), page, answer(job("done"))
    ) as (
        remote,
        _,
    ):
        assert remote.wait_job("j").status == "done"


def test_events_tell_progress_and_the_end() -> None:
    progress = {"done": 1, "total": 2, "what": "modules"}
    told = [job("running", progress=progress), job("done", updated="v")]
    stream = "".join(f"event: {item['status']}\ndata: {json.dumps(item)}\n\n" for item in told).encode()
    seen: list[Job] = []
    with scripted(answer(job("queued")), (200, {"Content-Type": "text/event-stream"}, stream)) as (remote, script):
        assert remote.wait_job("j", seen.append).status == "done"
    assert [item.progress for item in seen] == [progress, None]
    assert len(script.seen) == 2
