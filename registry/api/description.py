"""The contract (`/openapi.json`): what FastAPI derives from the routes, and every refusal that a route can answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from registry.api.bodies import ProblemOut
from registry.api.problems import HTTP_STATUS, MEDIA_TYPE, document_of
from registry.api.request_ids import HEADER
from registry.errors import (
    ConflictError,
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    PreconditionRequiredError,
    Problem,
    ProblemError,
    PurgedError,
    RangeUnsatisfiableError,
    RefusedError,
    SlowBodyError,
    StaleHeadError,
    TooLargeError,
    UnavailableError,
    UsageProblemError,
)

Document = dict[str, Any]
SCHEMA: Final = "ProblemOut"
TITLE: Final = "Adapter registry"
DESCRIPTION: Final = (
    "What exactly is this adapter, may these be composed and why not, what is live and how to go back. "
    "Errors are RFC 9457 problems: `type` names the class of error, `code` what is wrong, `errors` each thing that is. "
    "Lists are keyset pages: `next` in the body, or the Link header, leads on. "
    "Every answer carries `X-Request-Id`."
)
TAGS: Final[dict[str, str]] = {
    "reading": "References, manifests, names, lineage, differences.",
    "registration": "Bases and adapters come in: by blobs that were uploaded before, or by one form.",
    "blobs": "Files by the digest of their content: in pieces that resume, and out by range.",
    "composition": "Decisions, and the work that becomes a job: compositions, conversions, exports.",
    "jobs": "What runs in the background, how far it is, and calling it off.",
    "publication": "Channels, generations, leases, policies.",
    "states": "What surrounds adapters: contracts, routers, continual states, evaluations, routes, releases.",
    "statements": "What is said about a thing; nothing said renames it.",
    "explanations": "What codes and recorded failures mean.",
    "administration": "Tokens, webhooks, verification, purges, garbage collection.",
    "operations": "Whether the server lives and can work, and its figures.",
}

_ADDED: Final = (404, 409, 410, 422)
_SAID: Final = (404, 409, 410, 422)
_FOUND: Final = (404, 410, 422)
REFUSALS: Final[Mapping[str, tuple[int, ...]]] = {
    "get_ref": _FOUND,
    "get_manifests": _FOUND,
    "get_manifest": _FOUND,
    "get_manifest_files": _FOUND,
    "get_weight": _FOUND,
    "get_lineage": _FOUND,
    "get_diff": _FOUND,
    "get_names": (),
    "get_failures": (),
    "get_failure": (404,),
    "get_explanation": (404,),
    "post_adapter": _ADDED,
    "post_base": _ADDED,
    "post_declared_base": _ADDED,
    "post_inspection": _ADDED,
    "post_compute_contract": _ADDED,
    "get_contract_diff": _FOUND,
    "post_router": _ADDED,
    "post_continual_state": _ADDED,
    "get_state_report": _FOUND,
    "post_evaluation": _ADDED,
    "get_evaluation_report": _FOUND,
    "post_resolved_route": _ADDED,
    "post_transaction": _ADDED,
    "post_release": _ADDED,
    "post_labels": _SAID,
    "post_attestation": _SAID,
    "post_yank": _SAID,
    "post_alias": _SAID,
    "post_verification": _FOUND,
    "post_purge": _SAID,
    "post_collection": (),
    "post_admission": _ADDED,
    "post_composition": _ADDED,
    "post_conversion": _ADDED,
    "post_export": _ADDED,
    "preview_composition": _ADDED,
    "preview_release": _ADDED,
    "get_jobs": (),
    "get_job": (404,),
    "delete_job": (404,),
    "get_job_events": (404,),
    "get_channels": (),
    "get_generations": (404,),
    "get_generation": (404,),
    "get_kv_identity": (404, 410),
    "post_generation": (404, 409, 410, 412, 422, 428),
    "post_rollback": (404, 409, 410, 412, 422, 428),
    "post_lease": (404, 409),
    "get_leases": (404,),
    "get_leases_of_holder": (),
    "put_lease": (404, 409),
    "delete_lease": (404, 409),
    "get_policy": (),
    "put_policy": (422,),
    "post_token": (422,),
    "get_tokens": (),
    "delete_token": (404,),
    "post_webhook": (422,),
    "get_webhooks": (),
    "delete_webhook": (404,),
    "get_deliveries": (404,),
    "post_upload": (409, 422),
    "get_upload": (404,),
    "head_upload": (404,),
    "patch_upload": (404, 409, 416, 422),
    "put_upload": (404, 409, 422),
    "delete_upload": (404, 409),
    "head_blob": (404, 410),
    "get_blob": (404, 410, 416, 422),
    "put_blob": (409, 422),
}
"""Refusals of each operation beside those that every one has."""
NOT_MODIFIED: Final = ("get_ref", "get_manifest", "get_generations")
"""Operations that answer 304 to an `If-None-Match` that still holds."""


class Described(FastAPI):
    """An application whose description is complete; it is made when it is first asked for."""

    def openapi(self) -> Document:
        """See `FastAPI`."""
        if self.openapi_schema is None:
            self.openapi_schema = _described(self)
        return self.openapi_schema


def operation_id(route: APIRoute) -> str:
    """The name of its function, which is unique among them."""
    return route.name


def _described(app: FastAPI) -> Document:
    tags = [{"name": name, "description": text} for name, text in TAGS.items()]
    document = get_openapi(title=TITLE, version=app.version, description=DESCRIPTION, routes=app.routes, tags=tags)
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= _problem_schema()
    for path, operation in _operations(document):
        _complete(path, operation)
        _show_example(operation, schemas)
    return document


def _operations(document: Document) -> Iterator[tuple[str, Document]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def _complete(path: str, operation: Document) -> None:
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422", "")):
        del answers["422"]
    if path.startswith("/v1"):
        for status in sorted({*_common(operation), *REFUSALS.get(operation["operationId"], ())}):
            answers[str(status)] = _refusal(status)
    made = answers.get("201", {})
    if "/Added" in str(made.get("content")):
        answers["200"] = {**made, "description": "It was held already; `created` is false"}
    if operation["operationId"] in NOT_MODIFIED:
        answers["304"] = {"description": "It is still what the caller has", "headers": {"ETag": _text("The same tag")}}
    for answer in answers.values():
        answer.setdefault("headers", {})[HEADER] = _text("The name of the request, given or drawn")


def _common(operation: Document) -> Iterator[int]:
    yield from (401, 403, 503)
    if operation.get("parameters") or "requestBody" in operation:
        yield 400
    if "requestBody" in operation:
        yield from (408, 413)


def _show_example(operation: Document, schemas: Document) -> None:
    """The example of a body where tools look for it, beside the reference to its schema."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
        examples = schema.pop("examples", None) or named.get("examples")
        if kind == "application/json" and "example" not in content:
            content["example"] = examples[0] if examples else _of_fields(named)


def _of_fields(schema: Document) -> Document:
    """An example of the fields that have one."""
    fields = schema.get("properties", {}).items()
    return {name: field["examples"][0] for name, field in fields if "examples" in field}


def _problem_schema() -> Document:
    schema = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), SCHEMA: schema}


def _refusal(status: int) -> Document:
    """A refusal with its title and a whole problem as example."""
    error = _EXAMPLES[status]
    return {
        "description": HTTP_STATUS[type(error)][1],
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{SCHEMA}"}, "example": document_of(error)}},
    }


def _text(description: str) -> Document:
    return {"description": description, "schema": {"type": "string"}}


def _problem(code: str, path: tuple[str | int, ...], expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, path=path, expected=expected, observed=observed, hint=hint)


_NAMED: Final = "1-96 of a-z 0-9 . _ -, starting with a letter or digit"
_AGAIN: Final = "Look at the new head; if your change still applies, publish again on top of it."
_EXAMPLES: Final[Mapping[int, ProblemError]] = {
    400: UsageProblemError(_problem("NAME_INVALID", (), _NAMED, "'Support Bot'", "Correct the name.")),
    401: NotAuthenticatedError(
        _problem(
            "TOKEN_MISSING", (), "Authorization: Bearer TOKEN", "no token", "Make one with `registry token create`."
        )
    ),
    403: NotAllowedError(
        _problem("PERMISSION_MISSING", (), "a token that allows publish:prod-bot", "read", "Ask an administrator.")
    ),
    404: NotFoundError(_problem("NAME_UNKNOWN", (), "a name qa", "nothing", "List the names with `registry ls`.")),
    408: SlowBodyError(_problem("BODY_SLOW", (), "the rest of the body", "nothing for 30 s", "Send it again.")),
    409: ConflictError(
        _problem("NAME_TAKEN_BY_KIND", (), "a name of kind adapter", "qa of kind base", "Choose another name.")
    ),
    410: PurgedError(
        _problem("VERSION_PURGED", (), "something that was not purged", "qa@1", "Use another version or name.")
    ),
    412: StaleHeadError(_problem("GENERATION_STALE", ("channel", "bot"), "g41 as the head of bot", "g42", _AGAIN), 42),
    413: TooLargeError(
        _problem(
            "BODY_TOO_LARGE", (), "at most 268435456 bytes", "more", "Upload the files in pieces: POST /v1/uploads."
        )
    ),
    416: RangeUnsatisfiableError(
        _problem("UPLOAD_OFFSET", ("Upload-Offset",), "1048576", "0", "Go on where the upload is."), 1_048_576
    ),
    422: RefusedError(
        _problem("FACTOR_UNPAIRED", ("query",), "lora_A and lora_B", "lora_A alone", "Save the adapter again.")
    ),
    428: PreconditionRequiredError(
        _problem("IF_MATCH_REQUIRED", ("If-Match",), '"gN", the head you know', "no If-Match header", _AGAIN)
    ),
    503: UnavailableError(
        _problem("DATABASE_BUSY", (), "a database that answers", "locked", "Other changes hold it; try again.")
    ),
}
"""One refusal for each status, as it is answered."""
