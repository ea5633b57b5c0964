"""Predicate T: an adapter says exactly what its family names about its training, and the tensors agree with it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from schemas.adapter import AdapterManifest
from schemas.canonical import JsonObject, canonical_bytes
from schemas.catalogue.methods import Contract, family
from schemas.decision import Finding
from schemas.digests import Digest, manifest_digest
from validators.context import Context, Member, finding


def frozen_a(adapter: AdapterManifest) -> Digest:
    """The digest of every factor's a by its place, which a method that trains b alone states (V 0x05K)."""
    tensors: JsonObject = {"/".join(map(str, factor.site)): factor.a.tensor for factor in adapter.factors}
    return manifest_digest("frozen_a", canonical_bytes(tensors))


def missing(context: Context) -> Iterator[Finding]:
    """Every training field of the family is there."""
    for member, contract in _contracts(context):
        lacking = [name for name in contract.training if name not in member.adapter.training]
        if lacking:
            expected = ", ".join(contract.training)
            observed = ", ".join(sorted(member.adapter.training)) or "none"
            yield finding("TRAINING_FIELDS_MISSING", member.digest, ("training",), expected, observed)


def foreign(context: Context) -> Iterator[Finding]:
    """A field the family does not name belongs to another lane, whose parts may be missing here."""
    for member, contract in _contracts(context):
        others = sorted(member.adapter.training.keys() - {*contract.training})
        if others:
            expected = ", ".join(contract.training) or "none"
            yield finding("TRAINING_FIELDS_FOREIGN", member.digest, ("training",), expected, ", ".join(others))


def rates(context: Context) -> Iterator[Finding]:
    """Two rates are two: a ratio of one is ordinary training under the method's name (V 0x05A)."""
    for member, contract in _contracts(context):
        ratio = member.adapter.training.get("rate_ratio")
        if "rate_ratio" in contract.training and ratio is not None and not _is_ratio(ratio):
            path = ("training", "rate_ratio")
            yield finding("RATES_EQUAL", member.digest, path, "a positive number other than 1", ratio)


def frozen(context: Context) -> Iterator[Finding]:
    """The a that was frozen is the a that is stored."""
    for member, contract in _contracts(context):
        stated = member.adapter.training.get("frozen_a")
        if "frozen_a" in contract.training and stated is not None and stated != (stored := frozen_a(member.whole())):
            path = ("training", "frozen_a")
            yield finding("FROZEN_A_DIFFERS", member.digest, path, stated, stored)


def resume(context: Context) -> Iterator[Finding]:
    """A payload to be trained on holds the state of the family's allocator (V 0x03I)."""
    for member, contract in _contracts(context):
        if member.adapter.payload != "resume":
            continue
        lacking = {role for factor in member.whole().factors for role in contract.resume if role not in factor.extra}
        if lacking:
            expected, observed = ", ".join(contract.resume), f"no {', '.join(sorted(lacking))} in every factor"
            yield finding("ALLOCATOR_STATE_MISSING", member.digest, ("payload",), expected, observed)


def _contracts(context: Context) -> Iterator[tuple[Member, Contract]]:
    for member in context.members:
        contract = family(member.adapter.family)
        if contract is not None:
            yield member, contract


def _is_ratio(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return isfinite(value) and value > 0.0 and value != 1.0
