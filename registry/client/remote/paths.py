"""Paths of a server's routes; what is no reference or name is refused here, with the words of the use case."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from schemas.names import check_name, parse_ref

ROOT: Final = "/v1"


def of_ref(room: str, ref: str, rest: str = "") -> str:
    """A route about what a reference means. Raises UsageProblemError `REF_INVALID` and its like."""
    parse_ref(ref)
    return _joined(room, ref, rest)


def of_channel(channel: str, rest: str) -> str:
    """A route about a channel. Raises UsageProblemError `NAME_INVALID`."""
    check_name(channel)
    return _joined("channels", channel, rest)


def of_id(room: str, identity: str, rest: str = "") -> str:
    """A route about something with an id."""
    return _joined(room, identity, rest)


def _joined(room: str, part: str, rest: str) -> str:
    # a slash, however it is quoted, would lead to another route; no name or id has one, so it stays an unknown one
    part = part.replace("/", "%2F")
    return f"{ROOT}/{room}/{quote(part, safe=':@')}" + (f"/{rest}" if rest else "")
