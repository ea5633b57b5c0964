"""What a static composition takes from each member, and that each is there once: predicates F and C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from schemas.adapter import ROWS
from schemas.decision import Finding
from validators.context import Context, Member, finding


def payload(context: Context) -> Iterator[Finding]:
    """Only portable factors mean the same on the original base (V 0x06, 0x0A)."""
    for member in context.members:
        if member.adapter.payload != "portable":
            yield finding("PAYLOAD_NOT_PORTABLE", member.digest, ("payload",), "portable", member.adapter.payload)


def snapshots(context: Context) -> Iterator[Finding]:
    """Factors that repeat a part of the base add it a second time, whatever their config calls them (V 0x06)."""
    for member in context.members:
        if member.digest in context.repeating:
            observed = "factors that correlate with the base weight"
            yield finding("SNAPSHOT_SUMMED", member.digest, ("initializer",), "a trained update", observed)


def replacements(context: Context) -> Iterator[Finding]:
    """A wholly replaced tensor, such as a trained head, is carried from its one owner; two cannot be summed.

    Nor can a delta be added to it: no member was trained on another's head.
    """
    owners = Counter(name for member in context.members for name in _replaced(member))
    for name, count in owners.items():
        if count > 1:
            yield finding(
                "REPLACEMENT_OWNED_TWICE", "spec", ("full_replacements", name), "1 member", f"{count} members"
            )
    if owners:
        for module in sorted({site[0] for site in context.sites}):
            if f"{module}.weight" in owners:
                path = ("full_replacements", f"{module}.weight")
                yield finding("REPLACEMENT_ADAPTED", "spec", path, "replaced or adapted", "both")


def token_rows(context: Context) -> Iterator[Finding]:
    """Rows of a table that a member replaces have no place in a composed adapter."""
    for member in context.members:
        for part in member.adapter.full_replacements:
            if part.name.endswith(ROWS):
                path = ("full_replacements", part.name)
                yield finding("TOKEN_ROWS_NOT_COMPOSED", member.digest, path, "whole tensors only", "single rows")


def once(context: Context) -> Iterator[Finding]:
    """An adapter is a member once: its two weights add up to one."""
    for digest, count in Counter(member.adapter for member in context.spec.members).items():
        if count > 1:
            total = sum(member.weight for member in context.spec.members if member.adapter == digest)
            yield finding("MEMBER_TWICE", digest, ("members",), f"once, with weight {total!r}", f"{count} times")


def coefficients(context: Context) -> Iterator[Finding]:
    """A member of weight zero is a parent of something it does not change."""
    for member in context.spec.members:
        if member.weight == 0.0:
            yield finding("WEIGHT_ZERO", member.adapter, ("members", "weight"), "not 0", "0")


def _replaced(member: Member) -> set[str]:
    """The tensors of the base that a member replaces, wholly or in rows."""
    return {part.name.partition("#")[0] for part in member.adapter.full_replacements}
