"""Registering over HTTP: by blobs that were uploaded before, by one form, and by what an owner says of a base."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from registry.formats import read_base
from registry.service.context import Context
from tests.support import tiny
from tests.support.web import Api

ABSENT = "blake3:" + "0" * 64


def form(api: Api, path: str, directory: Path, **fields: str) -> Any:
    files = [("files", (file.name, file.read_bytes())) for file in sorted(directory.iterdir())]
    return api.ask("POST", path, data=fields, files=files)


def test_blobs_and_a_form_register_the_same_content(caller: Api, tiny_base: Path, tmp_path: Path) -> None:
    added = caller.add_base(tiny_base, "tiny")
    assert (added.status_code, added.json()["created"]) == (201, True)
    assert added.headers["ETag"] == f'"{added.json()["digest"]}"'
    directory = tiny.write_adapter(tmp_path / "one", 1)
    first = caller.add_adapter(directory, "one")
    assert (first.status_code, first.json()["version"]) == (201, 1)
    again = caller.add_adapter(directory, "one")
    assert (again.status_code, again.json()["created"], again.json()["version"]) == (200, False, 1)
    by_form = form(caller, "/v1/adapters", directory, name="one", base="tiny")
    assert (by_form.status_code, by_form.json()["digest"]) == (200, first.json()["digest"])
    assert form(caller, "/v1/bases", tiny_base, name="tiny").json()["digest"] == added.json()["digest"]
    assert caller.post("/v1/verifications", {"deep": True}).json()["faults"] == []


def test_files_may_be_named_by_sha256(caller: Api, tiny_base: Path, tmp_path: Path) -> None:
    caller.add_base(tiny_base, "tiny")
    directory = tiny.write_adapter(tmp_path / "one", 1)
    caller.put_directory(directory)
    files = {file.name: f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}" for file in directory.iterdir()}
    assert caller.post("/v1/adapters", {"name": "one", "base": "tiny", "files": files}).status_code == 201


def test_every_file_that_was_not_uploaded_is_named(shelf: Api, tmp_path: Path) -> None:
    known = shelf.put_directory(tmp_path / "one")
    files = known | {"adapter_model.safetensors": ABSENT, "extra.json": f"sha256:{'0' * 64}"}
    answer = shelf.post("/v1/adapters", {"name": "new", "base": "tiny", "files": files})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:adapter-registry:conflict")
    missing = {item["path"]: item["code"] for item in answer.json()["errors"]}
    assert missing == {
        "/files/adapter_model.safetensors": "BLOBS_MISSING",
        "/files/extra.json": "BLOBS_MISSING",
    }
    assert shelf.get("/v1/refs/new").status_code == 404


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "", "x\\y", "..", "a:b", "a\nb", "ü" * 300])
def test_a_path_that_leads_anywhere_is_refused(shelf: Api, name: str) -> None:
    blob = shelf.put_blob(b"{}")
    answer = shelf.post("/v1/adapters", {"name": "x", "base": "tiny", "files": {name: blob}})
    assert answer.status_code in (400, 422)
    assert shelf.get("/v1/refs/x").status_code == 404


def test_content_that_breaks_a_rule_is_refused_with_every_problem(shelf: Api, tmp_path: Path) -> None:
    directory = tiny.write_adapter(tmp_path / "bad", 5, r=3, surprising_field=True)
    answer = shelf.add_adapter(directory, "bad")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:adapter-registry:refused")
    assert answer.json()["errors"]
    assert shelf.add_adapter(tmp_path / "one", "x", base="nobody").status_code == 404
    taken = shelf.add_adapter(tmp_path / "one", "tiny")
    assert (taken.status_code, taken.json()["code"]) == (409, "NAME_TAKEN_BY_KIND")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"\xff", "application/json"),
        (b"null", "application/json"),
        (b"name=x", "application/x-www-form-urlencoded"),
        (b"--x\r\n", "multipart/form-data; boundary=y"),
        (b"", "multipart/form-data"),
        (b"{}", "text/plain"),
    ],
)
def test_a_body_that_is_no_registration_is_a_problem(web: Api, content: bytes, kind: str) -> None:
    for path in ("/v1/adapters", "/v1/bases"):
        answer = web.ask("POST", path, content=content, headers={"Content-Type": kind})
        assert answer.status_code == 400, (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


def declared(directory: Path) -> dict[str, Any]:
    reading = read_base(directory)
    files = {
        file.path: {"blake3": file.digests.digest, "sha256": file.digests.sha256, "size": file.digests.size}
        for file in reading.files
    }
    return {"name": "far", "base": reading.manifest.document(), "files": files}


def test_a_declared_base_is_its_owners_word(caller: Api, tiny_base: Path, tmp_path: Path) -> None:
    body = declared(tiny_base)
    added = caller.post("/v1/bases/declared", body)
    assert added.status_code == 201
    shown = caller.get("/v1/refs/far").json()
    assert (shown["evidence"], shown["files"]) == ("declared", [])
    lines = shown["statements"][0]["body"]["declared_files"]
    assert any(line.startswith("model.safetensors blake3:") for line in lines)
    # its digests are no blobs: nobody is answered with them
    assert caller.get(f"/v1/blobs/{body['files']['model.safetensors']['blake3']}").status_code == 404
    assert caller.add_adapter(tiny.write_adapter(tmp_path / "one", 1), "one", base="far").status_code == 201
    again = caller.post("/v1/bases/declared", body)
    assert (again.status_code, again.json()["digest"]) == (200, added.json()["digest"])


def test_declaring_a_base_that_was_read_here_keeps_its_evidence(caller: Api, tiny_base: Path) -> None:
    caller.add_base(tiny_base, "tiny")
    assert caller.post("/v1/bases/declared", declared(tiny_base)).status_code == 200
    assert caller.get("/v1/refs/far").json()["evidence"] == "content"


def test_a_declared_base_that_is_none_is_refused(web: Api, tiny_base: Path) -> None:
    body = declared(tiny_base)
    broken = web.post("/v1/bases/declared", body | {"base": {**body["base"], "weights_digest": ABSENT}})
    assert (broken.status_code, broken.json()["code"]) == (422, "MANIFEST_INVALID")
    assert web.post("/v1/bases/declared", body | {"files": {}}).status_code == 400
    assert web.post("/v1/bases/declared", body | {"contracts": ["nobody"]}).status_code == 404


def test_an_inspection_tells_everything_and_registers_nothing(shelf: Api, tmp_path: Path) -> None:
    files = shelf.put_directory(tiny.write_adapter(tmp_path / "new", 7))
    before = list(shelf.walk("/v1/manifests"))
    answer = shelf.post("/v1/inspections", {"files": files, "base": "tiny"})
    assert answer.status_code == 200
    found = answer.json()
    assert (found["kind"], found["directory"], found["problems"]) == ("adapter", "", [])
    assert found["groups"][0]["rank"] == 2
    assert shelf.post("/v1/inspections", {"files": {"notes.txt": shelf.put_blob(b"x")}}).json()["kind"] == "unknown"
    assert shelf.post("/v1/inspections", {"files": {"a.json": ABSENT}}).status_code == 409
    assert list(shelf.walk("/v1/manifests")) == before


def test_registering_takes_the_permission_for_the_name(shelf: Api, light: Context, tmp_path: Path) -> None:
    team = shelf.allowed(light, "register:team-", "read")
    directory = tiny.write_adapter(tmp_path / "new", 7)
    assert team.add_adapter(directory, "team-new").status_code == 201
    refused = team.add_adapter(directory, "other")
    assert (refused.status_code, refused.json()["code"]) == (403, "PERMISSION_MISSING")
    assert Api(shelf.client).post("/v1/adapters", {}).status_code == 401
