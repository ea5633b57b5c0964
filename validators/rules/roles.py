"""Predicate F: the tensors of each factor, by the roles its family gives them, and how they make a delta."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Final

from schemas.catalogue.methods import Form, family
from schemas.decision import Finding
from validators.context import Context, Profile, finding

_PACKED: Final[frozenset[Form]] = frozenset({"pooled_input", "block_diagonal"})

_ELEMENTS: Final[Mapping[str, Callable[[Profile], int]]] = MappingProxyType(
    {
        "magnitude": lambda profile: profile.delta[0],
        "bias": lambda profile: profile.delta[0],
        "E": lambda profile: profile.rank,
        "diag": lambda profile: profile.rank,
    }
)
"""How many values a role has in a factor of a Linear or convolutional module (V 0x08A, 0x03B)."""


def is_packed(profile: Profile) -> bool:
    """Whether the stored factors are an arrangement of those that are multiplied."""
    contract = family(profile.family)
    return contract is not None and contract.form in _PACKED


def missing(context: Context) -> Iterator[Finding]:
    """Every role of the family is there in every factor (V 0x0AI)."""
    for profile, digests in context.factors.items():
        contract = family(profile.family)
        lacking = {*contract.roles} - {*profile.roles} if contract is not None else ()
        for role in sorted(lacking):
            for digest in digests:
                yield finding("ROLE_MISSING", digest, (*profile.path, "extra", role), role, "no such tensor")


def foreign(context: Context) -> Iterator[Finding]:
    """A tensor the family has no place for would be dropped without a word."""
    for profile, digests in context.factors.items():
        contract = family(profile.family)
        own = {*contract.roles, *contract.optional, *contract.resume} if contract is not None else set()
        for role in profile.roles:
            if role not in own:
                expected = ", ".join(("a", "b", *sorted(own)))
                for digest in digests:
                    path = (*profile.path, "extra", role)
                    yield finding("EXTRA_TENSOR_NOT_COMPOSED", digest, path, expected, role)


def biases(context: Context) -> Iterator[Finding]:
    """A bias inside lora_B is scaled with its member, and no composed factor has one."""
    for profile, digests in context.factors.items():
        if "bias" in profile.roles:
            for digest in digests:
                path = (*profile.path, "extra", "bias")
                yield finding("LORA_BIAS_NOT_COMPOSED", digest, path, "a and b only", "a bias")


def shapes(context: Context) -> Iterator[Finding]:
    """A role lies on the axis it is defined on: rows of the stored weight, or the rank."""
    for profile, digests in context.factors.items():
        if profile.order != "B@A":
            continue
        for role, shape in profile.extra:
            wanted = _ELEMENTS[role](profile) if role in _ELEMENTS else prod(shape)
            if prod(shape) != wanted:
                observed = " x ".join(map(str, shape)) or "one value"
                for digest in digests:
                    path = (*profile.path, "extra", role)
                    yield finding("ROLE_SHAPE_MISMATCH", digest, path, f"{wanted} values", observed)


def zero_ranks(context: Context) -> Iterator[Finding]:
    """A module of which the allocator took every triplet."""
    for profile, digests in context.factors.items():
        if profile.rank == 0:
            for digest in digests:
                yield finding("RANK_ZERO_MODULE", digest, (*profile.path, "rank"), "at least 1", "0")


def one_order(context: Context) -> Iterator[Finding]:
    """Members of one module mean the same axes; where those are as long as each other no shape would tell."""
    for profiles in context.sites.values():
        if len({(profile.order, profile.experts and profile.delta) for profile in profiles}) > 1:
            found = sorted({f"{profile.order} of {profile.delta[0]} x {profile.delta[1]}" for profile in profiles})
            yield finding("ORDERS_DIFFER", "spec", (*profiles[0].path, "order"), "one order", ", ".join(found))


def shared_a(context: Context) -> Iterator[Finding]:
    """One stored a for all experts of a module, where the family shares it (R 0x04B)."""
    for member in context.members:
        contract = family(member.adapter.family)
        if contract is None or not contract.shared_a:
            continue
        stored: defaultdict[str, set[str]] = defaultdict(set)
        for factor in member.whole().factors:
            stored[factor.module].add(factor.a.tensor)
        for module, tensors in stored.items():
            if len(tensors) > 1:
                path = ("factors", module, "a")
                yield finding(
                    "SHARED_A_UNEQUAL", member.digest, path, "one a for all experts", f"{len(tensors)} of them"
                )
