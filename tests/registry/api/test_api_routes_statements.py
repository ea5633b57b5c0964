"""Statements, purges, verification and collection over HTTP."""

from __future__ import annotations

import pytest

from registry.service.context import Context
from tests.support.web import Api


def statements(api: Api, ref: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.get(f"/v1/refs/{ref}").json()["statements"]
    return found


def test_labels_and_attestations_are_said_about_the_content(stocked: Api) -> None:
    said = stocked.post("/v1/labels", {"ref": "one@1", "labels": {"team": "red", "draft": None}})
    assert (said.status_code, said.json()["topic"]) == (201, "label")
    body = {"tested_by": "red team", "passed": True, "runs": 3, "share": 0.5, "sets": ["a", "b"], "note": None}
    attested = stocked.post("/v1/attestations", {"ref": "one", "body": body})
    assert (attested.status_code, attested.json()["topic"]) == (201, "note")
    kept = {str(item["topic"]): item["body"] for item in statements(stocked, "one") if item["topic"] != "provenance"}
    assert kept == {"label": {"team": "red", "draft": None}, "note": body}


def test_a_yank_blocks_what_is_new_until_it_is_taken_back(stocked: Api) -> None:
    assert stocked.publish("bot", "one", 0).status_code == 201
    assert stocked.post("/v1/yanks", {"ref": "one", "reason": "wrong language"}).status_code == 201
    refused = stocked.publish("bot", "one", 1)
    assert (refused.status_code, refused.json()["code"]) == (422, "YANKED")
    assert stocked.get("/v1/refs/channel:bot").status_code == 200
    assert next(iter(stocked.walk("/v1/manifests?kind=adapter&limit=500")))["state"] is None
    assert stocked.post("/v1/yanks", {"ref": "one", "reason": "checked", "undo": True}).status_code == 201
    assert stocked.publish("bot", "one", 1).status_code == 201


def test_an_alias_moves_from_version_to_version(stocked: Api) -> None:
    moved = stocked.post("/v1/aliases", {"ref": "one@1", "alias": "stable"})
    assert (moved.status_code, moved.json()) == (201, {"name": "one", "alias": "stable", "version": 1, "event": 1})
    assert stocked.post("/v1/aliases", {"ref": "one@1", "alias": "g3"}).json()["code"] == "ALIAS_INVALID"
    assert stocked.post("/v1/aliases", {"ref": "one@7", "alias": "next"}).json()["code"] == "VERSION_UNKNOWN"
    by_digest = stocked.post("/v1/aliases", {"ref": stocked.get("/v1/refs/one").json()["digest"], "alias": "next"})
    assert (by_digest.status_code, by_digest.json()["code"]) == (400, "ALIAS_NEEDS_A_VERSION")


def test_a_purge_waits_for_what_is_live_and_burns_the_version(stocked: Api) -> None:
    stocked.publish("bot", "one", 0)
    live = stocked.post("/v1/purges", {"ref": "one", "reason": "personal data"})
    assert (live.status_code, live.json()["code"]) == (409, "STILL_LIVE")
    stocked.publish("bot", "two", 1)
    purged = stocked.post("/v1/purges", {"ref": "one", "reason": "personal data"})
    assert purged.status_code == 201
    assert purged.json()["removed"]
    assert stocked.get(f"/v1/blobs/{purged.json()['removed'][0]}").status_code in (404, 410)
    assert stocked.get("/v1/refs/one").status_code == 410
    assert stocked.post("/v1/yanks", {"ref": "one", "reason": "late"}).status_code == 410


def test_verification_says_what_was_checked_and_finds_a_lost_head(stocked: Api) -> None:
    whole = stocked.post("/v1/verifications", {"deep": True})
    assert (whole.status_code, whole.json()["faults"]) == (200, [])
    assert whole.json()["tensors"] > 0
    kept = stocked.post("/v1/verifications", {"expect_head": whole.json()["head"]})
    assert kept.json()["faults"] == []
    lost = stocked.post("/v1/verifications", {"expect_head": "0" * 64})
    assert [fault["code"] for fault in lost.json()["faults"]] == ["HEAD_MISSING"]
    one = stocked.post("/v1/verifications", {"ref": "one", "deep": True, "recompute": True})
    assert (one.json()["manifests"], one.json()["faults"]) == (2, [])
    assert stocked.post("/v1/verifications", {"ref": "nobody"}).status_code == 404


def test_a_collection_removes_what_nothing_names_and_nothing_else(stocked: Api) -> None:
    left = stocked.put_blob(b"nobody names these bytes")
    kept = stocked.post("/v1/collections", {"grace_s": 3600.0})
    assert (kept.status_code, kept.json()["removed"]) == (200, [])
    # the upload that brought it holds it until it expires; what remains is checked to be whole
    stocked.post("/v1/collections", {"grace_s": 0.0})
    assert stocked.post("/v1/verifications", {"deep": True}).json()["faults"] == []
    assert stocked.get(f"/v1/blobs/{left}").status_code in (200, 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("labels", {"ref": "one", "labels": {}}),
        ("labels", {"ref": "one", "labels": {"a=b": "c"}}),
        ("labels", {"ref": "one", "labels": {"a": "b\x00c"}}),
        ("labels", {"ref": "one", "labels": {"a": 3}}),
        ("labels", {"ref": "one"}),
        ("attestations", {"ref": "one", "body": {}}),
        ("attestations", {"ref": "one", "body": {"": "x"}}),
        ("attestations", {"ref": "one", "body": {"nested": {"no": "objects"}}}),
        ("yanks", {"ref": "one", "reason": ""}),
        ("yanks", {"ref": "one", "reason": "x", "forever": True}),
        ("purges", {"ref": "one"}),
        ("collections", {"grace_s": -1}),
        ("verifications", {"deep": "yes"}),
    ],
)
def test_a_body_out_of_form_is_a_problem_of_the_request(shelf: Api, path: str, body: object) -> None:
    answer = shelf.post(f"/v1/{path}", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "REQUEST_INVALID")
    assert answer.json()["errors"][0]["path"].startswith("/") or "ref" not in str(body)


def test_what_administrators_do_takes_their_permission(shelf: Api, light: Context) -> None:
    other = shelf.allowed(light, "read", "register", "compose", "publish")
    for path, body in (
        ("purges", {"ref": "one", "reason": "x"}),
        ("collections", {}),
        ("verifications", {}),
    ):
        answer = other.post(f"/v1/{path}", body)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:adapter-registry:not-allowed")
    reader = shelf.allowed(light, "read")
    for path in ("labels", "attestations", "yanks", "aliases", "inspections"):
        assert reader.post(f"/v1/{path}", {}).status_code == 403
    assert (
        shelf.allowed(light, "register:two").post("/v1/labels", {"ref": "one", "labels": {"a": "b"}}).status_code == 403
    )
