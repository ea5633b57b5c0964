"""The composition spec as people write it, and its resolution into exact choices (docs/concepts.md, "Composition")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.decision import Code
from schemas.errors import Problem, UsageProblemError
from schemas.methods import (
    ALIASES,
    METHODS,
    SPACES,
    Choices,
    DareChoices,
    Density,
    DtypeChoices,
    Lane,
    Method,
    PruneChoices,
    Seed,
    Space,
    SvdChoices,
    TiesChoices,
    ties_preset,
)
from schemas.model import Finite, Identifier, Rank, Record
from schemas.names import Name

Alias = Literal["svd", "linear", "ties_svd", "dare_linear_svd", "dare_ties_svd", "magnitude_prune_svd"]


class SpecMember(Record):
    """A member as people write it: a reference and its coefficient."""

    ref: Identifier
    weight: Finite


class TiesPreset(Record):
    """A named set of TIES choices; the manifest records the choices, not the name."""

    preset: Literal["paper", "peft", "mergekit"]
    density: Density


class DareSpec(Record):
    """DARE's density and seed; a missing seed is drawn and recorded."""

    density: Density
    seed: Seed | None = None


class CompositionSpec(Record):
    """What to compose (`registry admit SPEC`). References are resolved by the service, choices by `choices`."""

    name: Name
    base: Identifier
    lane: Lane = "static_fusion"
    members: Annotated[tuple[SpecMember, ...], Field(min_length=1)]
    method: Method | Alias
    space: Space | None = None
    rank: Rank | None = None
    ties: TiesChoices | TiesPreset | None = None
    dare: DareSpec | None = None
    prune: PruneChoices | None = None
    svd: SvdChoices | None = None
    dtype: DtypeChoices = Field(default_factory=DtypeChoices)
    acknowledge: tuple[Code, ...] = ()


def named_method(spec: CompositionSpec) -> tuple[Method, str | None, Space | None]:
    """The method, the alias it was asked by, and the space, which an alias declares.

    Raises:
        UsageProblemError: `SPACE_CONTRADICTS_ALIAS`.
    """
    target = ALIASES.get(spec.method)
    if target is None:
        return METHODS[spec.method], None, spec.space
    method, space = target
    if spec.space not in (None, space):
        raise UsageProblemError(
            Problem(
                code="SPACE_CONTRADICTS_ALIAS",
                path=("space",),
                expected=f"{space}, which {spec.method} means",
                observed=str(spec.space),
                hint=f"Write method: {method} and the space you want.",
            )
        )
    return method, spec.method, space


def choices(spec: CompositionSpec, method: Method, space: Space | None) -> Choices:
    """Every choice filled in; a DARE seed must have been drawn before (`with_seed`)."""
    # A space the method does not offer is refused for itself; filling its choices would add a complaint of our making.
    refactored = space == "delta" and "delta" in SPACES[method] and method not in ("cat", "dense_sum")
    needs_svd = method == "delta_svd" or refactored
    svd = SvdChoices() if needs_svd and spec.svd is None else spec.svd
    return Choices(
        rank=spec.rank,
        ties=ties_preset(spec.ties.preset, spec.ties.density) if isinstance(spec.ties, TiesPreset) else spec.ties,
        dare=None if spec.dare is None else _dare(spec.dare),
        prune=spec.prune,
        svd=svd,
        dtype=spec.dtype,
    )


def with_seed(spec: CompositionSpec, drawn: str) -> CompositionSpec:
    """The spec with `drawn` as DARE's seed where it asks for DARE without one."""
    if spec.dare is None or spec.dare.seed is not None:
        return spec
    return spec.model_copy(update={"dare": DareSpec(density=spec.dare.density, seed=drawn)})


def _dare(dare: DareSpec) -> DareChoices:
    assert dare.seed is not None, "a seed was drawn"
    return DareChoices(density=dare.density, seed=dare.seed)
