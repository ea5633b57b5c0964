"""Canonical bytes: one document, one spelling, and nothing whose meaning could change on the way."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.canonical import JsonObject, JsonValue, canonical_bytes, parse_canonical, parse_json
from schemas.errors import DigestMismatchError, RefusedError

SAFE = 2**53 - 1
strings = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False)
documents: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_parsing_canonical_bytes_gives_the_document_back(document: JsonValue) -> None:
    assert parse_canonical(canonical_bytes(document)) == document


@given(documents)
def test_canonical_bytes_are_their_own_canonical_form_and_plain_json(document: JsonValue) -> None:
    data = canonical_bytes(document)
    assert canonical_bytes(parse_json(data)) == data
    assert json.loads(data, parse_int=float) == document


@given(
    documents | st.lists(st.floats() | st.integers(-(2**64), 2**64)) | st.dictionaries(st.text(max_size=3), st.text())
)
def test_canonical_bytes_are_those_of_the_library_for_rfc_8785_or_neither_has_any(document: JsonValue) -> None:
    try:
        expected = rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        with pytest.raises(RefusedError):
            canonical_bytes(document)
    else:
        assert canonical_bytes(document) == expected


@given(st.integers(-330, 310), st.integers(1, 2**53), st.sampled_from([-1, 1]))
def test_doubles_of_every_size_are_spelled_as_the_library_spells_them(exponent: int, digits: int, sign: int) -> None:
    number = sign * float(f"{digits}e{exponent - 15}")
    assume(isfinite(number))
    assert canonical_bytes([number]) == rfc8785.dumps([number])


@given(st.dictionaries(strings, numbers, min_size=2, max_size=6), st.randoms())
def test_key_order_and_spacing_never_matter(document: JsonObject, rng: Any) -> None:
    items = list(document.items())
    rng.shuffle(items)
    written = json.dumps(dict(items), indent=3, ensure_ascii=bool(len(items) % 2)).encode()
    assert canonical_bytes(parse_json(written)) == canonical_bytes(document)


@pytest.mark.parametrize(
    ("document", "data"),
    [
        (16.0, b"16"),
        (16, b"16"),
        (-0.0, b"0"),
        (1e-5, b"0.00001"),
        (1e-7, b"1e-7"),
        (1e21, b"1e+21"),
        (2.0**53, b"9007199254740992"),
        (42630571725808592.0, b"42630571725808590"),
        (1e20, b"100000000000000000000"),
        (333333333.33333329, b"333333333.3333333"),
        ("é\n\x07", '"é\\n\\u0007"'.encode()),
        # RFC 8785, section 3.2.3: keys sort by UTF-16 code units, so an astral character precedes U+FB33.
        ({"\ufb33": 1, "\U0001f600": 2, "a": 3}, '{"a":3,"\U0001f600":2,"\ufb33":1}'.encode()),
    ],
)
def test_values_are_spelled_as_rfc_8785_says(document: JsonValue, data: bytes) -> None:
    assert canonical_bytes(document) == data
    assert parse_canonical(data) == document


def test_sixteen_and_sixteen_point_zero_are_one_number_and_true_is_none() -> None:
    assert canonical_bytes(parse_json(b'{"r":16.0}')) == canonical_bytes(parse_json(b'{"r":16}')) == b'{"r":16}'
    assert canonical_bytes(True) != canonical_bytes(1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a":1,"a":1}', "JSON_DUPLICATE_KEY"),
        (b'{"x":{"a":1,"\\u0061":2}}', "JSON_DUPLICATE_KEY"),
        (b"[NaN]", "JSON_NOT_FINITE"),
        (b"[Infinity]", "JSON_NOT_FINITE"),
        (b"[-Infinity]", "JSON_NOT_FINITE"),
        (b"[1e999]", "JSON_NOT_FINITE"),
        (b"[-1e999]", "JSON_NOT_FINITE"),
        (b"9007199254740993", "JSON_INTEGER"),
        (b"-9007199254740993", "JSON_INTEGER"),
        (b"42630571725808592", "JSON_INTEGER"),
        (b"1" * 5000, "JSON_INTEGER"),
        (b'"\xff"', "JSON_INVALID"),
        (b"\xef\xbb\xbf1", "JSON_INVALID"),
        (b"", "JSON_INVALID"),
        (b"{", "JSON_INVALID"),
        (b"{'a':1}", "JSON_INVALID"),
        (b"[1,]", "JSON_INVALID"),
        (b"[" * 100_000 + b"]" * 100_000, "JSON_INVALID"),
    ],
)
def test_json_that_could_change_meaning_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_json(data)
    assert caught.value.code == code
    assert len(caught.value.problems[0].observed) <= 200


def test_a_duplicate_key_is_named() -> None:
    with pytest.raises(RefusedError, match="twice: lora_A"):
        parse_json(b'{"lora_A":1,"lora_B":2,"lora_A":3}')


def nested(depth: int) -> JsonValue:
    """A list inside a list, `depth` times."""
    document: JsonValue = []
    for _ in range(depth):
        document = [document]
    return document


@pytest.mark.parametrize(
    "document",
    [
        float("nan"),
        float("inf"),
        [float("-inf")],
        2**53,
        -(2**53),
        "\ud800",
        {"\udfff": 1},
        ["a", {"b": "\udc00x"}],
        nested(100_000),
    ],
    ids=["nan", "inf", "-inf", "2^53", "-2^53", "surrogate", "surrogate key", "surrogate within", "deep"],
)
def test_what_has_no_canonical_form_is_refused(document: JsonValue) -> None:
    with pytest.raises(RefusedError) as caught:
        canonical_bytes(document)
    assert caught.value.code == "NOT_CANONICAL"


def test_a_lone_surrogate_escape_has_no_canonical_form() -> None:
    with pytest.raises(RefusedError):
        parse_canonical(b'"\\ud800"')


@pytest.mark.parametrize(
    "data", [b'{"a": 1}', b'{"b":1,"a":2}', b"1.0", b"1E2", b"-0", b'"\\u0061"', b'"\\/"', b" 1", b"1\n"]
)
def test_stored_bytes_in_another_spelling_are_a_mismatch(data: bytes) -> None:
    with pytest.raises(DigestMismatchError) as caught:
        parse_canonical(data)
    assert caught.value.code == "NOT_CANONICAL"
