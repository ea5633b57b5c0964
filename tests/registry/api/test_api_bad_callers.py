"""Callers that lie, dawdle or attack, against a real server: clear refusals, nothing left, others still served."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from registry.service import tokens
from registry.settings import Settings
from registry.wiring import initialise, opened
from tests.support.served import Answer, Served, serving

IDLE = 1_500
SLOW = 40
PATIENT_S = 20.0
"""Others share this machine with the tests; at rest an answer takes milliseconds."""
MIB = 2**20
DATA = random.Random(2).randbytes(3 * MIB)


def digest_of(data: bytes) -> str:
    """The blob digest from the library alone."""
    return "blake3:" + blake3(data).hexdigest()


@dataclass(frozen=True)
class Site:
    """A server and what callers of each kind hold."""

    server: Served
    folder: Path
    settings: Settings
    token: str

    def ask(self, method: str, path: str, **arguments: Any) -> Answer:
        return self.server.ask(method, path, token=arguments.pop("token", self.token), **arguments)

    def begin(self, **wish: Any) -> str:
        answer = self.ask("POST", "/v1/uploads", body=wish)
        assert answer.status == 201, answer.body
        return answer.headers["location"]

    def patch(self, place: str, offset: int, data: bytes, **arguments: Any) -> Answer:
        headers = {"Upload-Offset": str(offset)} | arguments.pop("headers", {})
        return self.ask("PATCH", place, body=data, headers=headers, **arguments)

    @contextmanager
    def head_sent(self, method: str, path: str, *headers: str) -> Iterator[socket.socket]:
        """A connection on which the head of a request was sent."""
        with socket.create_connection(self.server.address, timeout=90) as line:
            lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.token}", *headers]
            line.sendall("\r\n".join([*lines, "", ""]).encode())
            yield line

    def made_token(self, *allow: str, expires_s: float | None = None) -> tokens.NewToken:
        with opened(self.settings) as context:
            return tokens.create(context, "caller", allow, expires_s=expires_s)

    def staged(self) -> list[Path]:
        return [file for name in ("uploads", "staging") for file in (self.folder / "store" / name).iterdir()]

    def assert_sound(self) -> None:
        """Nothing is left in staging, and an honest caller is served."""
        self.server.until(lambda: self.staged() == [], PATIENT_S)
        self.assert_serves()

    def assert_serves(self) -> None:
        begun = time.monotonic()
        data = random.randbytes(MIB)
        assert self.ask("PUT", f"/v1/blobs/{digest_of(data)}", body=data).status == 201
        assert self.ask("GET", f"/v1/blobs/{digest_of(data)}").body == data
        assert time.monotonic() - begun < PATIENT_S


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    settings = Settings(home=folder)
    initialise(settings)
    with opened(settings) as context:
        made = tokens.create(context, "ci", ("read", "register"))
    with serving(folder, {"REGISTRY_HOME": str(folder)}, "--no-jobs") as server:
        yield Site(server, folder, settings, made.secret)


def answered(line: socket.socket) -> tuple[int, bytes]:
    """Status and all bytes of the answer, up to the end of the connection or of what it announced."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n\r\n" not in data or _missing(data) > 0:
            more = line.recv(1 << 16)
            if not more:
                break
            data += more
    return int(data.split(b" ", 2)[1]), data


def _missing(data: bytes) -> int:
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(lengths[0]) - len(body) if lengths else 0


def test_a_body_shorter_than_it_says_is_kept_as_far_as_it_came(site: Site) -> None:
    place = site.begin(digest=digest_of(DATA), size=len(DATA))
    with site.head_sent("PATCH", place, "Upload-Offset: 0", f"Content-Length: {len(DATA)}") as line:
        line.sendall(DATA[:1000])
        site.server.until(lambda: site.ask("HEAD", place).headers["upload-offset"] == "1000", PATIENT_S)
    site.server.until(lambda: site.patch(place, 1000, DATA[1000:]).status == 204, PATIENT_S)
    assert site.ask("PUT", f"{place}?digest={digest_of(DATA)}").status == 201
    site.assert_sound()


def test_a_put_shorter_than_it_says_leaves_nothing(site: Site) -> None:
    data = random.Random(3).randbytes(1000)
    path = f"/v1/blobs/{digest_of(data)}"
    with site.head_sent("PUT", path, "Content-Length: 1001") as line:
        line.sendall(data)
        site.server.until(lambda: site.staged() != [], PATIENT_S)
    site.assert_sound()
    assert site.ask("HEAD", path).status == 404


def test_a_body_longer_than_it_says_is_cut_and_its_digest_tells(site: Site) -> None:
    place = site.begin()
    with site.head_sent("PATCH", place, "Upload-Offset: 0", "Content-Length: 5") as line:
        line.sendall(b"0123456789")
        status, _ = answered(line)
    assert status == 204
    assert site.ask("HEAD", place).headers["upload-offset"] == "5"
    answer = site.ask("PUT", f"{place}?digest={digest_of(b'0123456789')}")
    assert (answer.status, answer.json()["code"]) == (422, "BLOB_DIGEST_MISMATCH")
    site.assert_sound()


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999", "5, 6", "0x10"])
def test_a_length_that_is_none_is_refused(site: Site, length: str) -> None:
    with site.head_sent("PUT", f"/v1/blobs/{digest_of(b'x')}", f"Content-Length: {length}") as line:
        status, _ = answered(line)
    assert status in (400, 413)
    site.assert_sound()


def test_a_body_beyond_the_limit_is_refused_before_it_comes(site: Site) -> None:
    for method, path, length in (
        ("PUT", f"/v1/blobs/{digest_of(b'x')}", 2**50),
        ("POST", "/v1/uploads", 2**30),
        ("POST", "/v1/adapters", 2**40),
    ):
        with site.head_sent(method, path, f"Content-Length: {length}") as line:
            status, answer = answered(line)
        assert (status, b"BODY_TOO_LARGE" in answer, b"connection: close" in answer.lower()) == (413, True, True)
    site.assert_sound()


def bomb(header: bytes, length: int | None = None) -> bytes:
    """A safetensors file with this header."""
    return struct.pack("<Q", len(header) if length is None else length) + header


def entry(start: int, end: int) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}


BOMBS: dict[str, tuple[bytes, str]] = {
    "length-2^60": (bomb(b"{", 2**60), "HEADER_TOO_LARGE"),
    "100-mb-of-json": (bomb(b'{"a":[' + b"[]," * MIB, 100_000_000), "HEADER_TOO_LARGE"),
    "nested": (bomb(b'{"a":' + b"[" * MIB + b"]" * MIB + b"}"), "JSON_INVALID"),
    "duplicate-keys": (bomb(b'{"a":1,"a":1}'), "JSON_DUPLICATE_KEY"),
    "overlap": (bomb(json.dumps({"a": entry(0, 8), "b": entry(4, 12)}).encode()), "OFFSETS_OVERLAP"),
    "trailing": (bomb(json.dumps({"a": entry(0, 8)}).encode()) + bytes(9), "TRAILING_BYTES"),
    "many-values": (bomb(b'{"a":[' + b"0," * (3 * MIB) + b"0]}"), "HEADER_INVALID"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_bomb_is_refused_from_its_first_bytes(site: Site, name: str) -> None:
    data, code = BOMBS[name]
    place = site.begin(name="model.safetensors")
    with site.head_sent("PATCH", place, "Upload-Offset: 0", f"Content-Length: {2**36}") as line:
        with contextlib.suppress(ConnectionError):  # it may be refused before all of this is sent
            line.sendall(data)
        status, answer = answered(line)
    assert (status, code.encode() in answer) == (422, True), answer
    assert site.ask("GET", place).status == 404
    site.assert_sound()
    assert peak_mib(site.server.pid) < 400


def peak_mib(pid: int) -> float:
    """Peak resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


TRICKS = [
    "..", "../../etc/passwd", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "//etc/passwd", "%2Fetc%2Fpasswd",
    "a%00b", "%00", "a%5c..%5cb", "blake3:" + "0" * 63 + "%2f", "blake3:" + "A" * 64, "x" * 20_000,
    "blake3:../" + "0" * 61, "blake3:" + "0" * 64 + "%0a",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_a_digest_or_upload_that_is_a_path_is_refused(site: Site, trick: str) -> None:
    for method, path in (
        ("GET", f"/v1/blobs/{trick}"),
        ("PUT", f"/v1/blobs/{trick}"),
        ("GET", f"/v1/uploads/{trick}"),
        ("DELETE", f"/v1/uploads/{trick}"),
    ):
        answer = site.ask(method, path)
        assert 300 <= answer.status < 500, (method, path[:80], answer.body)  # a slash at the end is sent elsewhere
        assert b"root:" not in answer.body
    assert site.staged() == []


@pytest.mark.parametrize("name", ["../x", "%2e%2e/x", "/etc/passwd", "a\\b", "a\0b", "x" * 300, ".."])
def test_a_file_name_that_is_a_path_is_refused(site: Site, name: str) -> None:
    begun = site.ask("POST", "/v1/uploads", body={"name": name})
    assert begun.status in (400, 422)
    assert begun.json()["errors"]
    assert site.staged() == []


def test_a_compressed_body_is_refused(site: Site) -> None:
    place = site.begin()
    answer = site.patch(place, 0, b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"})
    assert (answer.status, answer.json()["code"]) == (400, "BODY_ENCODED")
    assert site.ask("HEAD", place).headers["upload-offset"] == "0"
    site.ask("DELETE", place)
    site.assert_sound()


def test_tokens_that_are_expired_revoked_or_too_small_are_refused_before_anything_is_kept(site: Site) -> None:
    expired = site.made_token("register", expires_s=1.0)
    revoked = site.made_token("register")
    with opened(site.settings) as context:
        tokens.revoke(context, revoked.id)
    reading = site.made_token("read")
    place = site.begin()
    time.sleep(1.1)
    for token, status, code in (
        (expired.secret, 401, "TOKEN_INVALID"),
        (revoked.secret, 401, "TOKEN_INVALID"),
        ("areg_" + "x" * 43, 401, "TOKEN_INVALID"),
        (None, 401, "TOKEN_MISSING"),
        (reading.secret, 403, "PERMISSION_MISSING"),
    ):
        answers = [
            site.ask("POST", "/v1/uploads", body={}, token=token),
            site.patch(place, 0, DATA[:1000], token=token),
            site.ask("PUT", f"{place}?digest={digest_of(b'')}", token=token),
            site.ask("PUT", f"/v1/blobs/{digest_of(DATA)}", body=DATA[:1000], token=token),
            site.ask("DELETE", place, token=token),
        ]
        assert [(answer.status, answer.json()["code"]) for answer in answers] == [(status, code)] * 5
    assert site.ask("DELETE", place).status == 204
    site.assert_sound()


def test_bodies_that_dawdle_hold_up_nobody(site: Site) -> None:
    with ExitStack() as lines:
        places = [site.begin() for _ in range(SLOW)]
        for place in places:
            line = lines.enter_context(site.head_sent("PATCH", place, "Upload-Offset: 0", "Content-Length: 1000"))
            line.sendall(b"x")
        site.server.until(lambda: len(site.staged()) == SLOW, PATIENT_S)
        site.assert_serves()
        busy = site.patch(places[0], 1, b"y")
        assert (busy.status, busy.json()["code"]) == (409, "UPLOAD_BUSY")
    for place in places:
        site.server.until(partial(ended, site, place), PATIENT_S)
    site.assert_sound()


def ended(site: Site, place: str) -> bool:
    return site.ask("DELETE", place).status == 204


def test_idle_connections_by_the_thousand_hold_up_nobody(site: Site) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as lines:
            for number in range(IDLE):
                line = lines.enter_context(socket.create_connection(site.server.address, timeout=60))
                if number % 3 == 0:
                    line.sendall(b"GET /v1/names HTTP/1.1\r\nX-Slow: ")
            site.assert_serves()
            assert site.server.ask("GET", "/healthz").status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    site.assert_sound()
