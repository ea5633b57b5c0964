"""What a conversion is made of: factors to compute and the manifest they get, or the reasons why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from registry.errors import Problem, RefusedError
from registry.service.composer import FactorOrder, Term
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, Scale, make_scale, sorted_factors
from schemas.base import TensorRef
from schemas.digests import Digest

MATRICES: Final = ("B@A", "(B@A)^T")
"""Orders in which b a is one matrix product."""
TRIPLETS: Final = frozenset({"E"})
"""The extra tensors of AdaLoRA."""
COMPACT: Final = (
    "Make pairs of AdaLoRA's triplets, heads kept (`registry convert REF --to compact`), and go on with that."
)
ScaleOf = Callable[[int], Scale]
"""The scale of a factor by its rank."""


@dataclass(frozen=True)
class Making:
    """One factor to make: the order for its tensors, and the manifest that they complete."""

    order: FactorOrder
    complete: Callable[[TensorRef, TensorRef], FactorManifest]


@dataclass(frozen=True)
class Recipe:
    """Everything about the output but its new tensors. `carried` go into its file byte for byte, by key."""

    base: Digest
    makings: tuple[Making, ...]
    family: str
    full_replacements: tuple[FullReplacement, ...]
    training: Mapping[str, str] = field(default_factory=dict)

    @property
    def carried(self) -> dict[str, TensorRef]:
        """Tensors that are taken over whole."""
        return {item.name: item.value for item in self.full_replacements}

    def output(self, made: Mapping[tuple[str, str], TensorRef]) -> AdapterManifest:
        """The output adapter; a factor of which no row was left is absent.

        Raises:
            RefusedError: `NOTHING_LEFT`.
        """
        factors = [
            item.complete(made[item.order.key, "lora_A"], made[item.order.key, "lora_B"])
            for item in self.makings
            if (item.order.key, "lora_A") in made
        ]
        if not factors:
            hint = "The allocator took every triplet: this adapter does nothing and cannot be made compact."
            raise RefusedError(problem("NOTHING_LEFT", ("factors",), "a triplet that is not zero", "none", hint))
        return AdapterManifest(
            base=self.base,
            factors=sorted_factors(factors),
            family=self.family,
            full_replacements=self.full_replacements,
            training=dict(self.training),
        )


def like(factor: FactorManifest, scale_of: ScaleOf, source: str) -> Callable[[TensorRef, TensorRef], FactorManifest]:
    """A factor at the same site with other tensors, without extras."""

    def complete(a: TensorRef, b: TensorRef) -> FactorManifest:
        return FactorManifest(
            base=factor.base,
            module=factor.module,
            expert=factor.expert,
            map_head=factor.map_head,
            route_side=factor.route_side,
            a=a,
            b=b,
            order=factor.order,
            rank=a.shape[0],
            scale=scale_of(a.shape[0]),
            source=source,
        )

    return complete


def unit_scale(rank: int) -> Scale:
    """alpha = r, so that every reader of alpha / r finds 1."""
    return make_scale(float(rank), "alpha_over_r", rank)


def key_of(factor: FactorManifest) -> str:
    """A name for the factor's tensors in a file, unique in its adapter."""
    module, *rest = factor.site
    return module if rest == [-1, -1, ""] else f"{module}#{'.'.join(map(str, rest))}"


def order_of(factor: FactorManifest) -> FactorOrder:
    """The factor as it is; one whose triplets are all gone has no terms."""
    terms = (Term(factor.a, factor.b, factor.extra.get("E")),) if factor.rank else ()
    return FactorOrder(key_of(factor), terms, (factor.b.shape[0], factor.a.shape[1]), factor.a.dtype)


def matrix_problems(adapter: AdapterManifest, extras: frozenset[str] = frozenset()) -> list[Problem]:
    """Factors that are no plain pair of matrices, `extras` aside."""
    hint = (
        "This conversion is for pairs of matrices: hand it out as it is, or as a dense release where that is possible."
    )
    found = []
    for factor in adapter.factors:
        more = sorted(factor.extra.keys() - extras)
        if more:
            path = ("factors", key_of(factor), "extra")
            way = COMPACT if TRIPLETS.issuperset(more) else hint
            found.append(problem("FACTORS_NOT_PLAIN", path, "a and b alone", ", ".join(more), way))
        if factor.order not in MATRICES or len(factor.a.shape) != 2:
            path = ("factors", key_of(factor), "order")
            observed = f"{factor.order} of shape {list(factor.a.shape)}"
            found.append(problem("FACTORS_NOT_PLAIN", path, " or ".join(MATRICES), observed, hint))
    return found


def problem(code: str, path: tuple[str | int, ...], expected: str, observed: str, hint: str) -> Problem:
    """One reason why not."""
    return Problem(code=code, path=path, expected=expected, observed=observed, hint=hint)
