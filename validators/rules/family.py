"""Predicate M: the family of a member resolves to one frozen row, and its update can be summed (R 0x09C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from schemas.catalogue.methods import Contract, Form, family
from schemas.decision import Finding
from validators.context import Context, finding

NOT_SUMMED: Final[Mapping[Form, str]] = MappingProxyType(
    {
        "triplets": "ADALORA_NOT_COMPACT",
        "normalized": "DORA_NOT_ADDITIVE",
        "activated": "ALORA_CONDITIONAL",
        "pooled_input": "QALORA_INPUT_POOLED",
        "block_diagonal": "BDLORA_BLOCKS_PACKED",
        "diagonal": "KASA_DIAGONAL",
        "routed": "EXPERT_POOL_FUSED",
    }
)
"""Forms that are no sum of s B A. Residual and coupled factors are one, on the base their initializer left: predicate B
speaks of them."""


def refused_form(contract: Contract) -> str | None:
    """The code that refuses to compose every adapter of a family; none where its factors are summed."""
    if "none" not in contract.initializers:
        return NOT_SUMMED.get(contract.form, "INITIALIZER_MUTATES_BASE")
    return NOT_SUMMED.get(contract.form, "LORA_BIAS_NOT_COMPOSED" if "bias" in contract.roles else None)


def known(context: Context) -> Iterator[Finding]:
    """Adapter and factors name families the catalogue has a contract for."""
    expected = "a family of the catalogue"
    for member in context.members:
        if family(member.adapter.family) is None:
            yield finding("FAMILY_UNKNOWN", member.digest, ("family",), expected, member.adapter.family)
    for profile, digests in context.factors.items():
        if family(profile.source) is None:
            for digest in digests:
                yield finding("FAMILY_UNKNOWN", digest, (*profile.path, "source"), expected, profile.source)


def form(context: Context) -> Iterator[Finding]:
    """Whatever else a family computes (a norm, a mask, a gate) would be lost in a sum."""
    for member in context.members:
        contract = family(member.adapter.family)
        if contract is not None and contract.form in NOT_SUMMED:
            code = NOT_SUMMED[contract.form]
            yield finding(code, member.digest, ("family",), "a sum of s B A", member.adapter.family)


def quantized(context: Context) -> Iterator[Finding]:
    """A family defined over a low-bit base stands on one (V 0x02A, 0x09D)."""
    for member in context.members:
        contract = family(member.adapter.family)
        if contract is not None and contract.quantized and member.base.quantizer == "none":
            expected = f"a quantized base, as {member.adapter.family} has"
            yield finding("FAMILY_NEEDS_QUANTIZED_BASE", member.digest, ("base", "quantizer"), expected, "none")


def initializer(context: Context) -> Iterator[Finding]:
    """An initializer that changes the base stands under a family that has it (V 0x06H)."""
    for member in context.members:
        contract = family(member.adapter.family)
        if contract is not None and member.adapter.initializer not in contract.initializers:
            expected = " or ".join(contract.initializers)
            yield finding("INITIALIZER_FOREIGN", member.digest, ("initializer",), expected, member.adapter.initializer)


def label(context: Context) -> Iterator[Finding]:
    """Factors of a changed base are native, whatever their shapes fit, and only an allocator is resumed (V 0x06H)."""
    for member in context.members:
        adapter = member.adapter
        contract = family(adapter.family)
        if contract is None:
            continue
        if adapter.payload == "portable" and (adapter.initializer != "none" or "portable" not in contract.payloads):
            yield finding("NATIVE_LABELLED_PORTABLE", member.digest, ("payload",), "native", "portable")
        elif adapter.payload not in contract.payloads:
            expected = " or ".join(contract.payloads)
            yield finding("PAYLOAD_FOREIGN", member.digest, ("payload",), expected, adapter.payload)
