"""The conversion rules: each turns manifests into a recipe, or refuses by name. No bytes are read here."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Final

from registry.errors import Problem
from registry.formats.base.modules import Layer, layers
from registry.service.composer import FactorOrder, Term
from registry.service.recipes import (
    COMPACT,
    TRIPLETS,
    Making,
    Recipe,
    ScaleOf,
    key_of,
    like,
    matrix_problems,
    order_of,
    problem,
    unit_scale,
)
from schemas.adapter import AdapterManifest, FactorManifest, Scale, make_scale
from schemas.base import BaseManifest
from schemas.errors import refuse

SUBTRACTED: Final = frozenset({"pissa", "olora_init", "corda", "lora_ga"})
"""Initializers that take ``s B_0 A_0`` out of the base, so that adding it back makes a portable adapter."""


def portable(parent: AdapterManifest, initial: AdapterManifest) -> Recipe:
    """``B = [B_t B_0], A = [A_t; -A_0]`` at twice the rank: the trained delta minus its start (V 0x06).

    Alpha doubles where the scale is alpha / r and grows by sqrt(2) where it is alpha / sqrt(r): the multiplier stays.
    The rank-stabilised case is refused with ranks or alphas that differ: a config of one rank and patterns has no
    portable form there (V 0x09A).
    """
    refuse(_not_native(parent))
    refuse([*matrix_problems(parent), *_pattern_problems(parent), *_start_problems(parent, initial)])
    pairs = list(zip(parent.factors, initial.factors, strict=True))
    family = "rslora" if parent.factors[0].scale.rule == "alpha_over_sqrt_r" else "lora"
    return Recipe(
        base=parent.base,
        makings=tuple(_doubled(trained, start, family) for trained, start in pairs),
        family=family,
        full_replacements=parent.full_replacements,
        training=parent.training,
    )


def compact(parent: AdapterManifest) -> Recipe:
    """AdaLoRA's triplets as pairs: ``A = s E A`` without the masked rows, alpha = r (V 0x03).

    The scale is the stored one, alpha / (initial rank + 1e-5); it is never taken again from the rank that is left.
    """
    missing = [_no_triplet(factor) for factor in parent.factors if "E" not in factor.extra]
    refuse([*missing, *matrix_problems(parent, TRIPLETS)])
    return Recipe(
        base=parent.base,
        makings=tuple(
            Making(
                replace(order_of(factor), scale=factor.scale.value, into="a"),
                like(factor, unit_scale, "lora"),
            )
            for factor in parent.factors
        ),
        family="lora",
        full_replacements=parent.full_replacements,
    )


def cast(parent: AdapterManifest, store: str) -> Recipe:
    """The same factors in another dtype, rounded once; full replacements keep theirs."""
    refuse(matrix_problems(parent))
    return _same(parent, [replace(order_of(factor), dtype=store) for factor in parent.factors])


def balanced(parent: AdapterManifest) -> Recipe:
    """The same deltas in the one gauge with ``B^T B = A A^T`` diagonal, which makes factor methods gauge-free."""
    refuse(matrix_problems(parent))
    return _same(parent, [replace(order_of(factor), balance=True) for factor in parent.factors])


def _same(parent: AdapterManifest, orders: list[FactorOrder]) -> Recipe:
    """Other numbers under the same scales."""
    refuse([_not_portable(parent)] if parent.payload != "portable" else [])
    return Recipe(
        base=parent.base,
        makings=tuple(
            Making(order, like(factor, _kept(factor.scale), factor.source))
            for factor, order in zip(parent.factors, orders, strict=True)
        ),
        family=parent.family,
        full_replacements=parent.full_replacements,
        training=parent.training,
    )


def rebase(parent: AdapterManifest, old: BaseManifest, new: BaseManifest) -> AdapterManifest:
    """The same factors on another base of the same shapes; whether they do the same there, nobody has shown.

    Raises:
        RefusedError: `REBASE_SHAPES_DIFFER`, one problem a module.
    """
    before, after = layers(old), layers(new)
    modules = sorted({factor.module for factor in parent.factors})
    refuse(
        _no_such_layer(module, _told(before.get(module)), _told(after.get(module)))
        for module in modules
        if _told(before.get(module)) != _told(after.get(module))
    )
    factors = tuple(factor.model_copy(update={"base": new.digest}) for factor in parent.factors)
    return parent.model_copy(update={"base": new.digest, "factors": factors})


def rebase_condition(old: BaseManifest, new: BaseManifest) -> Problem:
    """`BASE_REPLACED`: what must be accepted by name before an adapter is moved to another base."""
    hint = "Evaluate it on the new base, then acknowledge BASE_REPLACED."
    return problem("BASE_REPLACED", ("base",), f"the base it was trained on, {old.digest}", new.digest, hint)


def _told(layer: Layer | None) -> str:
    return "no such layer" if layer is None else f"{layer.kind} {list(layer.shape)}"


def _no_such_layer(module: str, expected: str, observed: str) -> Problem:
    hint = "Choose a base whose layers have the names and shapes of the one it was trained on."
    return problem("REBASE_SHAPES_DIFFER", ("factors", module), expected, observed, hint)


def _kept(scale: Scale) -> ScaleOf:
    return lambda _rank: scale


def _doubled(trained: FactorManifest, start: FactorManifest, family: str) -> Making:
    terms = (Term(trained.a, trained.b), Term(start.a, start.b, sign=-1))
    grown = {"alpha_over_r": 2.0, "alpha_over_sqrt_r": sqrt(2.0), "explicit": 1.0}[trained.scale.rule]
    scale = make_scale(grown * trained.scale.alpha, trained.scale.rule, 2 * trained.rank)
    return Making(replace(order_of(trained), terms=terms), like(trained, _kept(scale), family))


def _not_native(parent: AdapterManifest) -> list[Problem]:
    if parent.payload == "native" and parent.initializer in SUBTRACTED:
        return []
    observed = f"a {parent.payload} adapter, initializer {parent.initializer}"
    expected = f"native factors of {', '.join(sorted(SUBTRACTED))}"
    hint = "An adapter of the original base is portable already; LoftQ belongs to its own quantised base."
    if any("E" in factor.extra for factor in parent.factors):
        hint = f"It belongs to the original base already. {COMPACT}"
    return [problem("CONVERSION_NOT_NATIVE", ("initializer",), expected, observed, hint)]


def _pattern_problems(parent: AdapterManifest) -> list[Problem]:
    scales = {(factor.rank, factor.scale.alpha) for factor in parent.factors}
    if len(scales) == 1 or all(factor.scale.rule != "alpha_over_sqrt_r" for factor in parent.factors):
        return []
    hint = "Bake the scales first, or train with one rank and alpha; the classic alpha / r converts with patterns."
    expected, observed = "one rank and one alpha under alpha / sqrt(r)", f"{len(scales)} of them"
    return [problem("PATTERNED_RSLORA", ("factors",), expected, observed, hint)]


def _start_problems(parent: AdapterManifest, initial: AdapterManifest) -> list[Problem]:
    """The snapshot must be the start of this very training: one base, the same sites, forms and scales."""
    found = []
    if initial.base != parent.base:
        found.append(_other_start(("base",), parent.base, initial.base))
    ours, theirs = ({key_of(factor): factor for factor in item.factors} for item in (parent, initial))
    for key in sorted(ours.keys() | theirs.keys()):
        expected, observed = _form(ours.get(key)), _form(theirs.get(key))
        if expected != observed:
            found.append(_other_start(("factors", key), expected, observed))
    trained = {(key, factor.a, factor.b) for key, factor in ours.items()}
    if trained == {(key, factor.a, factor.b) for key, factor in theirs.items()}:
        found.append(_other_start(("factors",), "factors from before the training", "the trained factors themselves"))
    return found


def _form(factor: FactorManifest | None) -> str:
    if factor is None:
        return "no factors"
    return f"a {list(factor.a.shape)} {factor.a.dtype}, b {list(factor.b.shape)}, scale {factor.scale.value!r}"


def _other_start(path: tuple[str, ...], expected: str, observed: str) -> Problem:
    hint = "Name the snapshot that was saved before the training of this adapter began."
    return problem("INITIAL_DIFFERS", path, expected, observed, hint)


def _no_triplet(factor: FactorManifest) -> Problem:
    hint = "Only AdaLoRA's triplets are made compact; a pair of factors is compact already."
    return problem("NOT_TRIPLETS", ("factors", key_of(factor), "extra"), "E beside a and b", "a pair", hint)


def _not_portable(parent: AdapterManifest) -> Problem:
    hint = "Convert it to portable first; its factors mean nothing without their start."
    return problem("NOT_PORTABLE", ("payload",), "portable", parent.payload, hint)
