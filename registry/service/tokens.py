"""Tokens: drawn here, shown once, stored only as a hash."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from typing import Final, Literal

from registry.db import Change, Reader, tokens
from registry.db.rows import TokenEventRow
from registry.errors import NotAuthenticatedError, Problem, UsageProblemError
from registry.service.context import Context
from schemas.model import Record

Permission = Literal["read", "register", "compose", "publish", "admin"]
PERMISSIONS: Final[tuple[Permission, ...]] = ("read", "register", "compose", "publish", "admin")
_PREFIX: Final = "areg_"
_PRINCIPAL: Final = re.compile(r"(?! )[^\x00-\x1f\x7f]{1,256}(?<! )")


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


class ListedToken(Record):
    """A token as lists show it."""

    id: str
    principal: str
    permissions: tuple[str, ...]
    created: str
    revoked: bool


def create(context: Context, principal: str, permissions: tuple[Permission, ...]) -> NewToken:
    """Draw a token with 256 bits and store its hash.

    Raises:
        UsageProblemError: `PRINCIPAL_INVALID`; a token without a name cannot be told apart in the audit.
    """
    if not _PRINCIPAL.fullmatch(principal):
        raise UsageProblemError(
            Problem(
                code="PRINCIPAL_INVALID",
                expected="1-256 printable characters, no space at either end",
                observed=repr(principal)[:120],
                hint="Name the person or the machine that will hold the token.",
            )
        )
    secret = _PREFIX + secrets.token_urlsafe(32)

    def work(change: Change) -> NewToken:
        row = tokens.create(change, principal, {"allow": list(permissions)}, _hash(secret), None)
        return NewToken(id=row.token, principal=principal, permissions=permissions, secret=secret)

    return context.database.change("token.create", context.principal, work)


def ls(context: Context) -> tuple[ListedToken, ...]:
    """Every token, oldest first."""
    with context.database.reading() as reader:
        rows = list(_rows(reader))
        ended = tokens.revoked(reader, [row.token for row in rows])
        listed = (
            ListedToken(
                id=row.token,
                principal=row.principal,
                permissions=_permissions(row),
                created=row.created,
                revoked=row.token in ended,
            )
            for row in rows
        )
        return tuple(sorted(listed, key=lambda item: (item.created, item.id)))


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
    return Token(id=row.token, principal=row.principal, permissions=_permissions(row))


def _rows(reader: Reader) -> Iterator[TokenEventRow]:
    after: str | None = None
    while True:
        page = tokens.page(reader, after)
        yield from page.items
        after = page.next
        if after is None:
            return


def _permissions(row: TokenEventRow) -> tuple[str, ...]:
    allow = row.permissions.get("allow")
    return tuple(str(item) for item in allow) if isinstance(allow, list) else ()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
