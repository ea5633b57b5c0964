"""The one place that turns documents into bytes and back (RFC 8785, JCS).

Law: ``parse_canonical(canonical_bytes(d)) == d`` for every accepted document, and the bytes are the identity: they are
hashed, stored and compared, never re-made from a parsed copy.
"""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Final, Never

import rfc8785
from pydantic import JsonValue as JsonValue

from schemas.errors import DigestMismatchError, Problem, RefusedError

JsonObject = dict[str, JsonValue]

SAFE_INTEGER: Final = 2**53 - 1
LONGEST_INTEGER: Final = 22
"""Digits and sign of the largest number written without an exponent, 1e21 exclusive."""


def canonical_bytes(document: JsonValue) -> bytes:
    """The JCS bytes of a document.

    Raises:
        RefusedError: `NOT_CANONICAL` for NaN, infinity, integers beyond 2^53-1, lone surrogates or endless nesting.
    """
    try:
        return rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise RefusedError(_problem("a document that RFC 8785 can write", str(error))) from error


def parse_json(data: bytes) -> JsonValue:
    """Parse JSON from outside, refusing what silently changes meaning.

    Raises:
        RefusedError: `JSON_INVALID` (syntax, UTF-8), `JSON_DUPLICATE_KEY`, `JSON_NOT_FINITE`, or `JSON_INTEGER` for one
            beyond 2^53-1 that is not the spelling of a double.
    """
    try:
        value: JsonValue = json.loads(
            data.decode("utf-8", errors="strict"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_one_number,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RefusedError(_problem("valid JSON in UTF-8", str(error), code="JSON_INVALID")) from error
    return value


def parse_canonical(data: bytes) -> JsonValue:
    """Parse stored bytes; anything but the exact canonical form is a mismatch, since the bytes are the identity."""
    document = parse_json(data)
    if canonical_bytes(document) != data:
        raise DigestMismatchError(_problem("canonical bytes", "the same document written another way"))
    return document


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    document = dict(pairs)
    if len(document) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)[:8]
        observed = f"twice: {', '.join(twice)}"[:200]
        raise RefusedError(_problem("each key once", observed, code="JSON_DUPLICATE_KEY"))
    return document


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _no_constant(text)


def _one_number(text: str) -> int | float:
    # RFC 8785 writes every double below 1e21 as its shortest digits and zeros: a long integer is that or means nothing.
    if len(text) <= LONGEST_INTEGER:
        number = int(text)
        if abs(number) <= SAFE_INTEGER:
            return number
        if canonical_bytes(float(number)) == text.encode():
            return float(number)
    raise RefusedError(
        _problem("an integer within 2^53-1, or a double as RFC 8785 spells it", text[:120], code="JSON_INTEGER")
    )


def _no_constant(name: str) -> Never:
    raise RefusedError(_problem("finite numbers", name, code="JSON_NOT_FINITE"))


def _problem(expected: str, observed: str, code: str = "NOT_CANONICAL") -> Problem:
    return Problem(code=code, expected=expected, observed=observed, hint="Correct the document and send it again.")
