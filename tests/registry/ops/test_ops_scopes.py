"""Scopes: a permission limited to a prefix holds for that prefix and for nothing else, in every use case."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from registry.api.app import create_app
from registry.errors import NotAllowedError, UsageProblemError
from registry.service import add, leases, policies, publish, retire, say, tokens, verify
from registry.service.context import Context
from registry.service.grants import Grants, Scope
from tests.support import tiny

SPEC: dict[str, Any] = {
    "base": "tiny",
    "method": "cat",
    "space": "delta",
    "members": [{"ref": "team-a-qa", "weight": 1.0}, {"ref": "team-a-qa2", "weight": -0.5}],
}


def granted(context: Context, *scopes: str) -> Context:
    """The context of a token with these scopes."""
    return replace(context, grants=Grants(tuple(map(Scope.parse, scopes))))


@pytest.fixture
def filled(context: Context, tiny_base: Path, tmp_path: Path) -> Context:
    """A base and two adapters of one team, one of another."""
    add.add_base(context, tiny_base, "tiny")
    for seed, name in enumerate(("team-a-qa", "team-a-qa2", "team-b-qa"), 1):
        add.add_adapter(context, tiny.write_adapter(tmp_path / name, seed), "tiny", name)
    return context


@pytest.fixture
def client(filled: Context) -> TestClient:
    """An application that answers everything with a token only; nothing runs in its background."""
    return TestClient(create_app(filled))


def header(context: Context, *allow: str) -> dict[str, str]:
    """Authorization with a token of these scopes."""
    return {"Authorization": f"Bearer {tokens.create(context, 'ci', allow).secret}"}


@pytest.mark.parametrize("text", ["", "write", "read:", "publish:prod/", "publish:-x", "register:A", ":x", "read:a:b"])
def test_a_scope_that_could_allow_nothing_is_refused_in_words(context: Context, text: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        tokens.create(context, "ci", (text,))
    assert caught.value.code == "SCOPE_INVALID"
    assert tokens.ls(context) == ()


def test_a_scope_covers_its_prefix_and_admin_covers_all_permissions_within_its_own() -> None:
    grants = Grants((Scope("register", "team-a-"), Scope("publish"), Scope("admin", "lab-")))
    assert grants.covers("register", "team-a-x")
    assert not grants.covers("register", "team-b-x")
    assert not grants.covers("register", "team-a")
    assert grants.covers("publish", "anything")
    assert grants.covers("compose", "lab-x")
    assert not grants.covers("compose", "team-a-x")
    grants.require("publish")
    with pytest.raises(NotAllowedError, match="admin, without a prefix"):
        grants.require("admin")
    with pytest.raises(NotAllowedError, match="register:team-b-x"):
        grants.require("register", "team-a-x", "team-b-x")


def test_registering_is_held_to_the_prefix_of_the_name(filled: Context, tmp_path: Path) -> None:
    mine = granted(filled, "register:team-a-")
    directory = tiny.write_adapter(tmp_path / "new", 7)
    with pytest.raises(NotAllowedError, match="register:team-b-new"):
        add.add_adapter(mine, directory, "tiny", "team-b-new")
    assert add.add_adapter(mine, directory, "tiny", "team-a-new").created


def test_a_statement_needs_every_name_of_the_content(filled: Context, tmp_path: Path) -> None:
    mine = granted(filled, "register:team-a-")
    assert say.label(mine, "team-a-qa", {"k": "v"}).topic == "label"
    assert say.alias(mine, "team-a-qa@1", "stable").version == 1
    # the bytes of the other team, registered once more under a name of mine
    add.add_adapter(mine, tmp_path / "team-b-qa", "tiny", "team-a-copy")
    for ref in ("team-a-copy", "team-b-qa"):
        with pytest.raises(NotAllowedError, match="register:team-b-qa"):
            say.yank(mine, ref, "not mine")
    with pytest.raises(NotAllowedError, match="register:team-b-qa"):
        say.alias(mine, "team-b-qa@1", "stable")


def test_channels_are_held_to_the_prefix_of_the_channel(filled: Context) -> None:
    mine = granted(filled, "publish:prod-")
    assert publish.publish(mine, "prod-bot", ["team-b-qa"], expect=0).generation == 1
    held = leases.acquire(mine, "prod-bot", "replica", 60.0)
    publish.publish(filled, "test-bot", ["team-a-qa"], expect=0)
    other = leases.acquire(filled, "test-bot", "replica", 60.0)
    leases.renew(mine, held.id, 60.0)
    with pytest.raises(NotAllowedError, match="publish:test-bot"):
        publish.publish(mine, "test-bot", ["team-a-qa"])
    with pytest.raises(NotAllowedError, match="publish:test-bot"):
        publish.rollback(mine, "test-bot")
    with pytest.raises(NotAllowedError, match="publish:test-bot"):
        leases.acquire(mine, "test-bot", "replica", 60.0)
    with pytest.raises(NotAllowedError, match="publish:test-bot"):
        leases.release(mine, other.id)
    with pytest.raises(NotAllowedError, match="publish:test-bot"):
        leases.renew(mine, other.id, 60.0)
    assert [item.held for item in leases.of_holder(filled, "replica")] == [True, True]
    with pytest.raises(NotAllowedError, match="register:team-a-x"):
        add.add_base(mine, Path(), "team-a-x")


def test_administration_of_everything_needs_it_without_a_prefix(filled: Context) -> None:
    mine = granted(filled, "admin:team-a-")
    assert retire.purge(mine, "team-a-qa2", "wrong").reason == "wrong"
    assert policies.put(mine, "team-a-bot", {}).document() is not None
    asks = (
        lambda: retire.purge(mine, "team-b-qa", "x"),
        lambda: policies.put(mine, "bot", {}),
        lambda: retire.gc(mine, 0.0),
        lambda: verify.verify(mine),
        lambda: tokens.create(mine, "x", ("admin",)),
        lambda: tokens.ls(mine),
        lambda: tokens.revoke(mine, "x"),
    )
    for ask in asks:
        with pytest.raises(NotAllowedError) as caught:
            ask()
        assert caught.value.code == "PERMISSION_MISSING"


def test_a_composition_is_held_to_the_name_of_its_output(client: TestClient, filled: Context) -> None:
    mine = header(filled, "compose:team-a-", "read")
    for path in ("/v1/compositions", "/v1/admissions"):
        refused = client.post(path, json=SPEC | {"name": "team-b-mix"}, headers=mine)
        assert (refused.status_code, refused.json()["code"]) == (403, "PERMISSION_MISSING")
        assert "compose:team-b-mix" in refused.json()["errors"][0]["expected"]
    assert client.post("/v1/admissions", json=SPEC | {"name": "team-a-mix"}, headers=mine).status_code == 201


def test_publishing_is_apart_from_registering(client: TestClient, filled: Context) -> None:
    registering = header(filled, "register")
    answer = client.post(
        "/v1/channels/bot/generations", json={"refs": ["team-a-qa"]}, headers={**registering, "If-Match": '"g0"'}
    )
    assert (answer.status_code, answer.json()["errors"][0]["observed"]) == (403, "register")


def test_reading_with_a_prefix_reads_what_has_a_name_or_channel_in_it(client: TestClient, filled: Context) -> None:
    publish.publish(filled, "team-a-bot", ["team-a-qa"], expect=0)
    publish.publish(filled, "bot", ["team-b-qa"], expect=0)
    mine = header(filled, "read:team-a-")
    digest = client.get("/v1/refs/team-a-qa", headers=mine).json()["digest"]
    other = client.get("/v1/refs/team-b-qa", headers=header(filled, "read")).json()["digest"]
    seen = {
        path: client.get(f"/v1/{path}", headers=mine).status_code
        for path in (
            f"manifests/{digest}", f"lineage/{digest}", "channels/team-a-bot/generations", "refs/channel:team-a-bot",
            f"manifests/{other}", f"lineage/{other}", "channels/bot/generations", "refs/team-b-qa", "manifests",
            "refs/channel:bot",
        )
    }  # fmt: skip
    assert list(seen.values()) == [200] * 4 + [403] * 6, seen
    refused = client.get(f"/v1/manifests/{other}", headers=mine)
    assert "team-b" not in refused.text


def test_a_token_over_the_web_is_made_listed_and_revoked_by_administrators_only(
    client: TestClient, filled: Context
) -> None:
    admin, reader = header(filled, "admin"), header(filled, "read")
    body = {"principal": "trainer", "allow": ["register:team-a-"], "expires_s": 3600.0}
    assert client.post("/v1/tokens", json=body, headers=reader).status_code == 403
    made = client.post("/v1/tokens", json=body, headers=admin)
    assert made.status_code == 201
    assert made.json()["permissions"] == ["register:team-a-"]
    listed = client.get("/v1/tokens", headers=admin)
    assert made.json()["secret"] not in listed.text
    assert next(item for item in listed.json() if item["principal"] == "trainer")["expired"] is False
    assert client.delete(f"/v1/tokens/{made.json()['id']}", headers=admin).status_code == 204
    bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
    assert client.get("/v1/refs/tiny", headers=bearer).json()["code"] == "TOKEN_INVALID"
    assert client.delete("/v1/tokens/nobody", headers=admin).status_code == 404


def test_a_token_ends_at_its_time(filled: Context) -> None:
    made = tokens.create(filled, "ci", ("read",), expires_s=3600.0)
    assert tokens.authenticate(filled, made.secret).grants.has("read")
    for seconds in (0.0, -1.0, 1e12, float("nan")):
        with pytest.raises(UsageProblemError) as caught:
            tokens.create(filled, "ci", ("read",), expires_s=seconds)
        assert caught.value.code == "EXPIRY_INVALID"


def operations(client: TestClient) -> list[tuple[str, str]]:
    """Method and path of every operation, with something in the place of each parameter."""
    paths = client.get("/openapi.json").json()["paths"]
    found = [(method.upper(), re.sub(r"{[^}]*}", "x", path)) for path, methods in paths.items() for method in methods]
    assert len(found) > 50
    return found


def test_every_operation_but_health_needs_a_token_and_every_change_a_permission(
    client: TestClient, filled: Context
) -> None:
    other = header(filled, "read:zzz-")
    for method, path in operations(client):
        if not path.startswith("/v1/explanations") and path.startswith("/v1"):
            nobody = client.request(method, path)
            assert nobody.status_code == 401, (method, path)
            assert nobody.headers["www-authenticate"] == "Bearer"
        if method not in ("GET", "HEAD"):
            assert client.request(method, path, headers=other).status_code == 403, (method, path)


def test_open_reads_make_no_work(filled: Context) -> None:
    opened = TestClient(create_app(filled, open_reads=True))
    assert opened.get("/v1/refs/tiny").status_code == 200
    for method, path in operations(opened):
        if method not in ("GET", "HEAD"):
            assert opened.request(method, path).status_code == 401, (method, path)


def test_whoever_asked_for_a_job_may_look_at_it_without_reading_anything_else(
    client: TestClient, filled: Context
) -> None:
    mine = header(filled, "compose:team-a-")
    other = {"Authorization": f"Bearer {tokens.create(filled, 'somebody else', ('compose',)).secret}"}
    body = SPEC | {"name": "team-a-mix"}
    made = client.post("/v1/compositions", json=body, headers=mine).json()["id"]
    assert client.get(f"/v1/jobs/{made}", headers=mine).status_code == 200
    assert client.get("/v1/jobs", headers=mine).status_code == 403
    assert client.get("/v1/jobs/nobody", headers=mine).status_code == 404
    assert client.get(f"/v1/jobs/{made}", headers=other).status_code == 403
