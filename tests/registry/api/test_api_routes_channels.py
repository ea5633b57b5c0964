"""Channels over HTTP: the head that is expected, pages, one generation, policies, leases, requests sent twice."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from registry.service.context import Context
from tests.support.web import Api, bearer

PATH = "/v1/channels/bot/generations"


def test_channels_and_generations_are_walked_page_by_page(stocked: Api) -> None:
    for head in range(5):
        assert stocked.publish("bot", ("one", "two")[head % 2], head).headers["ETag"] == f'"g{head + 1}"'
    stocked.publish("aux", "three", 0)
    for limit in (1, 2, 50):
        assert [item["generation"] for item in stocked.walk(f"{PATH}?limit={limit}")] == [5, 4, 3, 2, 1]
        heads = [
            (item["channel"], item["generation"], item["live"]) for item in stocked.walk(f"/v1/channels?limit={limit}")
        ]
        assert heads == [("aux", 1, True), ("bot", 5, True)]
    assert stocked.get(f"{PATH}?after=nowhere").json()["code"] == "PAGE_TOKEN_INVALID"
    assert stocked.get("/v1/channels/none/generations").json()["code"] == "CHANNEL_UNKNOWN"


def test_a_reader_of_generations_gets_304_until_the_head_moves(shelf: Api) -> None:
    shelf.publish("bot", "one", 0)
    tag = shelf.get(PATH).headers["ETag"]
    assert tag == '"g1"'
    assert shelf.get(PATH, headers={"If-None-Match": tag}).status_code == 304
    shelf.publish("bot", "two", 1)
    assert shelf.get(PATH, headers={"If-None-Match": tag}).status_code == 200


def test_one_generation_and_its_cache_identity_are_answered(shelf: Api) -> None:
    shelf.publish("bot", "one", 0)
    shelf.publish("bot", "two", 1)
    first, second = (shelf.get(f"{PATH}/{number}").json() for number in (1, 2))
    assert (first["live"], second["live"]) == (False, True)
    assert (first["refs"], second["refs"]) == (["one@1"], ["two@1"])
    live = shelf.get("/v1/channels/bot/kv-identity").json()
    assert (live["generation"], live["kv_identity"]) == (2, second["kv_identity"])
    earlier = shelf.get("/v1/channels/bot/kv-identity?generation=1").json()
    assert earlier["kv_identity"] == first["kv_identity"]
    assert shelf.get(f"{PATH}/3").json()["code"] == "GENERATION_UNKNOWN"
    assert shelf.get("/v1/channels/bot/kv-identity?generation=3").status_code == 404
    assert shelf.get(f"{PATH}/0").status_code == 400


@pytest.mark.parametrize("tag", ["g0", '"0"', '"g-1"', '"g01"', "*", 'W/"g0"'])
def test_a_head_that_is_no_head_is_refused(shelf: Api, tag: str) -> None:
    answer = shelf.post(PATH, {"refs": ["one"]}, headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["code"]) == (400, "IF_MATCH_INVALID")


def test_a_change_without_or_with_an_old_head_says_what_it_needs(stocked: Api) -> None:
    missing = stocked.post(PATH, {"refs": ["one"]})
    assert (missing.status_code, missing.json()["type"]) == (428, "urn:adapter-registry:precondition-required")
    stocked.publish("bot", "one", 0)
    stale = stocked.publish("bot", "two", 0)
    assert (stale.status_code, stale.json()["head"], stale.headers["ETag"]) == (412, "g1", '"g1"')
    assert stale.json()["type"] == "urn:adapter-registry:stale-head"
    nothing = stocked.post("/v1/channels/bot/rollback", {}, headers={"If-Match": '"g1"'})
    assert (nothing.status_code, nothing.json()["code"]) == (404, "NOTHING_TO_ROLL_BACK_TO")


def test_the_same_request_under_a_key_is_done_once_and_answered_again(stocked: Api) -> None:
    first = stocked.publish("bot", "one", 0, Idempotency_Key="k1")
    assert (first.status_code, "Idempotency-Replayed" in first.headers) == (201, False)
    stocked.publish("bot", "two", 1)
    # the answer was lost; meanwhile the head moved, and the caller asks again as it did
    again = stocked.publish("bot", "one", 0, Idempotency_Key="k1")
    assert (again.status_code, again.json(), again.headers["ETag"]) == (201, first.json(), '"g1"')
    assert again.headers["Idempotency-Replayed"] == "true"
    back = {"If-Match": '"g2"', "Idempotency-Key": "k2"}
    rolled = [stocked.post("/v1/channels/bot/rollback", {}, headers=back) for _ in range(2)]
    assert [answer.status_code for answer in rolled] == [201, 201]
    assert rolled[0].json() == rolled[1].json()
    assert [item["generation"] for item in stocked.walk(PATH)] == [3, 2, 1]


def test_a_key_belongs_to_one_request_of_one_caller(stocked: Api, context: Context) -> None:
    stocked.publish("bot", "one", 0, Idempotency_Key="k")
    for answer in (
        stocked.publish("bot", "two", 1, Idempotency_Key="k"),
        stocked.publish("aux", "one", 0, Idempotency_Key="k"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert stocked.publish("bot", "one", 0, Idempotency_Key="k" * 129).status_code == 400
    other = Api(stocked.client, bearer(context, "publish", principal="other"))
    assert other.publish("aux", "one", 0, Idempotency_Key="k").status_code == 201


def test_a_refusal_is_not_kept_under_a_key(stocked: Api) -> None:
    stocked.publish("bot", "one", 0)
    assert stocked.publish("bot", "two", 0, Idempotency_Key="k").status_code == 412
    assert stocked.publish("bot", "two", 1, Idempotency_Key="k").status_code == 201


def test_many_at_once_under_one_key_make_one_generation(stocked: Api) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: stocked.publish("bot", "one", 0, Idempotency_Key="k"), range(6)))
    assert {answer.status_code for answer in answers} == {201}
    assert {answer.json()["publication"] for answer in answers} == {answers[0].json()["publication"]}
    assert len(list(stocked.walk(PATH))) == 1


def test_a_composition_is_queued_once_under_a_key(shelf: Api) -> None:
    spec = {
        "name": "merged",
        "base": "tiny",
        "method": "cat",
        "space": "delta",
        "members": [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": 0.5}],
    }
    first = shelf.post("/v1/compositions", spec, headers={"Idempotency-Key": "k"})
    assert first.status_code == 202
    again = shelf.post("/v1/compositions", spec, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (again.headers["Location"], again.headers["Idempotency-Replayed"]) == (first.headers["Location"], "true")
    other = shelf.post("/v1/compositions", spec | {"name": "other"}, headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_policies_are_put_and_held_to(shelf: Api) -> None:
    assert shelf.get("/v1/channels/bot/policy").json() == {"evidence": "any", "evaluation": False}
    wanted = {"evidence": "content", "evaluation": True}
    assert shelf.ask("PUT", "/v1/channels/bot/policy", json=wanted).json() == wanted
    refused = shelf.publish("bot", "one", 0)
    assert (refused.status_code, refused.json()["code"]) == (422, "POLICY_EVALUATION")
    assert shelf.ask("PUT", "/v1/channels/bot/policy", json={"evidence": "hearsay"}).status_code == 400


def test_a_lease_is_taken_renewed_seen_and_released(stocked: Api) -> None:
    stocked.publish("bot", "one", 0)
    taken = stocked.post("/v1/channels/bot/leases", {"holder": "replica-7", "ttl_s": 60})
    assert (taken.status_code, taken.json()["generation"], taken.json()["held"]) == (201, 1, True)
    path = f"/v1/leases/{taken.json()['id']}"
    assert stocked.ask("PUT", path, json={"ttl_s": 120}).status_code == 200
    stocked.publish("bot", "two", 1)
    drain = stocked.get("/v1/channels/bot/leases").json()
    assert [(item["generation"], item["state"]) for item in drain["generations"]] == [(1, "draining"), (2, "live")]
    assert [item["id"] for item in stocked.get("/v1/leases?holder=replica-7").json()] == [taken.json()["id"]]
    assert stocked.ask("DELETE", path).json()["held"] is False
    assert stocked.ask("DELETE", path).json()["code"] == "LEASE_UNKNOWN"
    assert stocked.post("/v1/channels/bot/leases", {"holder": "r", "ttl_s": 0.5}).status_code == 400
    assert stocked.post("/v1/channels/none/leases", {"holder": "r"}).status_code == 404


def test_a_lease_that_ran_out_is_refused_at_once(stocked: Api) -> None:
    stocked.publish("bot", "one", 0)
    taken = stocked.post("/v1/channels/bot/leases", {"holder": "replica-7", "ttl_s": 1.0}).json()
    time.sleep(1.1)
    asked = time.monotonic()
    late = stocked.ask("PUT", f"/v1/leases/{taken['id']}", json={})
    assert (late.status_code, late.json()["code"]) == (409, "LEASE_EXPIRED")
    assert time.monotonic() - asked < 15


def test_publishing_takes_the_permission_for_the_channel(shelf: Api, light: Context) -> None:
    staging = shelf.allowed(light, "publish:staging-", "read")
    assert staging.publish("staging-bot", "one", 0).status_code == 201
    refused = staging.publish("bot", "one", 0)
    assert (refused.status_code, refused.json()["code"]) == (403, "PERMISSION_MISSING")
    assert shelf.allowed(light, "read", "register").publish("bot", "one", 0).status_code == 403
