"""Channels: generations, publish, rollback. The head a change expects is named in If-Match."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from registry.api.answers import Repeatable, linked, tagged
from registry.api.auth import Guarded, Publishing, Reading
from registry.api.bodies import PublishIn, RollbackIn
from registry.api.parameters import After, ChannelPath, IfMatch, IfNoneMatch, Limit
from registry.errors import PreconditionRequiredError, Problem, UsageProblemError
from registry.service import cache, publish
from registry.service.results import CacheIdentity, ChannelPage, Published

router = APIRouter(prefix="/v1/channels", route_class=Guarded, tags=["publication"])
_TAG: Final = re.compile(r'"g(0|[1-9][0-9]{0,15})"')
LAST: Final = 2**53 - 1


@router.get("")
def get_channels(
    context: Reading, request: Request, response: Response, after: After = None, limit: Limit = 50
) -> ChannelPage:
    """Channels by name, each as its live generation."""
    page = publish.ls(context, after, limit)
    linked(request, response, page.next)
    return page


@router.get("/{name}/generations")
def get_generations(
    context: Reading,
    name: ChannelPath,
    request: Request,
    response: Response,
    after: After = None,
    limit: Limit = 50,
    _known: IfNoneMatch = None,
) -> tuple[Published, ...]:
    """Generations, newest first; the ETag is the head, a Link header leads to the next page."""
    page = publish.generations(context, name, after, limit)
    response.headers["ETag"] = f'"g{page.head}"'
    linked(request, response, page.next)
    return page.items


@router.get("/{name}/generations/{number}")
def get_generation(context: Reading, name: ChannelPath, number: Annotated[int, Path(ge=1, le=LAST)]) -> Published:
    """One generation."""
    return publish.generation(context, name, number)


@router.get("/{name}/kv-identity")
def get_kv_identity(
    context: Reading,
    name: ChannelPath,
    generation: Annotated[int | None, Query(ge=1, le=LAST, description="By default the live one.")] = None,
) -> CacheIdentity:
    """The static part of a prefix-cache key, and the request fields that a server adds to it."""
    return cache.show(context, name, generation)


@router.post("/{name}/generations", status_code=201)
def post_generation(
    context: Publishing,
    name: ChannelPath,
    body: PublishIn,
    response: Response,
    once: Repeatable,
    if_match: IfMatch = None,
) -> Published:
    """Append a generation. 428 without If-Match, 412 with the current head when it is stale."""
    expect = _expected(if_match)
    return tagged(
        response,
        once(
            context,
            body,
            Published,
            lambda caller: publish.publish(caller, name, body.refs, expect=expect, reason=body.reason),
        ),
    )


@router.post("/{name}/rollback", status_code=201)
def post_rollback(
    context: Publishing,
    name: ChannelPath,
    body: RollbackIn,
    response: Response,
    once: Repeatable,
    if_match: IfMatch = None,
) -> Published:
    """Append a generation that serves an earlier tuple again."""
    expect = _expected(if_match)
    return tagged(
        response,
        once(
            context,
            body,
            Published,
            lambda caller: publish.rollback(caller, name, to=body.to, expect=expect, reason=body.reason),
        ),
    )


def _expected(if_match: str | None) -> int:
    if if_match is None:
        raise PreconditionRequiredError(_problem("IF_MATCH_REQUIRED", "no If-Match header"))
    match = _TAG.fullmatch(if_match.strip())
    if match is None:
        raise UsageProblemError(_problem("IF_MATCH_INVALID", if_match[:120]))
    return int(match[1])


def _problem(code: str, observed: str) -> Problem:
    return Problem(
        code=code,
        path=("If-Match",),
        expected='"gN", the head you know',
        observed=observed,
        hint="Read the generations first; their ETag is the head.",
    )
