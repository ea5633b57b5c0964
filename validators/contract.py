"""Whether an adapter is what its family says: asked when it is registered, before anything is built on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.catalogue.methods import family as family_of
from schemas.composition import ResolvedMember, ResolvedSpec
from schemas.decision import Finding
from schemas.methods import Choices
from validators.context import Context, gather
from validators.decision import run
from validators.rules import factors, family, roles, training

CONTRACT: Final[tuple[Callable[[Context], Iterator[Finding]], ...]] = (
    family.known,
    family.quantized,
    family.initializer,
    family.label,
    training.missing,
    training.rates,
    training.frozen,
    training.resume,
    factors.scale_rules,
    roles.missing,
    roles.foreign,
    roles.shapes,
    roles.shared_a,
)
"""The rules that hold for an adapter alone. All of them also run on every composition."""


def judge_adapter(adapter: AdapterManifest, base: BaseManifest) -> tuple[Finding, ...]:
    """What contradicts the contract of the adapter's own family; nothing that only a composition cannot take."""
    spec = ResolvedSpec(
        base=adapter.base,
        lane="independent",
        members=(ResolvedMember(adapter=adapter.digest, weight=1.0),),
        method="cat",
        space="delta",
        choices=Choices(),
    )
    return run(CONTRACT, gather(spec, base, {adapter.digest: adapter}, {}))


def judged_by_form(family_key: str) -> bool:
    """Whether adapters of a family that differ in nothing but the digests of their tensors get one answer.

    Only a shared and a frozen a are looked at by what they hold.
    """
    contract = family_of(family_key)
    return contract is not None and not contract.shared_a and "frozen_a" not in contract.training
