"""Generations: history, publish, rollback. The head a change expects is named in If-Match."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response

from registry.api.auth import Publishing, Reading
from registry.api.bodies import PublishBody, RollbackIn
from registry.errors import PreconditionRequiredError, Problem, UsageProblemError
from registry.service import publish
from registry.service.results import Published

router = APIRouter(prefix="/v1/channels", tags=["publication"])
_TAG: Final = re.compile(r'"g(0|[1-9][0-9]{0,15})"')
IfMatch = Annotated[str | None, Header(description='The head you expect, as "gN"; "g0" for a new channel.')]


@router.get("/{name}/generations")
def get_generations(context: Reading, name: str, response: Response) -> tuple[Published, ...]:
    """Generations, newest first; the ETag is the head."""
    found = publish.history(context, name)
    response.headers["ETag"] = f'"g{found[0].generation}"'
    return found


@router.post("/{name}/generations", status_code=201)
def post_generation(
    context: Publishing, name: str, body: PublishBody, response: Response, if_match: IfMatch = None
) -> Published:
    """Append a generation. 428 without If-Match, 412 with the current head when it is stale."""
    expect = _expected(if_match)
    return _tagged(response, publish.publish(context, name, body.refs, expect=expect, reason=body.reason))


@router.post("/{name}/rollback", status_code=201)
def post_rollback(
    context: Publishing, name: str, body: RollbackIn, response: Response, if_match: IfMatch = None
) -> Published:
    """Append a generation that serves an earlier tuple again."""
    expect = _expected(if_match)
    return _tagged(response, publish.rollback(context, name, to=body.to, expect=expect, reason=body.reason))


def _expected(if_match: str | None) -> int:
    if if_match is None:
        raise PreconditionRequiredError(_problem("IF_MATCH_REQUIRED", "no If-Match header"))
    match = _TAG.fullmatch(if_match.strip())
    if match is None:
        raise UsageProblemError(_problem("IF_MATCH_INVALID", if_match))
    return int(match[1])


def _tagged(response: Response, published: Published) -> Published:
    response.headers["ETag"] = f'"g{published.generation}"'
    return published


def _problem(code: str, observed: str) -> Problem:
    return Problem(
        code=code,
        path=("If-Match",),
        expected='"gN", the head you know',
        observed=observed,
        hint="Read the generations first; their ETag is the head.",
    )
