"""A server's refusal as the error class it was there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2
from pydantic import ValidationError

from registry.errors import (
    DecisionError,
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    Problem,
    ProblemError,
    PurgedError,
    RangeUnsatisfiableError,
    StaleHeadError,
    UnavailableError,
    UsageProblemError,
)
from registry.service.problem_types import class_of
from schemas.model import Record

PROBLEM_JSON: Final = "application/problem+json"
REQUEST_ID: Final = "X-Request-Id"
"""Every answer of a registry carries it."""
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
"""What says come again, whoever says it: a registry, or what stands before it."""
_NO_ROUTE: Final = frozenset({"ROUTE_UNKNOWN", "HTTP_METHOD_UNKNOWN"})
_UNSAID: Final[Mapping[int, type[ProblemError]]] = {
    401: NotAuthenticatedError,
    403: NotAllowedError,
    404: NotFoundError,
    410: PurgedError,
}
"""What a status says when the method is HEAD, whose answers have no body."""


class _Item(Record):
    code: str
    path: str
    expected: str
    observed: str
    hint: str

    def problem(self) -> Problem:
        path = tuple(step.replace("~1", "/").replace("~0", "~") for step in self.path.split("/")[1:])
        return Problem(code=self.code, path=path, expected=self.expected, observed=self.observed, hint=self.hint)


def refusal(answer: httpx2.Response) -> ProblemError:
    """The error that an answer tells; one that is no problem document is told by its status."""
    document = _document(answer)
    found = _unsaid(answer) if document is None else told(document)
    if found is None:
        return _foreign(answer)
    if found.code in _NO_ROUTE:
        return _route_missing(answer)
    if isinstance(found, NotAuthenticatedError) and "Authorization" not in answer.request.headers:
        return NotAuthenticatedError(_token_missing(answer))
    return found


def told(document: Mapping[str, Any]) -> ProblemError | None:
    """The error of a problem document; null for a document that tells none of this registry's."""
    kind = class_of(str(document.get("type", "")))
    try:
        problems = [_Item.model_validate(item).problem() for item in document.get("errors", ())]
    except (ValidationError, TypeError):
        return None
    if kind is None or not problems:
        return None
    if issubclass(kind, DecisionError):
        return kind(*problems, admission=str(document.get("admission")), decision=dict(document.get("decision") or {}))
    if issubclass(kind, StaleHeadError):
        return kind(problems[0], int(str(document.get("head", "g0")).removeprefix("g")))
    if issubclass(kind, RangeUnsatisfiableError):
        return kind(problems[0], int(document.get("size", 0)))
    return kind(*problems)


def _document(answer: httpx2.Response) -> Mapping[str, Any] | None:
    if not answer.headers.get("Content-Type", "").startswith(PROBLEM_JSON):
        return None
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, Mapping) else None


def _unsaid(answer: httpx2.Response) -> ProblemError | None:
    kind = _UNSAID.get(answer.status_code)
    if answer.request.method != "HEAD" or kind is None or REQUEST_ID not in answer.headers:
        return None
    said = f"{answer.status_code} {answer.reason_phrase} to HEAD {answer.request.url.path}"
    return kind(_problem("SERVER_REFUSED", "success", said, "Check the token's permissions, and what was asked for."))


def _foreign(answer: httpx2.Response) -> ProblemError:
    """An answer that is no registry's, or that of another release."""
    request = f"{answer.request.method} {answer.request.url.path}"
    said = f"{answer.status_code} {answer.reason_phrase} to {request} from {origin(answer.request)}"
    if answer.status_code in _PASSING:
        hint = "Try again; if it stays so, ask whoever runs the server, or what stands before it."
        return UnavailableError(_problem("SERVER_BUSY", "an answer of the registry", said, hint))
    if answer.is_redirect:
        said = f"{said}, which leads to {answer.headers.get('Location', 'nowhere')}"
        hint = "Set REGISTRY_URL or --url to the address that it leads to."
        return UsageProblemError(_problem("SERVER_MOVED", "a registry at this address", said, hint))
    if REQUEST_ID in answer.headers and answer.status_code in (404, 405):
        return _route_missing(answer)
    return UsageProblemError(not_a_registry(said))


def _route_missing(answer: httpx2.Response) -> UsageProblemError:
    observed = f"{answer.request.method} {answer.request.url.path} is unknown to {origin(answer.request)}"
    hint = "The server is of another release than this client; bring both to the same one."
    return UsageProblemError(_problem("ROUTE_MISSING", "a server that knows this request", observed, hint))


def not_a_registry(observed: str) -> Problem:
    """`SERVER_NOT_REGISTRY`: something else answers at this address."""
    hint = "Set REGISTRY_URL or --url to the address that `registry serve` shows, without /v1."
    return _problem("SERVER_NOT_REGISTRY", "a registry at this address", observed, hint)


def _token_missing(answer: httpx2.Response) -> Problem:
    hint = "Set REGISTRY_TOKEN, or give --token-file FILE; `registry token create` on the server's machine makes one."
    return _problem("TOKEN_MISSING", f"a token for {origin(answer.request)}", "none", hint)


def origin(request: httpx2.Request) -> str:
    """Scheme, host and port of a request."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed[:300], hint=hint)
