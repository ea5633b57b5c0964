"""What each member must be, and that each is there once: predicates M, T, F and C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from schemas.decision import Finding
from validators.context import Context, finding

ADDITIVE: Final = ("lora", "rslora")
"""Families whose deployed update is the sum of s B A and nothing else (V 0x04, 0x04F)."""


def family(context: Context) -> Iterator[Finding]:
    """Only an update that is a plain sum can be composed as one."""
    for member in context.members:
        if member.adapter.family not in ADDITIVE:
            yield finding(
                "FAMILY_NOT_ADDITIVE", member.digest, ("family",), " or ".join(ADDITIVE), member.adapter.family
            )


def training(context: Context) -> Iterator[Finding]:
    """Independently trained members carry no training fields; those that do were made under another lane."""
    for member in context.members:
        if member.adapter.training:
            fields = ", ".join(sorted(member.adapter.training))
            yield finding("TRAINING_FIELDS_FOREIGN", member.digest, ("training",), "none", fields)


def payload(context: Context) -> Iterator[Finding]:
    """Only portable factors mean the same on the original base (V 0x06, 0x0A)."""
    for member in context.members:
        if member.adapter.payload != "portable":
            yield finding("PAYLOAD_NOT_PORTABLE", member.digest, ("payload",), "portable", member.adapter.payload)


def replacements(context: Context) -> Iterator[Finding]:
    """A wholly replaced tensor, such as a trained head, is carried from its one owner; two cannot be summed."""
    owners = Counter(part.name for member in context.members for part in member.adapter.full_replacements)
    for name, count in owners.items():
        if count > 1:
            yield finding(
                "REPLACEMENT_OWNED_TWICE", "spec", ("full_replacements", name), "1 member", f"{count} members"
            )


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
