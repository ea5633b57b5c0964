"""A server's refusal about bytes, as the error class it was there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx2

from registry.errors import (
    ConflictError,
    DigestMismatchError,
    InternalError,
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    Problem,
    ProblemError,
    PurgedError,
    RefusedError,
    SlowBodyError,
    TooLargeError,
    UnavailableError,
    UsageProblemError,
)

_CLASSES: Final[dict[int, type[ProblemError]]] = {
    401: NotAuthenticatedError,
    403: NotAllowedError,
    404: NotFoundError,
    408: SlowBodyError,
    409: ConflictError,
    410: PurgedError,
    413: TooLargeError,
    422: RefusedError,
    429: UnavailableError,
    500: InternalError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def refusal(answer: httpx2.Response) -> ProblemError:
    """The error that an answer tells; one that is no problem document, as of a proxy, is told by its status."""
    problems = _problems(answer)
    if any(problem.code == "BLOB_DIGEST_MISMATCH" for problem in problems):
        return DigestMismatchError(*problems)
    return _CLASSES.get(answer.status_code, UsageProblemError)(*problems)


def _problems(answer: httpx2.Response) -> list[Problem]:
    document = answer.json() if answer.headers.get("Content-Type", "").startswith("application/problem+json") else {}
    told = document.get("errors", []) if isinstance(document, Mapping) else []
    return [
        Problem(
            code=str(item["code"]),
            path=tuple(_step(step) for step in str(item["path"]).split("/")[1:]),
            expected=str(item["expected"]),
            observed=str(item["observed"]),
            hint=str(item["hint"]),
        )
        for item in told
    ] or [
        Problem(
            code="SERVER_REFUSED",
            expected="success",
            observed=f"{answer.status_code} {answer.reason_phrase} from {answer.request.url.path}",
            hint="Ask whoever runs the server, or what stands before it.",
        )
    ]


def _step(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
