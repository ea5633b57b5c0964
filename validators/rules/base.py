"""Predicate B: every member was made for exactly this base (R 0x05A, 0x05I)."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.base import BaseManifest, WeightRef
from schemas.canonical import JsonValue
from schemas.catalogue.methods import family
from schemas.decision import Finding
from schemas.errors import Path
from schemas.quantizers import Quantizer
from validators.context import Context, Member, finding


def weights(context: Context) -> Iterator[Finding]:
    """Same weight names, shapes, dtypes and bytes, as far as both sides' bytes were read."""
    for member in _elsewhere(context):
        names = _differing(context.base, member.base)
        if names:
            contract = family(member.adapter.family)
            coupled = contract is not None and contract.form in ("residual", "coupled")
            code = "COUPLED_BASE_DIFFERS" if coupled else "BASE_WEIGHTS_DIFFER"
            observed = f"{len(names)} differ, first {names[0]}"
            yield finding(code, member.digest, ("base", "weights", names[0]), "the same weights", observed)


def architecture(context: Context) -> Iterator[Finding]:
    """Same value in every configuration field that changes what the model computes."""
    for member in _elsewhere(context):
        ours, theirs = context.base.architecture.document(), member.base.architecture.document()
        for field in sorted(ours.keys() & theirs.keys()):
            if ours[field] != theirs[field]:
                path = ("base", "architecture", field)
                yield finding("BASE_ARCHITECTURE_DIFFERS", member.digest, path, str(ours[field]), str(theirs[field]))


def quantizer(context: Context) -> Iterator[Finding]:
    """Same storage of the frozen weights: factors trained on a packed base also correct its rounding.

    One scheme under another codebook, block order or nesting of scales is told by the field; what was not read is left
    to the rule on evidence.
    """
    for member in _elsewhere(context):
        ours, theirs = context.base.quantizer, member.base.quantizer
        if ours == theirs or "not_verified" in (ours, theirs):
            continue
        place, one, other = _packing_difference(ours, theirs)
        code = "QUANTIZER_ABI_DIFFERS" if place else "BASE_QUANTIZER_DIFFERS"
        yield finding(code, member.digest, ("base", "quantizer", *place), one, other)


def tokenizer(context: Context) -> Iterator[Finding]:
    """Another tokenizer of the same length is a condition, of another length a refusal."""
    ours = context.base.tokenizer
    for member in _elsewhere(context):
        theirs = member.base.tokenizer
        if ours == theirs:
            continue
        if ours == "none" or theirs == "none":
            one, other = ("none" if side == "none" else side.digest for side in (ours, theirs))
            yield finding("TOKENIZER_DIFFERS", member.digest, ("base", "tokenizer"), one, other)
        elif ours.length != theirs.length:
            path = ("base", "tokenizer", "length")
            yield finding("TOKENIZER_LENGTH_DIFFERS", member.digest, path, str(ours.length), str(theirs.length))
        else:
            path = ("base", "tokenizer", "digest")
            yield finding("TOKENIZER_DIFFERS", member.digest, path, ours.digest, theirs.digest)


def evidence(context: Context) -> Iterator[Finding]:
    """A base whose weight bytes were not read cannot prove that two adapters share its weights."""
    bases = {context.spec.base: context.base} | {member.adapter.base: member.base for member in context.members}
    for digest, base in bases.items():
        if base.weights_digest == "not_verified":
            code = "BASE_EVIDENCE_DECLARED" if base.weights == "not_verified" else "BASE_EVIDENCE_STRUCTURAL"
            yield finding(code, digest, ("weights_digest",), "every weight hashed", "not_verified")


def initializer(context: Context) -> Iterator[Finding]:
    """Factors whose initializer changed the base belong to that changed base (V 0x06, 0x07)."""
    for member in context.members:
        if member.adapter.initializer != "none":
            yield finding(
                "INITIALIZER_MUTATES_BASE", member.digest, ("initializer",), "none", member.adapter.initializer
            )


def _packing_difference(ours: Quantizer | str, theirs: Quantizer | str) -> tuple[Path, str, str]:
    """The first field in which two ways of packing differ, or the ways themselves where they share no fields."""
    if isinstance(ours, str) or isinstance(theirs, str) or ours.scheme != theirs.scheme:
        one, other = (side if isinstance(side, str) else side.scheme for side in (ours, theirs))
        return (), one, other
    return _first_difference(ours.document(), theirs.document())


def _first_difference(ours: JsonValue, theirs: JsonValue) -> tuple[Path, str, str]:
    """Where two documents part, and what stands there on both sides."""
    steps: list[tuple[str | int, JsonValue, JsonValue]] = []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        steps = [(key, ours.get(key), theirs.get(key)) for key in sorted(ours.keys() | theirs.keys())]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        steps = [(place, *pair) for place, pair in enumerate(zip(ours, theirs, strict=True))]
    for step, one, other in steps:
        if one != other:
            path, left, right = _first_difference(one, other)
            return (step, *path), left, right
    return (), _short(ours), _short(theirs)


def _short(value: JsonValue) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:119] + "…"


def _elsewhere(context: Context) -> Iterator[Member]:
    return (member for member in context.members if member.adapter.base != context.spec.base)


def _differing(ours: BaseManifest, theirs: BaseManifest) -> list[str]:
    if isinstance(ours.weights, str) or isinstance(theirs.weights, str):
        return []
    return [
        name
        for name in sorted(ours.weights.keys() | theirs.weights.keys())
        if _differs(ours.weights.get(name), theirs.weights.get(name))
    ]


def _differs(ours: WeightRef | None, theirs: WeightRef | None) -> bool:
    if ours is None or theirs is None:
        return True
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return True
    return "not_verified" not in (ours.tensor, theirs.tensor) and ours.tensor != theirs.tensor
