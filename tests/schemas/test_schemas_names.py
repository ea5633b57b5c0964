"""The grammar of names, aliases and references, and nothing outside it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageProblemError
from schemas.names import (
    ChannelRef,
    DigestRef,
    NameRef,
    Ref,
    check_alias,
    check_name,
    is_whole_digest,
    parse_ref,
    short,
)

HEX = "0123456789abcdef" * 4
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,95}", fullmatch=True)
aliases = st.from_regex(r"[a-z][a-z0-9._-]{0,31}", fullmatch=True).filter(
    lambda text: not re.fullmatch("g[0-9]+", text)
)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("qa", NameRef("qa")),
        ("qa@2", NameRef("qa", version=2)),
        ("qa@latest", NameRef("qa", alias="latest")),
        ("qa@g", NameRef("qa", alias="g")),
        ("qa@gold.2", NameRef("qa", alias="gold.2")),
        ("0", NameRef("0")),
        ("channel", NameRef("channel")),
        ("g41", NameRef("g41")),
        (f"blake3:{HEX[:8]}", DigestRef(f"blake3:{HEX[:8]}")),
        (f"blake3:{HEX}", DigestRef(f"blake3:{HEX}")),
        ("channel:bot", ChannelRef("bot")),
        ("channel:bot@g41", ChannelRef("bot", 41)),
        ("n" * 96, NameRef("n" * 96)),
    ],
)
def test_a_reference_is_read(text: str, ref: Ref) -> None:
    assert parse_ref(text) == ref


@given(names, st.integers(1, 10**18 - 1), aliases)
def test_every_name_version_alias_and_generation_of_the_grammar_is_read_back(
    name: str, number: int, alias: str
) -> None:
    assert parse_ref(name) == NameRef(name)
    assert parse_ref(f"{name}@{number}") == NameRef(name, version=number)
    assert parse_ref(f"{name}@{alias}") == NameRef(name, alias=alias)
    assert parse_ref(f"channel:{name}@g{number}") == ChannelRef(name, number)


@pytest.mark.parametrize("text", ["", "QA", "_qa", ".qa", "-qa", "q a", "qa\n", "qa/1", "é", "n" * 97, "a:b", "٣"])
def test_a_name_outside_the_grammar_is_refused(text: str) -> None:
    for read in (check_name, parse_ref, lambda name: parse_ref(f"channel:{name}")):
        with pytest.raises(UsageProblemError) as caught:
            read(text)
        assert caught.value.code == "NAME_INVALID"


@pytest.mark.parametrize("text", ["", "Live", "_a", "2x", "g41", "g0", "a b", "a\n", "a" * 33, "a@b", "0", "01"])
def test_an_alias_outside_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        check_alias(text)
    assert caught.value.code == "ALIAS_INVALID"
    with pytest.raises(UsageProblemError):
        parse_ref(f"qa@{text}")


def test_a_version_is_a_number_from_one_that_a_database_holds() -> None:
    for suffix in ("0", "01", "-1", "+1", "1.0", "9" * 19, "²"):
        with pytest.raises(UsageProblemError):
            parse_ref(f"qa@{suffix}")


@pytest.mark.parametrize("digits", ["", HEX[:7], HEX + "0", "ABCDEF01", "0123456g", HEX[:8] + "\n", HEX[:8] + "@1"])
def test_a_digest_has_eight_to_sixty_four_lower_case_digits(digits: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        parse_ref(f"blake3:{digits}")
    assert caught.value.code == "REF_INVALID"


@pytest.mark.parametrize("suffix", ["", "41", "g", "g0", "g01", "latest", "G41", "g41\n", "g41@g42"])
def test_a_channel_suffix_is_a_generation(suffix: str) -> None:
    with pytest.raises(UsageProblemError) as caught:
        parse_ref(f"channel:bot@{suffix}")
    assert caught.value.code == "REF_INVALID"


def test_a_shortened_digest_is_still_a_reference() -> None:
    digest = f"blake3:{HEX}"
    assert short(digest) == f"blake3:{HEX[:12]}"
    assert parse_ref(short(digest, 8)) == DigestRef(f"blake3:{HEX[:8]}")
    assert DigestRef(digest).whole
    assert not DigestRef(short(digest)).whole
    assert is_whole_digest(digest)
    assert not any(map(is_whole_digest, (short(digest), HEX, digest + "0", digest.upper(), f"{digest}\n")))


def test_what_was_typed_is_shown_and_bounded() -> None:
    with pytest.raises(UsageProblemError) as caught:
        parse_ref("X" * 5000)
    (problem,) = caught.value.problems
    assert problem.observed.startswith("'XXX")
    assert len(problem.observed) <= 120
