"""Factor and adapter manifests: one low-rank update per module, bound to one base."""

from __future__ import annotations

from math import isclose, sqrt
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.base import TensorRef
from schemas.digests import Digest
from schemas.model import Count, Finite, Identifier, Key, Manifest, ModuleName, Record

ScaleRule = Literal["alpha_over_r", "alpha_over_sqrt_r", "explicit"]
Order = Literal["B@A", "(B@A)^T", "B[o,r,e]A[e,r,i]"]
"""How ``b`` and ``a`` make a delta in the layout of the base weight (docs of `FactorManifest`)."""
Role = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
"""What a further tensor of a factor is, in the letters of its method: magnitude, bias, E."""

ROWS: Final = "#rows"
VALUES: Final = "#values"
"""Endings of a replacement's name where an adapter replaces rows: ``table[rows] = values``, rows as I64."""


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

    `order` says so, or how else the delta lies in the base weight:

    - ``B@A``: Linear; a convolution's ``a [r, d_in, kh, kw]`` and ``b [d_out, r, 1, 1]`` contract over r alike;
    - ``(B@A)^T``: weights stored input first, tables ``[rows, d]`` and GPT-2's ``Conv1D [d_in, d_out]``;
    - ``B[o,r,e]A[e,r,i]``: a stacked parameter of E experts, ``a [E r, d_in]`` with the expert outside and
      ``b [d_out, r E]`` with the expert inside; the base's shape says which of its axes are o and i, and where they are
      equal the first is o.

    `extra` holds further tensors by role (magnitude, E, bias). With ``E [r, 1]`` the delta is ``s b (E * a)``, and an
    allocator may have taken every triplet: only there the rank can be 0. `source` is the catalogue row whose contract
    the factor follows. Expert, map head and route side are null where the base has none.
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
    order: Order = "B@A"
    rank: Annotated[int, Field(ge=0, le=2**31)]
    scale: Scale
    extra: dict[Role, TensorRef] = Field(default_factory=dict)
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
            self._require_kernels()
        if not self.rank and not ("E" in self.extra and self.scale.rule == "explicit"):
            raise ValueError("rank 0 needs E and an explicit scale")
        self._require_rank()
        value = scale_value(self.scale.alpha, self.scale.rule, self.rank)
        if not isclose(self.scale.value, value, rel_tol=1e-15, abs_tol=0.0):
            raise ValueError("scale value does not follow from alpha, rule and rank")
        return self

    def _require_kernels(self) -> None:
        """Four dimensions are a convolution's: the kernel in a, one by one in b."""
        kernels = self.order == "B@A" and len(self.a.shape) == len(self.b.shape) == 4
        if not kernels or self.b.shape[2:] != (1, 1):
            raise ValueError("a and b are matrices, or a convolution's kernel and a 1 x 1 one")

    def _require_rank(self) -> None:
        rows, columns = self.a.shape[0], self.b.shape[1]
        if rows != columns or (rows % self.rank if self.order == "B[o,r,e]A[e,r,i]" else rows != self.rank):
            raise ValueError("rank is the rows of a and the columns of b, of one expert where they are stacked")


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
