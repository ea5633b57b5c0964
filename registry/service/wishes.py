"""What is asked of a conversion, resolved: parent, start and bases, the recipe, and the order for the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from registry.db import Reader, manifests
from registry.errors import Problem, UsageProblemError
from registry.service import resolve, rules
from registry.service.composer import Converted, ConvertOrder
from registry.service.context import Context
from registry.service.plain import plain_lora
from registry.service.recipes import Recipe
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest, TensorRef
from schemas.conversion import CONVERSION_OPERATORS, ConversionManifest, Rule, Store
from schemas.digests import Digest
from schemas.names import check_name

OPTIONS: Final[Mapping[Rule, str]] = {"portable": "initial", "rebase": "base", "cast": "store"}
"""The one option that each of these rules needs and no other rule has."""


@dataclass(frozen=True)
class Wish:
    """What to make of an adapter.

    Attributes:
        rule: the transformation.
        name: to register the result under; null records it without one.
        initial: reference of the snapshot from before the training (portable).
        base: reference of the other base (rebase).
        store: dtype to round to (cast).
        acknowledge: conditions accepted by code.
    """

    rule: Rule
    name: str | None = None
    initial: str | None = None
    base: str | None = None
    store: Store | None = None
    acknowledge: frozenset[str] = field(default_factory=frozenset)

    @property
    def hands_out(self) -> bool:
        """Whether this is only the form in which something goes out, and nothing new under a name."""
        return self.rule == "plain_lora" and self.name is None


@dataclass(frozen=True)
class Subject:
    """A wish resolved: what is converted, from which start, between which bases."""

    wish: Wish
    parent: AdapterManifest
    initial: AdapterManifest | None
    old: BaseManifest
    new: BaseManifest

    @property
    def acknowledged(self) -> tuple[str, ...]:
        """The conditions that were accepted, since without them there is no conversion."""
        return ("BASE_REPLACED",) if self.wish.rule == "rebase" else ()

    def manifest(self, output: Digest) -> ConversionManifest:
        """The record of it."""
        return ConversionManifest(
            parent=self.parent.digest,
            initial=None if self.initial is None else self.initial.digest,
            base=self.new.digest,
            rule=self.wish.rule,
            operator=CONVERSION_OPERATORS[self.wish.rule],
            store=self.wish.store,
            acknowledged=self.acknowledged,
            output=output,
        )


def check_options(wish: Wish) -> None:
    """Refuse a name that is none, and options that do not belong to the rule (`CONVERSION_OPTION`)."""
    if wish.name is not None:
        check_name(wish.name)
    needed = OPTIONS.get(wish.rule)
    for option in sorted(set(OPTIONS.values())):
        given = getattr(wish, option) is not None
        if given != (option == needed):
            expected = f"{option} given" if option == needed else f"no {option}"
            hint = "portable takes the initial snapshot, rebase a base, a cast a dtype; other rules take none of them."
            raise UsageProblemError(
                Problem(
                    code="CONVERSION_OPTION",
                    path=(option,),
                    expected=f"{expected} for {wish.rule}",
                    observed="given" if given else "none",
                    hint=hint,
                )
            )


def subject_of(reader: Reader, ref: str, wish: Wish) -> Subject:
    """A wish about the adapter a reference means; what was yanked is not converted, but what is live is handed out."""
    digests = [resolve.digest_of(reader, item) for item in (ref, wish.initial) if item is not None]
    if not wish.hands_out:
        resolve.refuse_yanked(reader, digests)
    parent, *rest = (resolve.adapter_of(reader, digest) for digest in digests)
    old = manifests.load(reader, parent.base, BaseManifest)
    new = old if wish.base is None else resolve.base_of(reader, wish.base)
    return Subject(wish, parent, rest[0] if rest else None, old, new)


def recipe_of(subject: Subject) -> Recipe:
    """How its factors are computed; a rebase has nothing to compute, a dense release no factors."""
    parent, wish = subject.parent, subject.wish
    if wish.rule == "portable":
        assert subject.initial is not None, "the option was checked"
        return rules.portable(parent, subject.initial)
    if wish.rule == "compact":
        return rules.compact(parent)
    if wish.rule == "cast":
        assert wish.store is not None, "the option was checked"
        return rules.cast(parent, wish.store)
    if wish.rule == "balanced":
        return rules.balanced(parent)
    return plain_lora(parent, subject.old)


def subject_again(reader: Reader, conversion: ConversionManifest) -> Subject:
    """The subject of a recorded conversion."""
    parent = manifests.load(reader, conversion.parent, AdapterManifest)
    initial = None if conversion.initial is None else manifests.load(reader, conversion.initial, AdapterManifest)
    bases = (manifests.load(reader, digest, BaseManifest) for digest in (parent.base, conversion.base))
    return Subject(Wish(conversion.rule, store=conversion.store), parent, initial, *bases)


def order_of(context: Context, reader: Reader, subject: Subject, recipe: Recipe) -> ConvertOrder:
    """What the arithmetic needs: the factors to make and where their inputs lie."""
    wanted = [ref for adapter in (subject.parent, subject.initial) if adapter for ref in resolve.tensors_of(adapter)]
    extents = resolve.extents(context, reader, (ref for ref in wanted if 0 not in ref.shape))
    return ConvertOrder(tuple(making.order for making in recipe.makings), recipe.carried, extents)


def output_of(recipe: Recipe, converted: Converted) -> AdapterManifest:
    """The adapter that a recipe's new tensors complete."""
    return recipe.output({key: _ref(converted, key) for key in converted.tensors})


def _ref(converted: Converted, key: tuple[str, str]) -> TensorRef:
    place = converted.tensors[key]
    return TensorRef(tensor=place.tensor, dtype=place.dtype, shape=place.shape)
