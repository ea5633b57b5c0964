"""The thin REST: registration by upload, composition as a job, generations under If-Match, problem+json."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from registry.api.app import create_app
from registry.service import tokens
from registry.service.context import Context
from registry.wiring import job_queue
from tests.support import tiny


@dataclass
class Api:
    """A client with a token of every permission, and one without any."""

    client: TestClient
    headers: dict[str, str]

    def post(self, path: str, **arguments: Any) -> Any:
        headers = self.headers | arguments.pop("headers", {})
        return self.client.post(path, headers=headers, **arguments)

    def get(self, path: str) -> Any:
        return self.client.get(path, headers=self.headers)

    def upload(self, path: str, directory: Path, **fields: str) -> Any:
        files = [("files", (file.name, file.read_bytes())) for file in sorted(directory.iterdir())]
        return self.post(path, data=fields, files=files)

    def finished(self, location: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            job: dict[str, Any] = self.get(location).json()
            if job["status"] in ("done", "failed"):
                return job
            time.sleep(0.05)
        raise AssertionError("the job did not finish")


@pytest.fixture
def api(context: Context) -> Iterator[Api]:
    """A running application over a fresh registry."""
    made = tokens.create(context, "ci", ("read", "register", "compose", "publish"))
    with TestClient(create_app(context, runner=job_queue(context))) as client:
        yield Api(client, {"Authorization": f"Bearer {made.secret}"})


@pytest.fixture
def filled(api: Api, tiny_base: Path, tmp_path: Path) -> Api:
    """With a base and two adapters, all uploaded."""
    assert api.upload("/v1/bases", tiny_base, name="tiny").status_code == 201
    for seed, name in enumerate(("one", "two"), 1):
        directory = tiny.write_adapter(tmp_path / name, seed)
        assert api.upload("/v1/adapters", directory, name=name, base="tiny").status_code == 201
    return api


SPEC: dict[str, Any] = {
    "name": "merged",
    "base": "tiny",
    "method": "cat",
    "space": "delta",
    "members": [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": -0.5}],
}


def test_the_same_bytes_again_answer_200_and_created_false(filled: Api, tmp_path: Path) -> None:
    again = filled.upload("/v1/adapters", tmp_path / "one", name="one", base="tiny")
    assert again.status_code == 200
    assert again.json()["created"] is False
    assert again.headers["ETag"] == f'"{again.json()["digest"]}"'


def test_a_composition_is_a_job_that_names_its_result(filled: Api) -> None:
    accepted = filled.post("/v1/compositions", json=SPEC)
    assert accepted.status_code == 202
    job = filled.finished(accepted.headers["Location"])
    assert job["status"] == "done", job
    shown = filled.get("/v1/refs/merged").json()
    assert shown["digest"] == job["result"]["composition"]
    again = filled.post("/v1/compositions", json=SPEC)
    assert again.json()["id"] == job["id"]


def test_a_refused_composition_answers_422_with_the_whole_decision(filled: Api) -> None:
    members = [{"ref": "one", "weight": 1.0}, {"ref": "one", "weight": 1.0}]
    refused = filled.post("/v1/compositions", json=SPEC | {"members": members})
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    body = refused.json()
    assert body["decision"]["outcome"] == "refused"
    assert {"code", "path", "expected", "observed", "hint"} == set(body["errors"][0])
    assert filled.get(f"/v1/manifests/{body['admission']}").json()["kind"] == "admission"


def test_generations_need_the_head_that_is_expected(filled: Api) -> None:
    path = "/v1/channels/bot/generations"
    assert filled.post(path, json={"refs": ["one"]}).status_code == 428
    first = filled.post(path, json={"refs": ["one"]}, headers={"If-Match": '"g0"'})
    assert (first.status_code, first.headers["ETag"]) == (201, '"g1"')
    stale = filled.post(path, json={"refs": ["two"]}, headers={"If-Match": '"g0"'})
    assert (stale.status_code, stale.json()["head"], stale.headers["ETag"]) == (412, "g1", '"g1"')
    assert filled.post(path, json={"refs": ["two"]}, headers={"If-Match": '"g1"'}).status_code == 201
    back = filled.post("/v1/channels/bot/rollback", json={}, headers={"If-Match": '"g2"'})
    assert (back.json()["generation"], back.json()["restored"]) == (3, 1)
    history = filled.get(path)
    assert [item["generation"] for item in history.json()] == [3, 2, 1]
    assert history.headers["ETag"] == '"g3"'


def test_lineage_answers_both_ways(filled: Api) -> None:
    filled.finished(filled.post("/v1/compositions", json=SPEC).headers["Location"])
    filled.post("/v1/channels/bot/generations", json={"refs": ["merged"]}, headers={"If-Match": '"g0"'})
    digest = filled.get("/v1/refs/one").json()["digest"]
    down = filled.get(f"/v1/lineage/{digest}?direction=down&live=true").json()
    assert down["live"] == ["bot@g1"]
    assert "composition" in {node["kind"] for node in down["nodes"]}


def test_writes_need_a_token_with_the_permission(filled: Api, context: Context, tmp_path: Path) -> None:
    directory = tmp_path / "one"
    files = [("files", (file.name, file.read_bytes())) for file in sorted(directory.iterdir())]
    fields = {"name": "x", "base": "tiny"}
    nobody = filled.client.post("/v1/adapters", data=fields, files=files)
    assert (nobody.status_code, nobody.json()["code"]) == (401, "TOKEN_MISSING")
    assert nobody.headers["WWW-Authenticate"] == "Bearer"
    reader = tokens.create(context, "reader", ("read",))
    header = {"Authorization": f"Bearer {reader.secret}"}
    under = filled.client.post("/v1/adapters", data=fields, files=files, headers=header)
    assert (under.status_code, under.json()["code"]) == (403, "PERMISSION_MISSING")
    tokens.revoke(context, reader.id)
    revoked = filled.client.get("/v1/refs/one", headers=header)
    assert (revoked.status_code, revoked.json()["code"]) == (401, "TOKEN_INVALID")


@pytest.mark.parametrize("name", ["../x.json", "a/b.json", "/etc/passwd", ".hidden", "", "x\\y"])
def test_a_file_name_that_is_a_path_is_refused(filled: Api, name: str) -> None:
    answer = filled.post("/v1/adapters", data={"name": "x", "base": "tiny"}, files=[("files", (name, b"{}"))])
    assert answer.status_code in (400, 422)
    assert answer.json()["errors"]


def test_more_than_the_limit_is_refused_while_reading(context: Context) -> None:
    made = tokens.create(context, "ci", ("register",))
    with TestClient(create_app(context, body_limit=10_000)) as client:
        answer = client.post(
            "/v1/adapters",
            data={"name": "x", "base": "tiny"},
            files=[("files", ("adapter_model.safetensors", b"0" * 20_000))],
            headers={"Authorization": f"Bearer {made.secret}"},
        )
    assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")


def test_a_body_that_does_not_fit_is_a_problem_too(filled: Api) -> None:
    answer = filled.post("/v1/compositions", json=SPEC | {"extra": 1})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["errors"][0]["path"] == "/extra"
    unknown = filled.get("/v1/refs/nobody")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "NAME_UNKNOWN")


def test_the_contract_is_openapi(api: Api) -> None:
    document = json.loads(api.client.get("/openapi.json").text)
    assert {"/v1/adapters", "/v1/compositions", "/v1/channels/{name}/rollback"} <= set(document["paths"])
    assert api.client.get("/healthz").json() == {"status": "ok"}


def test_secrets_are_never_stored(api: Api, context: Context) -> None:
    secret = api.headers["Authorization"].removeprefix("Bearer ")
    with context.database.reading() as reader:
        bound = reader.session.connection().exec_driver_sql("SELECT * FROM token_event").all()
    assert bound
    assert all(secret not in str(value) for row in bound for value in row)
