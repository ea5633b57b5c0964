"""The one place that turns documents into bytes and back (RFC 8785, JCS).

Law: ``parse_canonical(canonical_bytes(d)) == d`` for every accepted document, and the bytes are the identity: they are
hashed, stored and compared, never re-made from a parsed copy.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from math import isfinite
from types import NoneType
from typing import Final, Never

import rfc8785
from pydantic import JsonValue as JsonValue

from schemas.errors import DigestMismatchError, Problem, RefusedError

JsonObject = dict[str, JsonValue]

SAFE_INTEGER: Final = 2**53 - 1
LONGEST_INTEGER: Final = 22
LONGEST_DOUBLE: Final = 300
"""Characters of an integer that is surely below the largest double."""
"""Digits and sign of the largest number written without an exponent, 1e21 exclusive."""

_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_AS_IT_IS: Final = frozenset({str, bool, NoneType})
_LONG_INTEGER: Final = re.compile(r"[0-9]{16}")
"""No integer beyond 2^53-1 has fewer digits."""


class _UnusualError(ValueError):
    """A value that the plain encoder might write in another way than RFC 8785."""


def canonical_bytes(document: JsonValue) -> bytes:
    """The JCS bytes of a document.

    Raises:
        RefusedError: `NOT_CANONICAL` for NaN, infinity, integers beyond 2^53-1, lone surrogates or endless nesting.
    """
    try:
        return _ENCODE(_plain(document)).encode()
    except (_UnusualError, TypeError):
        return _by_the_library(document)
    except (UnicodeEncodeError, RecursionError) as error:
        raise _not_canonical(error) from error


def _by_the_library(document: JsonValue) -> bytes:
    try:
        return rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise _not_canonical(error) from error


def _plain(value: JsonValue) -> JsonValue:
    """The document with whole doubles as integers, which the plain encoder then writes byte for byte as RFC 8785 says.

    It writes the shortest digits of a double too, but with an exponent below 1e-4 and from 1e16, and it sorts keys by
    code point, which is UTF-16 order as long as they are ASCII. Whatever else there is goes to the library.
    """
    if isinstance(value, dict):
        if not "".join(value).isascii():
            raise _UnusualError
        return {key: item if type(item) in _AS_IT_IS else _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in _AS_IT_IS else _plain(item) for item in value]
    if isinstance(value, float):
        if value.is_integer() and -SAFE_INTEGER <= value <= SAFE_INTEGER:
            return int(value)
        if 1e-4 <= abs(value) < 1e15:
            return float(value)
    elif type(value) in _AS_IT_IS or (type(value) is int and -SAFE_INTEGER <= value <= SAFE_INTEGER):
        return value
    raise _UnusualError


def _not_canonical(error: Exception) -> RefusedError:
    return RefusedError(_problem("a document that RFC 8785 can write", str(error)))


def parse_json(data: bytes, *, whole_doubles: bool = False) -> JsonValue:
    """Parse JSON from outside, refusing what silently changes meaning.

    Args:
        whole_doubles: take a long integer that is exactly a double, as Python writes 1e30, for that double.

    Raises:
        RefusedError: `JSON_INVALID` (syntax, UTF-8), `JSON_DUPLICATE_KEY`, `JSON_NOT_FINITE`, or `JSON_INTEGER` for one
            beyond 2^53-1 that is not the spelling of a double.
    """
    try:
        text = data.decode("utf-8", errors="strict")
        value: JsonValue = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=partial(_one_number, whole_doubles) if _LONG_INTEGER.search(text) else None,
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


def _one_number(whole_doubles: bool, text: str) -> int | float:
    # RFC 8785 writes every double below 1e21 as its shortest digits and zeros: a long integer is that or means nothing.
    if whole_doubles and LONGEST_INTEGER < len(text) < LONGEST_DOUBLE and int(float(text)) == int(text):
        return float(text)
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
