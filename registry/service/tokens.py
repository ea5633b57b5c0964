"""Tokens: drawn here, shown once, stored only as a hash."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, Literal

from registry.db import Change, tokens
from registry.errors import NotAuthenticatedError, Problem
from registry.service.context import Context
from schemas.model import Record

Permission = Literal["read", "register", "compose", "publish", "admin"]
PERMISSIONS: Final[tuple[Permission, ...]] = ("read", "register", "compose", "publish", "admin")
_PREFIX: Final = "areg_"


class Token(Record):
    """A known token; never its secret."""

    id: str
    principal: str
    permissions: tuple[str, ...]


class NewToken(Record):
    """A token just made; `secret` is not stored and cannot be shown again."""

    id: str
    principal: str
    permissions: tuple[str, ...]
    secret: str


def create(context: Context, principal: str, permissions: tuple[Permission, ...]) -> NewToken:
    """Draw a token with 256 bits and store its hash."""
    secret = _PREFIX + secrets.token_urlsafe(32)

    def work(change: Change) -> NewToken:
        row = tokens.create(change, principal, {"allow": list(permissions)}, _hash(secret), None)
        return NewToken(id=row.token, principal=principal, permissions=permissions, secret=secret)

    return context.database.change("token.create", context.principal, work)


def revoke(context: Context, token: str) -> None:
    """Revoke a token by its id."""
    context.database.change("token.revoke", context.principal, lambda change: tokens.revoke(change, token))


def authenticate(context: Context, secret: str) -> Token:
    """The live token with this secret.

    The look-up is by hash, so its timing tells nothing about the secret.

    Raises:
        NotAuthenticatedError: `TOKEN_INVALID`.
    """
    with context.database.reading() as reader:
        row = tokens.find(reader, _hash(secret))
    if row is None:
        raise NotAuthenticatedError(
            Problem(
                code="TOKEN_INVALID",
                expected="a live token",
                observed="one that is unknown, expired or revoked",
                hint="Make another with `registry token create`.",
            )
        )
    allow = row.permissions.get("allow")
    return Token(
        id=row.token,
        principal=row.principal,
        permissions=tuple(str(item) for item in allow) if isinstance(allow, list) else (),
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
