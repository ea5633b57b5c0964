"""Reading over HTTP: references, lists page by page, names, lineage, differences, explanations."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.service.context import Context
from tests.support import tiny
from tests.support.web import Api


def digest_of(api: Api, ref: str) -> str:
    found: str = api.get(f"/v1/refs/{ref}").json()["digest"]
    return found


def test_every_form_of_a_reference_means_the_same_thing(shelf: Api) -> None:
    whole = digest_of(shelf, "one")
    shelf.post("/v1/aliases", {"ref": "one@1", "alias": "stable"})
    shelf.publish("bot", "one", 0)
    for ref in ("one@1", "one@stable", whole, whole[:20], "channel:bot", "channel:bot@g1"):
        assert digest_of(shelf, ref) == whole
    shown = shelf.get(f"/v1/manifests/{whole}")
    assert shown.json()["refs"] == ["one@1"]
    assert shown.headers["X-Registry-Digest"] == whole
    assert shown.headers["ETag"].startswith(f'"{whole}')


def test_a_reader_who_has_the_answer_gets_304_until_something_is_said(shelf: Api) -> None:
    for path in ("/v1/refs/one", f"/v1/manifests/{digest_of(shelf, 'one')}"):
        tag = shelf.get(path).headers["ETag"]
        again = shelf.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert "content-type" not in again.headers
        assert shelf.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
        assert shelf.get(path, headers={"If-None-Match": "*"}).status_code == 304
        shelf.post("/v1/yanks", {"ref": "one", "reason": f"because of {path[4:8]}"})
        now = shelf.get(path, headers={"If-None-Match": tag})
        assert now.status_code == 200
        assert now.headers["ETag"] != tag


def test_a_list_is_walked_page_by_page_with_its_filters(stocked: Api) -> None:
    whole = list(stocked.walk("/v1/manifests?limit=500"))
    for limit in (1, 2, 3):
        assert list(stocked.walk(f"/v1/manifests?limit={limit}")) == whole
        found = list(stocked.walk(f"/v1/manifests?kind=adapter&base=tiny@1&family=lora&limit={limit}"))
        assert [item["refs"] for item in found] == [["three@1"], ["two@1"], ["one@1"]]
    assert list(stocked.walk("/v1/manifests?kind=composition")) == []
    assert list(stocked.walk("/v1/manifests?outcome=refused&method=cat")) == []


def test_a_list_by_labels_shows_what_has_all_of_them_now(stocked: Api) -> None:
    def found(query: str) -> set[str]:
        return {item["refs"][0] for item in stocked.walk(f"/v1/manifests?limit=1&{query}")}

    stocked.post("/v1/labels", {"ref": "one", "labels": {"team": "red", "stage": "draft"}})
    stocked.post("/v1/labels", {"ref": "two", "labels": {"team": "red"}})
    stocked.post("/v1/labels", {"ref": "three", "labels": {"team": "blue"}})
    assert found("label=team%3Dred") == {"one@1", "two@1"}
    assert found("label=team%3Dred&label=stage%3Ddraft") == {"one@1"}
    stocked.post("/v1/labels", {"ref": "one", "labels": {"team": None}})
    assert found("label=team%3Dred") == {"two@1"}
    assert found("label=team%3Dred&label=stage%3Ddraft") == set()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("after=nowhere", "PAGE_TOKEN_INVALID"),
        ("limit=0", "REQUEST_INVALID"),
        ("limit=501", "REQUEST_INVALID"),
        ("kind=thing", "REQUEST_INVALID"),
        ("label=team", "REQUEST_INVALID"),
        ("family=a%00b", "ADDRESS_INVALID"),
        ("base=No%20Name", "NAME_INVALID"),
    ],
)
def test_a_query_that_cannot_be_read_is_a_problem(web: Api, query: str, code: str) -> None:
    answer = web.get(f"/v1/manifests?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_is_not_there_or_purged_is_told_apart(shelf: Api) -> None:
    assert shelf.get("/v1/refs/nobody").json()["type"] == "urn:adapter-registry:not-found"
    digest = digest_of(shelf, "one")
    shelf.post("/v1/purges", {"ref": "one", "reason": "personal data"})
    gone = shelf.get("/v1/refs/one@1")
    assert (gone.status_code, gone.json()["type"]) == (410, "urn:adapter-registry:purged")
    assert shelf.get(f"/v1/manifests/{'blake3:' + '0' * 64}").status_code == 404
    assert shelf.get(f"/v1/manifests/{digest}").status_code == 200
    assert shelf.get("/v1/refs/No Name").status_code == 400
    assert shelf.get("/v1/manifests/blake3:xyz").json()["code"] == "REF_INVALID"


def test_files_are_those_that_were_sent(shelf: Api, tmp_path: Path) -> None:
    files = shelf.get(f"/v1/manifests/{digest_of(shelf, 'one')}/files").json()
    assert {file["path"]: file["size"] for file in files} == {
        path.name: path.stat().st_size for path in (tmp_path / "one").iterdir()
    }
    fetched = shelf.get(f"/v1/blobs/{files[0]['blob']}")
    assert fetched.content == (tmp_path / "one" / files[0]["path"]).read_bytes()


def test_lineage_and_differences_are_answered(shelf: Api) -> None:
    shelf.publish("bot", "one", 0)
    down = shelf.get("/v1/lineage/tiny?direction=down&live=true").json()
    assert {"one@1", "two@1"} <= {ref for node in down["nodes"] for ref in node["refs"]}
    assert down["live"] == ["bot@g1"]
    up = shelf.get("/v1/lineage/one").json()
    assert [node["kind"] for node in up["nodes"] if node["depth"]] == ["base"]
    assert shelf.get("/v1/lineage/one?direction=sideways").status_code == 400
    rows = shelf.get("/v1/diff?left=one&right=two").json()
    assert rows
    assert all("/tensor" in row["path"] for row in rows)
    assert shelf.get("/v1/diff?left=one&right=one").json() == []
    assert shelf.get("/v1/diff?left=one").status_code == 400


def test_names_are_listed_by_prefix_and_kind_with_their_newest_version(stocked: Api, tmp_path: Path) -> None:
    stocked.add_adapter(tiny.write_adapter(tmp_path / "again", 9), "two")
    names = list(stocked.walk("/v1/names?limit=1"))
    assert [(item["name"], item["kind"], item["version"]) for item in names] == [
        ("one", "adapter", 1),
        ("three", "adapter", 1),
        ("tiny", "base", 1),
        ("two", "adapter", 2),
    ]
    assert [item["name"] for item in stocked.walk("/v1/names?prefix=t&kind=adapter&limit=1")] == ["three", "two"]
    stocked.post("/v1/purges", {"ref": "one", "reason": "r"})
    gone = next(iter(stocked.walk("/v1/names?prefix=one")))
    assert (gone["version"], gone["digest"]) == (None, None)


def test_failures_and_codes_are_explained(web: Api) -> None:
    failures = web.get("/v1/failures").json()
    assert len(failures) > 100
    routed = web.get("/v1/failures?family=routed").json()
    assert routed
    assert {item["family"] for item in routed} == {"routed"}
    assert web.get(f"/v1/failures/{failures[0]['id']}").json() == failures[0]
    assert web.get("/v1/failures/none").json()["code"] == "FAILURE_UNKNOWN"
    assert web.get("/v1/explanations/YANKED").json()["code"] == "YANKED"
    unknown = web.get("/v1/explanations/NO_SUCH")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:adapter-registry:code-unknown")


def test_a_weight_of_a_base_is_given_as_it_lies_and_what_is_no_such_weight_is_not_found(
    shelf: Api, light: Context
) -> None:
    base, name = digest_of(shelf, "tiny"), "encoder.layer.1.attention.self.key.weight"
    answer = shelf.get(f"/v1/manifests/{base}/weight", params={"name": name})
    assert (answer.status_code, answer.content) == (200, tiny.base_tensors()[name].tobytes())
    for other, status, code in (
        (f"{base}/weight?name=pooler", 404, "WEIGHT_AWAY"),
        (f"{digest_of(shelf, 'one')}/weight?name={name}", 400, "KIND_UNEXPECTED"),
    ):
        refused = shelf.get(f"/v1/manifests/{other}")
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert shelf.allowed(light, "read:other-").get(f"/v1/manifests/{base}/weight?name={name}").status_code == 403
