"""Idempotency keys: the same request under the same key gets the answer it got before."""

from __future__ import annotations

from sqlalchemy import delete, select

from registry.db.rows import IdempotencyKeyRow
from registry.db.session import Change, Reader
from registry.errors import Problem, RefusedError
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import Digest


def find(reader: Reader, principal: str, key: str) -> IdempotencyKeyRow | None:
    """What a key was used for."""
    return reader.one(
        select(IdempotencyKeyRow).where(IdempotencyKeyRow.principal == principal, IdempotencyKeyRow.key == key)
    )


def check(reader: Reader, principal: str, key: str, request: Digest) -> JsonObject | None:
    """The answer a request already got under this key; None when the key is new.

    Raises:
        RefusedError: `IDEMPOTENCY_KEY_REUSED` when the key belongs to another request.
    """
    row = find(reader, principal, key)
    if row is None:
        return None
    if row.request != request:
        raise RefusedError(
            Problem(
                code="IDEMPOTENCY_KEY_REUSED",
                expected=f"request {row.request} under key {key!r}",
                observed=request,
                hint="Send a new key with a new request.",
            )
        )
    return row.response


def put(change: Change, principal: str, key: str, request: Digest, response: JsonObject) -> None:
    """Keep the answer of a request. Raises what `check` raises."""
    if check(change, principal, key, request) is None:
        change.insert(
            IdempotencyKeyRow(
                principal=principal,
                key=key,
                request=request,
                response_json=canonical_bytes(response).decode(),
                created=change.now,
            )
        )


def sweep(change: Change, before: str) -> int:
    """Forget keys older than a time; the number forgotten."""
    old = delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created < before)
    return change.session.connection().execute(old).rowcount
