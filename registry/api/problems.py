"""One table: which error class becomes which HTTP status (RFC 9457 problem+json)."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

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


def status_of(error: ProblemError) -> tuple[int, str]:
    """Status and title of the nearest class that has a row."""
    return next(HTTP_STATUS[kind] for kind in type(error).__mro__ if kind in HTTP_STATUS)


def problem_response(_request: Request, error: Exception) -> JSONResponse:
    """The exception handler of `ProblemError`."""
    if not isinstance(error, ProblemError):
        raise error
    status, title = status_of(error)
    body = {"type": type_of(error), "title": title, "status": status, "detail": str(error), **error_document(error)}
    return JSONResponse(body, status, _headers(error), media_type="application/problem+json")


def invalid_response(request: Request, error: Exception) -> JSONResponse:
    """A request that does not have the documented form: the same body as any other usage problem."""
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [
        Problem(
            code="REQUEST_INVALID",
            path=tuple(item["loc"][1:]),
            expected=item["msg"],
            observed=repr(item.get("input"))[:120],
            hint="See /openapi.json for the form of this request.",
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
