"""Names, aliases and references: the grammar people type, and nothing outside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import StringConstraints

from schemas.digests import PREFIX, Digest
from schemas.errors import Problem, UsageProblemError

NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,95}$"
ALIAS_PATTERN: Final = r"^(?!g[0-9]+$)[a-z][a-z0-9._-]{0,31}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]

_NAME = re.compile(NAME_PATTERN.removesuffix("$"))
_ALIAS = re.compile(ALIAS_PATTERN.removesuffix("$"))
_PREFIX = re.compile(r"[0-9a-f]{8,64}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class NameRef:
    """``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``; without a suffix the newest version."""

    name: str
    version: int | None = None
    alias: str | None = None


@dataclass(frozen=True)
class DigestRef:
    """``blake3:HEX`` with 8 to 64 digits; shorter than 64 it is a prefix that must be unambiguous."""

    digest: str

    @property
    def whole(self) -> bool:
        """Whether all 64 digits are given."""
        return len(self.digest) == len(PREFIX) + 64


@dataclass(frozen=True)
class ChannelRef:
    """``channel:NAME`` or ``channel:NAME@gN``; without a suffix the live generation."""

    channel: str
    generation: int | None = None


Ref = NameRef | DigestRef | ChannelRef


def parse_ref(text: str) -> Ref:
    """Parse a reference.

    Raises:
        UsageProblemError: `REF_INVALID`, `NAME_INVALID` or `ALIAS_INVALID`.
    """
    if text.startswith(PREFIX):
        return _digest_ref(text)
    if text.startswith("channel:"):
        return _channel_ref(text)
    name, at, suffix = text.partition("@")
    check_name(name)
    if not at:
        return NameRef(name)
    if _NUMBER.fullmatch(suffix):
        return NameRef(name, version=int(suffix))
    return NameRef(name, alias=check_alias(suffix))


def check_name(text: str) -> str:
    """Return the name, or refuse it."""
    if not _NAME.fullmatch(text):
        raise UsageProblemError(
            _invalid("NAME_INVALID", "1-96 of a-z 0-9 . _ -, starting with a letter or digit", text)
        )
    return text


def check_alias(text: str) -> str:
    """Return the alias, or refuse it; `g41` is reserved for generations and a number for versions."""
    if not _ALIAS.fullmatch(text):
        raise UsageProblemError(
            _invalid("ALIAS_INVALID", "1-32 of a-z 0-9 . _ -, starting with a letter, not g<number>", text)
        )
    return text


def is_whole_digest(text: str) -> bool:
    """Whether the text is a complete digest."""
    return text.startswith(PREFIX) and re.fullmatch(r"[0-9a-f]{64}", text.removeprefix(PREFIX)) is not None


def short(digest: Digest, digits: int = 12) -> str:
    """A digest shortened for people; still a valid reference."""
    return digest[: len(PREFIX) + digits]


def _digest_ref(text: str) -> DigestRef:
    if not _PREFIX.fullmatch(text.removeprefix(PREFIX)):
        raise UsageProblemError(_invalid("REF_INVALID", "blake3: and 8 to 64 lowercase hex digits", text))
    return DigestRef(text)


def _channel_ref(text: str) -> ChannelRef:
    channel, at, suffix = text.removeprefix("channel:").partition("@")
    check_name(channel)
    if not at:
        return ChannelRef(channel)
    if not suffix.startswith("g") or not _NUMBER.fullmatch(suffix[1:]):
        raise UsageProblemError(_invalid("REF_INVALID", "channel:NAME@gN with N from 1", text))
    return ChannelRef(channel, int(suffix[1:]))


def _invalid(code: str, expected: str, observed: str) -> Problem:
    return Problem(
        code=code,
        expected=expected,
        observed=repr(observed)[:120],
        hint="References are NAME, NAME@VERSION, NAME@ALIAS, blake3:HEX or channel:NAME@gN.",
    )
