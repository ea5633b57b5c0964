"""Tokens: created and revoked by events; only the hash of a secret is kept."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, or_, select
from sqlalchemy.orm import aliased

from registry.db import paging
from registry.db.paging import Page
from registry.db.prepared import Prepared, Values
from registry.db.problems import found
from registry.db.rows import TokenEventRow
from registry.db.rows.core import parsed
from registry.db.session import Change, Reader
from schemas.canonical import JsonObject, canonical_bytes

_ENDED = aliased(TokenEventRow)
_LIVE: Final = Prepared(
    select(TokenEventRow.token, TokenEventRow.principal, TokenEventRow.permissions_json).where(
        TokenEventRow.secret_hash == bindparam("secret_hash"),
        or_(TokenEventRow.expires.is_(None), TokenEventRow.expires > bindparam("now")),
        ~exists().where(_ENDED.token == TokenEventRow.token, _ENDED.sequence == 2),
    )
)


class Live(NamedTuple):
    """A token that is valid now."""

    token: str
    principal: str
    permissions: JsonObject


def create(
    change: Change, principal: str, permissions: JsonObject, secret_hash: str, expires: str | None
) -> TokenEventRow:
    """Record a new token; `expires` is a time as rows hold it, or None."""
    row = TokenEventRow(
        token=secrets.token_hex(8),
        sequence=1,
        principal=principal,
        secret_hash=secret_hash,
        permissions_json=canonical_bytes(permissions).decode(),
        expires=expires,
        created=change.now,
    )
    change.append(row)
    return row


def revoke(change: Change, token: str) -> bool:
    """End a token; False when it was ended before. Raises NotFoundError `TOKEN_UNKNOWN`."""
    created = change.one(select(TokenEventRow).where(TokenEventRow.token == token, TokenEventRow.sequence == 1))
    created = found(created, "TOKEN_UNKNOWN", f"a token {token}", "List the tokens with `registry token ls`.")
    end: Values = {
        "token": token,
        "sequence": 2,
        "principal": created.principal,
        "secret_hash": None,
        "permissions_json": "{}",
        "expires": None,
        "created": change.now,
    }
    return bool(change.ensure(TokenEventRow, [end]))


def find(reader: Reader, secret_hash: str) -> Live | None:
    """The token of a secret, when it is neither revoked nor expired."""
    row = _LIVE.first(reader.connection, secret_hash=secret_hash, now=reader.now)
    return None if row is None else Live(row[0], row[1], parsed(row[2]))


def page(reader: Reader, after: str | None = None, limit: int = 50) -> Page[TokenEventRow]:
    """One page of tokens as they were created."""
    return paging.page(
        reader, select(TokenEventRow).where(TokenEventRow.sequence == 1), (TokenEventRow.token,), after, limit
    )


def revoked(reader: Reader, tokens: Iterable[str]) -> frozenset[str]:
    """Which of these tokens were revoked."""
    ended = select(TokenEventRow.token).where(TokenEventRow.sequence == 2)
    return frozenset(reader.chosen(ended, TokenEventRow.token, tokens))
