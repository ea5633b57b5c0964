"""Tokens over the web, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BeforeValidator, Field

from registry.api.auth import Administering, Guarded
from registry.api.bodies import tupled
from registry.service import tokens
from registry.service.tokens import LONGEST_S, ListedToken, NewToken
from schemas.model import Finite, Record

router = APIRouter(prefix="/v1/tokens", route_class=Guarded, tags=["administration"])


class TokenIn(Record):
    """Who will hold a token, its scopes (`PERMISSION` or `PERMISSION:PREFIX`), and for how many seconds it is valid."""

    principal: str = Field(min_length=1, max_length=256, examples=["ci"])
    allow: tuple[str, ...] = Field(min_length=1, max_length=64, examples=[["register:team-a-", "read"]])
    expires_s: Finite | None = Field(default=None, ge=1, le=LONGEST_S, examples=[7_776_000.0])


@router.post("", status_code=201)
def post_token(context: Administering, body: Annotated[TokenIn, BeforeValidator(tupled)]) -> NewToken:
    """Make a token; its secret is in this answer and nowhere else."""
    return tokens.create(context, body.principal, body.allow, expires_s=body.expires_s)


@router.get("")
def get_tokens(context: Administering) -> tuple[ListedToken, ...]:
    """Every token, oldest first, without its secret."""
    return tokens.ls(context)


@router.delete("/{token_id}", status_code=204)
def delete_token(context: Administering, token_id: str) -> None:
    """Revoke a token; one that was revoked stays so."""
    tokens.revoke(context, token_id)
