"""Tokens: drawn here, shown once, stored only as a hash; when one was last used is not stored."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from registry.db import Change, Reader, tokens
from registry.db.rows import TokenEventRow
from registry.db.session import stamp
from registry.errors import NotAuthenticatedError, Problem, UsageProblemError
from registry.service.context import Context
from registry.service.grants import Grants, Scope
from schemas.canonical import JsonObject
from schemas.model import Record

LONGEST_S: Final = 10 * 366 * 86_400.0
"""The longest time to live of a token that has one, in seconds."""
_PREFIX: Final = "areg_"
_PRINCIPAL: Final = re.compile(r"(?! )[^\x00-\x1f\x7f]{1,256}(?<! )")


class Token(Record):
    """A known token; never its secret."""

    id: str
    principal: str
    permissions: tuple[str, ...]

    @property
    def grants(self) -> Grants:
        """What it allows."""
        return Grants(tuple(map(Scope.parse, self.permissions)))


class NewToken(Record):
    """A token just made; `secret` is not stored and cannot be shown again."""

    id: str
    principal: str
    permissions: tuple[str, ...]
    expires: str | None
    secret: str


class ListedToken(Record):
    """A token as lists show it."""

    id: str
    principal: str
    permissions: tuple[str, ...]
    created: str
    expires: str | None
    expired: bool
    revoked: bool


def create(context: Context, principal: str, allow: Iterable[str], *, expires_s: float | None = None) -> NewToken:
    """Draw a token with 256 bits and store its hash.

    Args:
        context: the registry.
        principal: who will hold it; named in audit events.
        allow: scopes, each ``PERMISSION`` or ``PERMISSION:PREFIX``.
        expires_s: for how many seconds it is valid; None for ever.

    Raises:
        UsageProblemError: `PRINCIPAL_INVALID` (a token without a name cannot be told apart in the audit),
            `SCOPE_INVALID`, `EXPIRY_INVALID`.
    """
    context.require("admin")
    check(principal, expires_s)
    scopes = tuple(dict.fromkeys(str(Scope.parse(text)) for text in allow))
    secret = _PREFIX + secrets.token_urlsafe(32)

    def work(change: Change) -> NewToken:
        until = None if expires_s is None else stamp(datetime.fromisoformat(change.now) + timedelta(seconds=expires_s))
        row = tokens.create(change, principal, {"allow": list(scopes)}, _hash(secret), until)
        return NewToken(id=row.token, principal=principal, permissions=scopes, expires=until, secret=secret)

    return context.database.change("token.create", context.principal, work)


def ls(context: Context) -> tuple[ListedToken, ...]:
    """Every token, oldest first."""
    context.require("admin")
    with context.database.reading() as reader:
        rows = list(_rows(reader))
        ended = tokens.revoked(reader, [row.token for row in rows])
        listed = (
            ListedToken(
                id=row.token,
                principal=row.principal,
                permissions=_permissions(row.permissions),
                created=row.created,
                expires=row.expires,
                expired=row.expires is not None and row.expires <= reader.now,
                revoked=row.token in ended,
            )
            for row in rows
        )
        return tuple(sorted(listed, key=lambda item: (item.created, item.id)))


def revoke(context: Context, token: str) -> None:
    """Revoke a token by its id."""
    context.require("admin")
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
    return Token(id=row.token, principal=row.principal, permissions=_permissions(row.permissions))


def _rows(reader: Reader) -> Iterator[TokenEventRow]:
    after: str | None = None
    while True:
        page = tokens.page(reader, after)
        yield from page.items
        after = page.next
        if after is None:
            return


def _permissions(said: JsonObject) -> tuple[str, ...]:
    allow = said.get("allow")
    return tuple(str(item) for item in allow) if isinstance(allow, list) else ()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def check(principal: str, expires_s: float | None) -> None:
    """Pass what a token may have. Raises UsageProblemError `PRINCIPAL_INVALID`, `EXPIRY_INVALID`."""
    if not _PRINCIPAL.fullmatch(principal):
        hint = "Name the person or the machine that will hold the token."
        expected = "1-256 printable characters, no space at either end"
        raise UsageProblemError(_problem("PRINCIPAL_INVALID", expected, repr(principal), hint))
    if expires_s is not None and not 1 <= expires_s <= LONGEST_S:
        hint = "Give a number of seconds, minutes, hours or days, such as 90d."
        expected = f"1 to {LONGEST_S:.0f} seconds"
        raise UsageProblemError(_problem("EXPIRY_INVALID", expected, f"{expires_s:g} seconds", hint))


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed[:120], hint=hint)
