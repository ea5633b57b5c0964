"""One table: which error class becomes which HTTP status (RFC 9457 problem+json)."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from registry.api.request_ids import HEADER
from registry.errors import (
    CancelledError,
    ConditionError,
    ConflictError,
    DecisionError,
    DecisionRefusedError,
    DigestMismatchError,
    InternalError,
    NotAcknowledgedError,
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
    error_document,
)
from registry.service.problem_types import type_of
from schemas.canonical import JsonObject
from validators.errors import CodeUnknownError, CouldNotCheckError

HTTP_STATUS: Final[dict[type[ProblemError], tuple[int, str]]] = {
    InternalError: (500, "The program failed"),
    CancelledError: (409, "The work was called off"),
    UsageProblemError: (400, "The request cannot be read"),
    PreconditionRequiredError: (428, "Say which head you expect"),
    RangeUnsatisfiableError: (416, "There are no bytes at this place"),
    SlowBodyError: (408, "The body did not arrive in time"),
    RefusedError: (422, "The content is refused"),
    TooLargeError: (413, "Too many bytes"),
    DecisionError: (422, "The composition may not proceed"),
    DecisionRefusedError: (422, "The composition is refused"),
    NotFoundError: (404, "Not found"),
    PurgedError: (410, "Purged"),
    ConflictError: (409, "Another change got there first"),
    StaleHeadError: (412, "The channel has another head"),
    NotAllowedError: (403, "Not allowed"),
    NotAuthenticatedError: (401, "A token is needed"),
    CouldNotCheckError: (500, "The decision could not be made"),
    CodeUnknownError: (404, "No such code"),
    DigestMismatchError: (422, "The bytes do not have this digest"),
    UnavailableError: (503, "Not available now, try again"),
    NotAcknowledgedError: (422, "The composition needs acknowledgements"),
    ConditionError: (422, "A condition needs an acknowledgement"),
}

_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
MEDIA_TYPE: Final = "application/problem+json"
_SEE: Final = "See /openapi.json for the paths of this server and the form of each request."
_BY_FRAMEWORK: Final = {
    404: ("ROUTE_UNKNOWN", "a path of this server"),
    405: ("HTTP_METHOD_UNKNOWN", "a method that this path has"),
}


def status_of(error: ProblemError) -> tuple[int, str]:
    """Status and title of the nearest class that has a row."""
    return next(HTTP_STATUS[kind] for kind in type(error).__mro__ if kind in HTTP_STATUS)


def document_of(error: ProblemError) -> JsonObject:
    """An error as RFC 9457 writes it."""
    status, title = status_of(error)
    return {"type": type_of(error), "title": title, "status": status, "detail": str(error), **error_document(error)}


def problem_response(_request: Request, error: Exception) -> Response:
    """The exception handler of `ProblemError`."""
    if not isinstance(error, ProblemError):
        raise error
    # escaped, for what a caller sent may be no text that UTF-8 can carry
    body = json.dumps(document_of(error), ensure_ascii=True)
    return Response(body, status_of(error)[0], _headers(error), MEDIA_TYPE)


def fault_response(request: Request, _error: Exception) -> Response:
    """A fault of the program, which the server logs: what it was stays there, the name of the request leads to it."""
    named = getattr(request.state, "request_id", "unknown")
    fault = problem_response(
        request,
        InternalError(
            Problem(
                code="PROGRAM_FAULT",
                expected="an answer",
                observed=f"an error that the program does not name, in request {named}",
                hint="Report it; the log of the server has it under the name of the request.",
            )
        ),
    )
    # nothing that surrounds the routes sees this answer
    fault.headers[HEADER] = named
    return fault


def http_response(request: Request, error: Exception) -> Response:
    """What the framework refuses itself: an unknown path, a method that a path does not have, a form out of form."""
    if not isinstance(error, HTTPException):
        raise error
    code, expected = _BY_FRAMEWORK.get(error.status_code, ("REQUEST_INVALID", "a request of the documented form"))
    kind = NotFoundError if error.status_code == 404 else UsageProblemError
    observed = f"{request.method} {request.url.path}: {error.detail}"
    found = kind(Problem(code=code, expected=expected, observed=observed[:300], hint=_SEE))
    title = HTTPStatus(error.status_code).phrase
    body = document_of(found) | {"status": error.status_code, "title": title}
    headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
    return Response(json.dumps(body), error.status_code, headers, MEDIA_TYPE)


def _allowed(request: Request) -> str:
    """Every method of a path; the framework names those of the first route alone."""
    routes = request.app.routes
    asked = {method: {**request.scope, "method": method} for method in _METHODS}
    return ", ".join(
        method for method, scope in asked.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)
    )


def invalid_response(request: Request, error: Exception) -> Response:
    """A request that does not have the documented form: the same body as any other usage problem."""
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [
        Problem(
            code="REQUEST_INVALID",
            path=tuple(item["loc"][1:]),
            expected=item["msg"],
            observed=repr(item.get("input"))[:120],
            hint=_SEE,
        )
        for item in error.errors()
    ]
    return problem_response(request, UsageProblemError(*problems))


def _headers(error: ProblemError) -> dict[str, str]:
    if isinstance(error, NotAuthenticatedError):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, UnavailableError):
        return {"Retry-After": "1"}
    if isinstance(error, StaleHeadError):
        return {"ETag": f'"g{error.head}"'}
    if isinstance(error, RangeUnsatisfiableError):
        return {"Content-Range": f"bytes */{error.size}", "Upload-Offset": str(error.size)}
    return {}
