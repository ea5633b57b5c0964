"""Resumable uploads and blobs: offsets that are true, digests that decide, ranges, and what collection keeps."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from fastapi.testclient import TestClient
from httpx2 import Client, Request

from registry.api.app import create_app
from registry.client.transfer import upload_file
from registry.db import Change, Database, uploads
from registry.db.session import stamp
from registry.service import retire, tokens
from registry.service.context import Context
from registry.service.verify import verify
from registry.storage import open_store
from tests.support.web import Api

DATA = random.Random(1).randbytes(9 * 2**20 + 17)


def digest_of(data: bytes) -> str:
    """The blob digest from the library alone."""
    return "blake3:" + blake3(data).hexdigest()


def safetensors(header: dict[str, Any] | bytes, data: bytes, length: int | None = None) -> bytes:
    """A file with this header, which may lie about its length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(start: int, end: int, dtype: str = "U8", name: str = "w") -> dict[str, Any]:
    """One entry of a header, a vector of bytes."""
    return {name: {"dtype": dtype, "shape": [end - start], "data_offsets": [start, end]}}


class Caller:
    """A client under one token."""

    def __init__(self, client: TestClient, secret: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {secret}"}

    def ask(self, method: str, path: str, **arguments: Any) -> Any:
        return self._client.request(method, path, headers=self._headers | arguments.pop("headers", {}), **arguments)

    def begin(self, **wish: Any) -> str:
        answer = self.ask("POST", "/v1/uploads", json=wish)
        assert answer.status_code == 201, answer.text
        return str(answer.headers["Location"])

    def patch(self, place: str, offset: int, data: bytes) -> Any:
        return self.ask("PATCH", place, content=data, headers={"Upload-Offset": str(offset)})

    def finish(self, place: str, digest: str) -> Any:
        return self.ask("PUT", place, params={"digest": digest})

    def stored(self, data: bytes) -> str:
        answer = self.ask("PUT", f"/v1/blobs/{digest_of(data)}", content=data)
        assert answer.status_code == 201, answer.text
        return digest_of(data)


@pytest.fixture
def client(context: Context) -> Iterator[TestClient]:
    with TestClient(create_app(context)) as made:
        yield made


@pytest.fixture
def caller(client: TestClient, context: Context) -> Caller:
    return Caller(client, tokens.create(context, "ci", ("read", "register")).secret)


def staged(context: Context) -> list[str]:
    """Files of uploads that have not ended."""
    folder = context.store.partials.folder
    return sorted(path.name for path in (*folder.iterdir(), *(folder.parent / "staging").iterdir()))


def test_pieces_become_a_blob_with_both_digests(caller: Caller, context: Context) -> None:
    place = caller.begin(digest=digest_of(DATA), size=len(DATA))
    for start, end in ((0, 1), (1, 5_000_000), (5_000_000, len(DATA))):
        answer = caller.patch(place, start, DATA[start:end])
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(end))
        assert caller.ask("HEAD", place).headers["Upload-Offset"] == str(end)
    finished = caller.finish(place, digest_of(DATA))
    whole = {
        "digest": digest_of(DATA), "sha256": "sha256:" + hashlib.sha256(DATA).hexdigest(), "size": len(DATA)
    }  # fmt: skip
    assert (finished.status_code, finished.json()) == (201, whole)
    assert context.store.read(digest_of(DATA)) == DATA
    assert staged(context) == []


def test_finishing_twice_gives_the_same_answer(caller: Caller) -> None:
    place = caller.begin()
    caller.patch(place, 0, DATA)
    first = caller.finish(place, digest_of(DATA))
    again = caller.finish(place, digest_of(DATA))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()


def test_a_piece_at_another_offset_is_answered_with_the_true_one(caller: Caller) -> None:
    place = caller.begin(size=10)
    caller.patch(place, 0, b"01234")
    for offset in (0, 4, 6):
        answer = caller.patch(place, offset, b"56789")
        assert (answer.status_code, answer.headers["Upload-Offset"], answer.json()["code"]) == (
            416,
            "5",
            "UPLOAD_OFFSET",
        )
    assert caller.patch(place, 5, b"56789").status_code == 204
    assert caller.finish(place, digest_of(b"0123456789")).status_code == 201


def test_the_same_blob_again_goes_on_where_its_upload_stands(caller: Caller) -> None:
    wish = {"digest": digest_of(DATA), "size": len(DATA)}
    place = caller.begin(**wish)
    caller.patch(place, 0, DATA[:1000])
    again = caller.ask("POST", "/v1/uploads", json=wish)
    assert (again.status_code, again.headers["Location"], again.json()["offset"]) == (200, place, 1000)


def test_another_server_goes_on_where_the_upload_stands(
    caller: Caller, context: Context, database_url: str, store_url: str, tmp_path: Path
) -> None:
    """Over a folder they share it; over an object store they are two machines."""
    place = caller.begin(digest=digest_of(DATA), size=len(DATA))
    secret = tokens.create(context, "ci", ("register",)).secret
    with Database(database_url) as database:
        store = open_store(store_url, cache=tmp_path / "elsewhere")
        with TestClient(create_app(replace(context, database=database, store=store))) as client:
            other = Caller(client, secret)
            pieces = [(0, 3_000_000), (3_000_000, 6_000_000), (6_000_000, len(DATA))]
            for (start, end), each in zip(pieces, (caller, other, caller), strict=True):
                assert each.ask("HEAD", place).headers["Upload-Offset"] == str(start)
                assert each.patch(place, start, DATA[start:end]).status_code == 204
            assert other.finish(place, digest_of(DATA)).status_code == 201
            assert caller.finish(place, digest_of(DATA)).status_code == 201
    assert context.store.read(digest_of(DATA)) == DATA
    assert context.store.partials.size(place.rpartition("/")[2]) == 0


def test_a_resume_where_the_staged_bytes_are_not_begins_again(caller: Caller, context: Context) -> None:
    place = caller.begin(digest=digest_of(DATA), size=len(DATA))
    caller.patch(place, 0, DATA[:1000])
    assert context.store.partials.drop(place.rpartition("/")[2])
    assert caller.ask("GET", place).json()["offset"] == 0
    assert caller.patch(place, 1000, DATA[1000:]).headers["Upload-Offset"] == "0"
    assert caller.patch(place, 0, DATA).status_code == 204
    assert caller.finish(place, digest_of(DATA)).status_code == 201


def test_a_client_whose_upload_was_lost_begins_it_again_by_itself(web: Api, light: Context, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(DATA)
    offsets: list[int] = []

    def lose_once(request: Request) -> None:
        if request.method == "PATCH":
            offsets.append(int(request.headers["Upload-Offset"]))
            if len(offsets) == 2:
                assert light.store.partials.drop(request.url.path.rpartition("/")[2])

    told: list[int] = []
    with Client(transport=web.client._transport, base_url="http://testserver", headers=web.headers) as http:
        http.event_hooks["request"] = [lose_once]
        upload_file(http, file, digest_of(DATA), told.append, piece=4 * 2**20)
    assert offsets == [0, 4 * 2**20, 0, 4 * 2**20, 8 * 2**20]
    assert sum(told) == len(DATA)
    assert light.store.read(digest_of(DATA)) == DATA


def test_a_wrong_digest_ends_the_upload_and_leaves_nothing(caller: Caller, context: Context) -> None:
    place = caller.begin()
    caller.patch(place, 0, DATA)
    answer = caller.finish(place, digest_of(b"other"))
    assert (answer.status_code, answer.json()["code"]) == (422, "BLOB_DIGEST_MISMATCH")
    assert caller.ask("GET", place).status_code == 404
    assert staged(context) == []
    assert list(context.store.entries()) == []


def test_an_upload_that_is_not_whole_is_not_finished_and_goes_on(caller: Caller) -> None:
    place = caller.begin(size=len(DATA))
    caller.patch(place, 0, DATA[:-1])
    early = caller.finish(place, digest_of(DATA))
    assert (early.status_code, early.json()["code"]) == (409, "UPLOAD_INCOMPLETE")
    assert caller.patch(place, len(DATA) - 1, DATA[-1:]).status_code == 204
    assert caller.finish(place, digest_of(DATA)).status_code == 201


def test_more_than_was_said_is_refused_while_it_arrives_and_ends_the_upload(caller: Caller, context: Context) -> None:
    place = caller.begin(size=10)
    answer = caller.patch(place, 0, b"x" * 11)
    assert (answer.status_code, answer.json()["code"]) == (413, "BLOB_TOO_LARGE")
    assert caller.ask("GET", place).status_code == 404
    assert staged(context) == []


def test_the_operators_limit_holds_for_every_way_in(context: Context) -> None:
    with TestClient(create_app(context, upload_limit=1000)) as client:
        caller = Caller(client, tokens.create(context, "ci", ("register",)).secret)
        said = caller.ask("POST", "/v1/uploads", json={"size": 1001})
        whole = caller.ask("PUT", f"/v1/blobs/{digest_of(bytes(1001))}", content=bytes(1001))
        chunked = caller.ask("PUT", f"/v1/blobs/{digest_of(bytes(1001))}", content=iter([bytes(1001)]))
        place = caller.begin()
        assert caller.patch(place, 0, bytes(600)).status_code == 204
        pieces = caller.patch(place, 600, bytes(600))
        assert [item.status_code for item in (said, whole, chunked, pieces)] == [413] * 4
    assert staged(context) == []


def test_only_who_began_an_upload_and_an_administrator_reach_it(
    caller: Caller, client: TestClient, context: Context
) -> None:
    place = caller.begin()
    other = Caller(client, tokens.create(context, "other", ("read", "register")).secret)
    for method in ("GET", "DELETE"):
        answer = other.ask(method, place)
        assert (answer.status_code, answer.json()["code"]) == (404, "UPLOAD_UNKNOWN")
    assert other.patch(place, 0, b"x").status_code == 404
    assert other.finish(place, digest_of(b"")).status_code == 404
    admin = Caller(client, tokens.create(context, "root", ("admin",)).secret)
    assert admin.ask("DELETE", place).status_code == 204
    assert caller.ask("GET", place).status_code == 404


def test_an_expired_upload_is_unknown_and_swept(caller: Caller, context: Context) -> None:
    place = caller.begin()
    caller.patch(place, 0, DATA)
    name = place.rpartition("/")[2]
    past = stamp(datetime.now(UTC) - timedelta(seconds=1))
    context.database.change("age", "tester", lambda change: uploads.advance(change, name, 0, past))
    assert caller.patch(place, len(DATA), b"x").status_code == 404
    assert retire.gc(context, 3600).staging == 1
    assert staged(context) == []


def test_a_sweep_keeps_running_uploads_and_removes_stray_files(caller: Caller, context: Context) -> None:
    place = caller.begin()
    caller.patch(place, 0, DATA)
    with context.store.partials.open("0" * 32) as stray:
        stray.append(b"of a row that is gone")
    time.sleep(0.01)
    assert retire.gc(context, 0).staging == 1
    assert staged(context) == [place.rpartition("/")[2]]
    assert caller.finish(place, digest_of(DATA)).status_code == 201


def test_collection_keeps_what_an_upload_just_brought_whatever_the_grace(caller: Caller, context: Context) -> None:
    digest = caller.stored(DATA)
    assert retire.gc(context, -3600).removed == ()

    def expire(change: Change) -> None:
        for row in uploads.running(change):
            uploads.remove(change, row.id)

    context.database.change("expire", "tester", expire)
    assert retire.gc(context, -3600).removed == (digest,)
    assert not context.store.has(digest)


def test_collection_keeps_a_blob_that_is_being_brought_again(caller: Caller, context: Context) -> None:
    context.store.put_bytes(DATA)
    caller.begin(digest=digest_of(DATA), size=len(DATA))
    assert retire.gc(context, -3600).removed == ()


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "length-2^60": (safetensors({}, b"", 2**60), "HEADER_TOO_LARGE"),
    "length-of-9-mib": (safetensors(b"{" + b" " * 100, b"", 9 * 2**20), "HEADER_TOO_LARGE"),
    "no-object": (safetensors(b"[1]", b""), "HEADER_INVALID"),
    "pickle": (b"\x80\x04\x95abcdefgh", "PICKLE_REFUSED"),
    "zip": (b"PK\x03\x04" + bytes(20), "PICKLE_REFUSED"),
    "duplicate-keys": (safetensors(b'{"w":{},"w":{}}', b""), "JSON_DUPLICATE_KEY"),
    "overlap": (safetensors(tensor(0, 8) | tensor(4, 12, name="v"), bytes(12)), "OFFSETS_OVERLAP"),
    "gap": (safetensors(tensor(0, 4) | tensor(5, 9, name="v"), bytes(9)), "OFFSETS_GAP"),
    "dtype": (safetensors(tensor(0, 4, dtype="F7"), bytes(4)), "DTYPE_UNKNOWN"),
    "trailing": (safetensors(tensor(0, 4), bytes(5)), "TRAILING_BYTES"),
    "not-json": (safetensors(b'{"w": nothing}', b""), "JSON_INVALID"),
}


@pytest.mark.parametrize("bad", BAD_FILES)
@pytest.mark.parametrize("sized", [True, False], ids=["sized", "unsized"])
def test_a_bad_safetensors_header_is_refused_from_its_first_bytes(
    caller: Caller, context: Context, bad: str, sized: bool
) -> None:
    data, code = BAD_FILES[bad]
    place = caller.begin(name="model.safetensors", **({"size": len(data)} if sized else {}))
    answer = caller.patch(place, 0, data)
    assert answer.status_code == 422
    assert {item["code"] for item in answer.json()["errors"]} == {code}
    assert caller.ask("GET", place).status_code == 404
    assert staged(context) == []


def test_a_safetensors_file_is_known_by_its_content_too(caller: Caller) -> None:
    place = caller.begin()
    answer = caller.patch(place, 0, safetensors(tensor(0, 8) | tensor(4, 12, name="v"), bytes(12)))
    assert (answer.status_code, answer.json()["code"]) == (422, "OFFSETS_OVERLAP")


@pytest.mark.parametrize("text", [b"{%- for message", b"\x00\x01\x02", b"", b"12345678{%- if tools"])
def test_other_files_are_no_safetensors_files(caller: Caller, text: bytes) -> None:
    place = caller.begin(name="chat_template.jinja")
    caller.patch(place, 0, text)
    assert caller.finish(place, digest_of(text)).status_code == 201


def test_a_header_that_comes_byte_by_byte_is_checked_as_one(caller: Caller) -> None:
    data = safetensors(tensor(0, 4), bytes(4))
    place = caller.begin(name="adapter_model.safetensors", size=len(data))
    for start in range(len(data)):
        assert caller.patch(place, start, data[start : start + 1]).status_code == 204
    assert caller.finish(place, digest_of(data)).status_code == 201


def test_a_safetensors_file_that_was_cut_is_refused_when_it_is_finished(caller: Caller) -> None:
    for cut in (1, 8, 20):
        data = safetensors(tensor(0, 4), bytes(4))[:-cut]
        place = caller.begin(name="adapter_model.safetensors")
        assert caller.patch(place, 0, data).status_code == 204
        answer = caller.finish(place, digest_of(data))
        assert answer.status_code == 422
        assert answer.json()["code"] in {"FILE_TRUNCATED", "HEADER_TRUNCATED"}


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", ".", "a\\b", "a\0b", "c:x", ""])
def test_a_name_that_is_a_path_is_refused(caller: Caller, name: str) -> None:
    answer = caller.ask("POST", "/v1/uploads", json={"name": name})
    assert (answer.status_code, answer.json()["code"]) == (422, "PATH_OUTSIDE")


@pytest.mark.parametrize("asked", [(0, 5), (5, 9), (0, len(DATA)), (len(DATA) - 1, len(DATA))])
def test_a_range_is_exactly_its_bytes(caller: Caller, asked: tuple[int, int]) -> None:
    digest, (start, end) = caller.stored(DATA), asked
    answer = caller.ask("GET", f"/v1/blobs/{digest}", headers={"Range": f"bytes={start}-{end - 1}"})
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(DATA)}"


RANGES: dict[str, tuple[int, bytes | None]] = {
    "bytes=-3": (206, DATA[-3:]),
    "bytes=100-": (206, DATA[100:]),
    f"bytes=-{len(DATA) * 2}": (206, DATA),
    f"bytes=5-{len(DATA) * 2}": (206, DATA[5:]),
    f"bytes={len(DATA)}-": (416, None),
    "bytes=-0": (416, None),
    "bytes=3-2": (200, DATA),
    "bytes=0-1,5-6": (200, DATA),
    "bytes=a-b": (200, DATA),
    "lines=0-1": (200, DATA),
}


@pytest.mark.parametrize("asked", RANGES)
def test_ranges_are_served_refused_or_passed_over_as_rfc_9110_says(caller: Caller, asked: str) -> None:
    status, data = RANGES[asked]
    answer = caller.ask("GET", f"/v1/blobs/{caller.stored(DATA)}", headers={"Range": asked})
    assert answer.status_code == status
    if data is None:
        assert answer.headers["Content-Range"] == f"bytes */{len(DATA)}"
    else:
        assert answer.content == data


def test_a_blob_tells_its_digests_and_answers_conditions(caller: Caller) -> None:
    digest = caller.stored(b"abc")
    path = f"/v1/blobs/{digest}"
    head, whole = caller.ask("HEAD", path), caller.ask("GET", path)
    # published: SHA-256 of "abc" in base64
    repr_digest = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:"
    for answer in (head, whole):
        assert answer.headers["Repr-Digest"] == repr_digest
        assert answer.headers["X-Registry-Digest"] == digest
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert (answer.headers["ETag"], answer.headers["Content-Length"]) == (f'"{digest}"', "3")
    assert (head.content, whole.content) == (b"", b"abc")
    for held in (f'"{digest}"', f'W/"{digest}"', '"other", ' + f'"{digest}"', "*"):
        assert caller.ask("GET", path, headers={"If-None-Match": held}).status_code == 304
    assert caller.ask("GET", path, headers={"If-None-Match": '"other"'}).status_code == 200
    part = {"Range": "bytes=1-1"}
    assert caller.ask("GET", path, headers=part | {"If-Range": f'"{digest}"'}).content == b"b"
    assert caller.ask("GET", path, headers=part | {"If-Range": '"other"'}).content == b"abc"
    by_sha256 = caller.ask("GET", f"/v1/blobs/sha256:{hashlib.sha256(b'abc').hexdigest()}")
    assert (by_sha256.status_code, by_sha256.headers["X-Registry-Digest"]) == (200, digest)


def test_a_blob_that_is_not_there_is_told(caller: Caller) -> None:
    path = f"/v1/blobs/{digest_of(b'absent')}"
    assert caller.ask("HEAD", path).status_code == 404
    answer = caller.ask("GET", path)
    assert (answer.status_code, answer.json()["code"]) == (404, "BLOB_MISSING")


def test_a_put_of_other_bytes_is_refused_and_leaves_nothing(caller: Caller, context: Context) -> None:
    answer = caller.ask("PUT", f"/v1/blobs/{digest_of(b'abc')}", content=b"abd")
    assert (answer.status_code, answer.json()["code"]) == (422, "BLOB_DIGEST_MISMATCH")
    assert staged(context) == []
    with context.database.reading() as reader:
        assert uploads.running(reader) == ()


def test_uploaded_blobs_stand_a_deep_verification(caller: Caller, context: Context) -> None:
    caller.stored(DATA)
    found = verify(context, deep=True)
    assert (found.faults, found.blobs) == ((), 1)


def test_a_staged_file_that_is_not_the_registrys_is_never_followed(context: Context, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    (context.store.partials.folder / ("1" * 32)).symlink_to(secret)
    assert context.store.partials.sweep(-1, lambda _: False) == 0
    assert secret.read_text() == "kept"
