"""The description of the service, and what every answer has whatever was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from registry.api.app import create_app
from registry.api.description import REFUSALS
from registry.api.problems import HTTP_STATUS
from registry.errors import PurgedError
from registry.service.composer import ComposeOrder
from registry.service.context import Context
from registry.service.problem_types import PREFIX, PROBLEM_TYPES, class_of, type_of
from registry.wiring import LazyComposer
from schemas.canonical import JsonObject
from schemas.errors import Problem
from schemas.manifests import KINDS
from tests.support.web import Api, opened

Operation = dict[str, Any]


@pytest.fixture
def operations(light: Context) -> dict[str, Operation]:
    """Every operation under its id, with its path and method."""
    document = create_app(light).openapi()
    listed = [
        operation | {"path": path, "method": method, "document": document}
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    found = {operation["operationId"]: operation for operation in listed}
    assert len(found) == len(listed)
    return found


def test_every_operation_is_told_in_words_under_a_known_tag(operations: dict[str, Operation]) -> None:
    for name, operation in operations.items():
        known = {tag["name"] for tag in operation["document"]["tags"]}
        assert operation["summary"], name
        assert operation["description"].endswith("."), name
        assert len(operation["tags"]) == 1, name
        assert set(operation["tags"]) <= known, name


def test_every_refusal_is_described_as_a_problem_with_an_example(operations: dict[str, Operation]) -> None:
    documented = {name for name, operation in operations.items() if operation["path"].startswith("/v1")}
    assert documented == set(REFUSALS)
    for name in documented:
        answers = operations[name]["responses"]
        assert {"401", "403", "503"} <= set(answers), name
        for status, answer in answers.items():
            if int(status) >= 400:
                content = answer["content"]["application/problem+json"]
                assert content["schema"] == {"$ref": "#/components/schemas/ProblemOut"}
                assert content["example"]["status"] == int(status)
                assert content["example"]["type"].startswith(PREFIX)


def test_every_v1_operation_takes_a_bearer_token(operations: dict[str, Operation]) -> None:
    schemes = next(iter(operations.values()))["document"]["components"]["securitySchemes"]
    assert [(name, scheme["scheme"]) for name, scheme in schemes.items()] == [("HTTPBearer", "bearer")]
    for name, operation in operations.items():
        if operation["path"].startswith("/v1"):
            assert operation["security"] == [{"HTTPBearer": []}], name


def bodies(operations: dict[str, Operation]) -> Iterator[tuple[Operation, dict[str, Any]]]:
    for operation in operations.values():
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            if kind == "application/json":
                yield operation, content


def test_every_json_body_has_an_example_that_has_the_documented_form(
    operations: dict[str, Operation], web: Api
) -> None:
    seen = 0
    for operation, content in bodies(operations):
        example = content["example"]
        path = operation["path"].replace("{name}", "bot").replace("{lease_id}", "0" * 32)
        answer = web.ask(operation["method"].upper(), path, json=example, headers={"If-Match": '"g0"'})
        code = answer.json().get("code")
        assert code != "REQUEST_INVALID", (path, answer.text)
        assert answer.status_code < 500, (path, answer.text)
        seen += 1
    assert seen > 20


def test_each_class_of_error_has_one_type_and_one_status() -> None:
    assert set(PROBLEM_TYPES.values()) == set(HTTP_STATUS)
    assert {"stale-head", "digest-mismatch", "not-acknowledged", "purged", "internal"} <= set(PROBLEM_TYPES)
    for slug, kind in PROBLEM_TYPES.items():
        assert class_of(PREFIX + slug) is kind
    gone = PurgedError(Problem(code="X_Y", expected="a", observed="b", hint="c"))
    assert type_of(gone) == "urn:adapter-registry:purged"
    assert class_of("about:blank") is None
    assert class_of("stale-head") is None


def test_the_kinds_of_the_list_are_those_there_are(operations: dict[str, Operation]) -> None:
    kind = next(item for item in operations["get_manifests"]["parameters"] if item["name"] == "kind")
    assert set(kind["schema"]["anyOf"][0]["enum"]) == set(KINDS)


def test_every_answer_names_its_request(web: Api) -> None:
    given = web.get("/v1/names", headers={"X-Request-Id": "train-42/try.1"})
    assert given.headers["X-Request-Id"] == "train-42/try.1"
    drawn = {web.get(path).headers["X-Request-Id"] for path in ("/healthz", "/v1/names", "/nowhere", "/v1/refs/none")}
    assert len(drawn) == 4
    odd = web.get("/v1/names", headers={"X-Request-Id": "a b\tc"})
    assert odd.headers["X-Request-Id"] != "a b\tc"


def test_paths_and_methods_that_are_not_there_are_problems_too(web: Api) -> None:
    unknown = web.get("/v1/nowhere")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "ROUTE_UNKNOWN")
    assert unknown.headers["content-type"] == "application/problem+json"
    wrong = web.ask("PATCH", "/v1/channels/bot/generations")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "HTTP_METHOD_UNKNOWN")
    assert wrong.headers["Allow"] == "GET, POST"


@pytest.mark.parametrize("path", ["/v1/refs/a%00b", "/v1/leases?holder=a%0Ab", "/v1/jobs/%7f", "/v1/names?prefix=%1F"])
def test_an_address_with_a_control_character_is_refused(web: Api, path: str) -> None:
    answer = web.get(path)
    assert (answer.status_code, answer.json()["code"]) == (400, "ADDRESS_INVALID")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "\\ud800", "document": {}}',
        '{"name": "x", "document": {"\\ud800": 1}}',
        '{"name": "x", "document": {"a": 1e400}}',
        '{"name": "x", "document": {"a": NaN}}',
        '{"\\ud800": 1}',
        '{"name": "x", "document": {"a": 123456789012345678901234567890}}',
        '{"name": "x", "document": ' + '{"a":' * 500 + "1" + "}" * 500 + "}",
    ],
)
def test_json_that_no_document_can_hold_is_refused(web: Api, text: str) -> None:
    for path in ("compute-contracts", "continual-states", "evaluations", "resolved-routes", "transactions"):
        sent = {"Content-Type": "application/json"}
        answer = web.ask("POST", f"/v1/{path}", content=text.encode(), headers=sent)
        assert answer.status_code in (400, 422), (path, answer.text)


class Broken(LazyComposer):
    """A composer that fails as no composer should."""

    def plan(self, order: ComposeOrder) -> JsonObject:
        """See `Composer`."""
        del order
        raise ZeroDivisionError("in the middle of nowhere")


@pytest.mark.usefixtures("shelf")
def test_a_fault_of_the_program_is_a_problem_that_tells_nothing_of_it(light: Context) -> None:
    spec = {
        "name": "merged",
        "base": "tiny",
        "method": "cat",
        "space": "delta",
        "members": [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": 0.5}],
    }
    with opened(replace(light, composer=Broken(1, 2**30))) as api:
        answer = api.post("/v1/previews/compositions?plan=true", spec, headers={"X-Request-Id": "r1"})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:adapter-registry:internal")
    assert answer.headers["X-Request-Id"] == "r1"
    assert "r1" in answer.text
    assert "nowhere" not in answer.text
