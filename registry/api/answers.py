"""What answers have in common: tags, links to the next page, answers that were given before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Request, Response

from registry.api.parameters import IdempotencyKey
from registry.service.context import Context
from registry.service.once import once
from registry.service.results import Added, Published, Shown
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import blob_digest
from schemas.model import Record

R = TypeVar("R", bound=Record)
REPLAYED: Final = "Idempotency-Replayed"


def registered(response: Response, added: Added) -> Added:
    """What was registered, with its digest as ETag; 200 instead of 201 when it was there."""
    response.headers["ETag"] = f'"{added.digest}"'
    if not added.created:
        response.status_code = 200
    return added


def written(found: Record, headers: Mapping[str, str] | None = None) -> Response:
    """A large answer, written where it was made: the framework would check each part of it again, in another thread."""
    return Response(found.model_dump_json(by_alias=True), headers=headers, media_type="application/json")


def shown(found: Shown) -> Response:
    """A manifest and what lies beside it.

    The manifest never changes, names and statements come to it: the ETag is the digest and, after a dot, a mark of
    everything else that is answered, so that a yank is not hidden behind a 304.
    """
    beside = found.model_dump(mode="json", by_alias=True, exclude={"manifest"})
    mark = blob_digest(canonical_bytes(beside)).removeprefix("blake3:")[:16]
    return written(found, {"X-Registry-Digest": found.digest, "ETag": f'"{found.digest}.{mark}"'})


def tagged(response: Response, published: Published) -> Published:
    """A new generation, with its number as ETag: the head that the next change expects."""
    response.headers["ETag"] = f'"g{published.generation}"'
    return published


def linked(request: Request, response: Response, after: str | None) -> None:
    """A link to the page after this one, when there is one (RFC 8288)."""
    if after is not None:
        there = request.url.include_query_params(after=after)
        response.headers["Link"] = f'<{there.path}?{there.query}>; rel="next"'


class Once:
    """A request under its `Idempotency-Key`: done once, answered as often as it is asked."""

    def __init__(self, request: Request, response: Response, idempotency_key: IdempotencyKey = None) -> None:
        self._path = request.url.path
        self._response = response
        self._key = idempotency_key

    def __call__(self, context: Context, body: Record, model: type[R], work: Callable[[Context], R]) -> R:
        """Do the work, or give the answer that the same path and body got before under this key.

        Raises:
            RefusedError: `IDEMPOTENCY_KEY_REUSED`.
        """
        request: JsonObject = {"path": self._path, "body": body.document()}
        answer = once(context, self._key, request, model, work)
        if answer.replayed:
            self._response.headers[REPLAYED] = "true"
        return answer.result


Repeatable = Annotated[Once, Depends()]
