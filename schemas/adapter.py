"""Factor and adapter manifests: one low-rank update per module, bound to one base."""

from __future__ import annotations

from math import isclose, sqrt
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.base import TensorRef
from schemas.digests import Digest
from schemas.model import Count, Finite, Identifier, Key, Manifest, ModuleName, Rank, Record

ScaleRule = Literal["alpha_over_r", "alpha_over_sqrt_r", "explicit"]


class Scale(Record):
    """The multiplier s of ``delta = s B A``; it is part of the operator, not of its name.

    `value` is the number applied to the output: alpha / r, alpha / sqrt(r), or alpha itself when explicit.
    """

    alpha: Finite
    rule: ScaleRule
    value: Finite
    applied: Literal["output"] = "output"


def scale_value(alpha: float, rule: ScaleRule, rank: int) -> float:
    """The multiplier a rule gives (V 0x04: alpha/r for LoRA, alpha/sqrt(r) for rsLoRA)."""
    if rule == "alpha_over_r":
        return alpha / rank
    if rule == "alpha_over_sqrt_r":
        return alpha / sqrt(rank)
    return alpha


def make_scale(alpha: float, rule: ScaleRule, rank: int) -> Scale:
    """A scale whose value follows from its rule."""
    return Scale(alpha=float(alpha), rule=rule, value=scale_value(float(alpha), rule, rank))


class FactorManifest(Manifest):
    """One module's pair: ``delta [d_out, d_in] = s * b [d_out, r] @ a [r, d_in]``.

    `extra` holds further tensors by role (magnitude, E, bias). `source` is the catalogue row whose contract the factor
    follows. Expert, map head and route side are null where the base has none.
    """

    KIND: ClassVar[str] = "factor"
    kind: Literal["factor"] = "factor"
    base: Digest
    module: ModuleName
    expert: Count | None = None
    map_head: Count | None = None
    route_side: Identifier | None = None
    a: TensorRef
    b: TensorRef
    order: Literal["B@A"] = "B@A"
    rank: Rank
    scale: Scale
    extra: dict[Key, TensorRef] = Field(default_factory=dict)
    parent: Digest | None = None
    source: Key

    @property
    def site(self) -> tuple[str, int, int, str]:
        """Where the factor acts, in the order adapters sort by; -1 and "" stand for absent."""
        return (
            self.module,
            -1 if self.expert is None else self.expert,
            -1 if self.map_head is None else self.map_head,
            self.route_side or "",
        )

    @model_validator(mode="after")
    def _shapes_and_scale_agree(self) -> Self:
        if len(self.a.shape) != 2 or len(self.b.shape) != 2:
            raise ValueError("a and b are matrices")
        if self.a.shape[0] != self.rank or self.b.shape[1] != self.rank:
            raise ValueError("rank is the rows of a and the columns of b")
        value = scale_value(self.scale.alpha, self.scale.rule, self.rank)
        if not isclose(self.scale.value, value, rel_tol=1e-15, abs_tol=0.0):
            raise ValueError("scale value does not follow from alpha, rule and rank")
        return self


class FullReplacement(Record):
    """A tensor an adapter replaces as a whole, such as a trained head."""

    name: Identifier
    value: TensorRef


class AdapterManifest(Manifest):
    """An adapter: its base, its factors in order, and what a lane must know about its making.

    `initializer` is `none` unless it mutates the base. `training` holds exactly the fields the lane's contract names.
    """

    KIND: ClassVar[str] = "adapter"
    kind: Literal["adapter"] = "adapter"
    base: Digest
    factors: tuple[FactorManifest, ...] = Field(min_length=1)
    family: Key
    initializer: Key = "none"
    payload: Literal["portable", "native", "resume"] = "portable"
    full_replacements: tuple[FullReplacement, ...] = ()
    training: dict[Key, Identifier] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _factors_belong_and_are_sorted(self) -> Self:
        sites = [factor.site for factor in self.factors]
        if sites != sorted(set(sites)):
            raise ValueError("factors are sorted by module, expert, map head and route side, each once")
        if any(factor.base != self.base for factor in self.factors):
            raise ValueError("every factor has the adapter's base")
        names = [replacement.name for replacement in self.full_replacements]
        if names != sorted(set(names)):
            raise ValueError("full replacements are sorted by name, each once")
        return self


def sorted_factors(factors: list[FactorManifest]) -> tuple[FactorManifest, ...]:
    """Factors in identity order."""
    return tuple(sorted(factors, key=lambda factor: factor.site))
