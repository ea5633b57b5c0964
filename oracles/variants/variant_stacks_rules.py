"""The axes of a variant stack and the facts that decide its eight coordinates (V 0x09A, 0x09B, 0x09E to 0x09H).

A coordinate is `pass` unless a fact objects. Behind the first refusing coordinate nothing was executed, so a coordinate
no fact speaks of is `unverified` there. The facts hold for the framework the document pins, PEFT 0.19.1.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from oracles.model import Fixture

COORDINATES = ("algebra", "config", "forward", "backward", "artifact", "merge", "runtime", "evidence")
REFUSING = ("rejected", "conflict", "missing_derivation")
CONDITIONAL = ("conditional", "shadowed", "accepted_but_shadowed", "unverified")
SEVERITY = ("pass", *CONDITIONAL, *REFUSING)

Vector: TypeAlias = tuple[str, ...]


class Axes(Fixture):
    """S = (base, rank owner, scale rule, initializer, coordinates, optimizer owners, artifact, number of adapters)."""

    base: Literal["dense", "nf4"]
    rank: Literal["fixed", "patterned", "adalora"]
    scale: Literal["alpha_over_r", "alpha_over_sqrt_r"]
    initializer: Literal["zero_b", "pissa", "loftq", "loftq_config_only"]
    coordinates: Literal["additive", "dora"]
    optimizers: Annotated[tuple[Literal["adamw", "lora_plus", "lora_fa"], ...], Field(min_length=1)]
    artifact: Literal["native", "converted"]
    adapters: Literal["one", "several"]


class NamedStack(Fixture):
    """A stack under its name."""

    name: str
    axes: Axes


class Fact(NamedTuple):
    """When the axes meet `applies`, these coordinates get these statuses."""

    section: str
    applies: Callable[[Axes], bool]
    statuses: dict[str, str]


def adalora(a: Axes) -> bool:
    """AdaLoRA owns the rank."""
    return a.rank == "adalora"


FACTS: tuple[Fact, ...] = (
    Fact("V 0x09G", lambda a: adalora(a) and a.coordinates == "dora", {"config": "rejected"}),
    Fact("V 0x09G", lambda a: adalora(a) and a.initializer == "loftq", {"config": "rejected"}),
    Fact(
        "V 0x09G",
        lambda a: adalora(a) and a.initializer == "loftq_config_only",
        {"config": "accepted_but_shadowed"},
    ),
    Fact(
        "V 0x09G",
        lambda a: adalora(a) and a.scale == "alpha_over_sqrt_r",
        {"config": "accepted_but_shadowed", "forward": "shadowed", "backward": "shadowed"},
    ),
    Fact(
        "V 0x09G",
        lambda a: {"lora_plus", "lora_fa"} <= set(a.optimizers),
        {"config": "conflict", "backward": "conflict"},
    ),
    Fact(
        "V 0x09G",
        lambda a: "lora_fa" in a.optimizers and a.coordinates == "dora",
        {"backward": "missing_derivation"},
    ),
    Fact(
        "V 0x09G",
        lambda a: a.initializer == "pissa" and a.rank == "patterned" and a.scale == "alpha_over_sqrt_r",
        {"config": "conditional", "forward": "conditional", "runtime": "conditional", "artifact": "rejected"},
    ),
    Fact(
        "V 0x09G",
        lambda a: a.initializer == "pissa" and a.artifact == "native" and a.adapters == "several",
        {"algebra": "conflict", "artifact": "conflict"},
    ),
    Fact("V 0x09E", lambda a: adalora(a) and a.base == "nf4", {"merge": "unverified", "evidence": "conditional"}),
    Fact(
        "V 0x09F",
        lambda a: "lora_plus" in a.optimizers and a.coordinates == "dora",
        {"backward": "conditional", "artifact": "conditional", "evidence": "unverified"},
    ),
    Fact(
        "V 0x09F",
        lambda a: a.coordinates == "dora" and a.initializer in ("pissa", "loftq"),
        {"artifact": "unverified", "evidence": "unverified"},
    ),
    Fact("V 0x05L", lambda a: "lora_fa" in a.optimizers and a.base == "nf4", {"evidence": "conditional"}),
)


def vector(axes: Axes) -> Vector:
    """The eight statuses, the most severe fact winning a coordinate."""
    found: dict[str, str] = {}
    for fact in FACTS:
        if fact.applies(axes):
            for coordinate, status in fact.statuses.items():
                found[coordinate] = max(found.get(coordinate, "pass"), status, key=SEVERITY.index)
    statuses = [found.get(coordinate) for coordinate in COORDINATES]
    stop = next((i for i, status in enumerate(statuses) if status in REFUSING), len(statuses))
    return tuple(status or ("pass" if i < stop else "unverified") for i, status in enumerate(statuses))


def outcome(statuses: Vector) -> str:
    """Refused before conditional before admitted (V 0x09J)."""
    if any(status in REFUSING for status in statuses):
        return "refused"
    return "conditional" if any(status in CONDITIONAL for status in statuses) else "admitted"


def mechanisms(a: Axes) -> tuple[str, ...]:
    """The names of everything a stack changes, in the order of its axes."""
    axes = (a.base, a.rank, a.scale, a.initializer, a.coordinates, *a.optimizers, a.artifact)
    several = ("several_adapters",) if a.adapters == "several" else ()
    plain = ("dense", "fixed", "alpha_over_r", "zero_b", "additive", "adamw", "native")
    return tuple(name for name in axes if name not in plain) + several


STATE: dict[str, tuple[str, ...]] = {
    "nf4": ("packed_payload", "quantizer_type", "block_size", "scale_metadata", "compute_dtype"),
    "adalora": ("rank_pattern", "ranknum", "schedule"),
    "alpha_over_sqrt_r": ("scale_rule", "rank", "alpha"),
    "pissa": ("residual_base_identity", "initial_adapter_identity", "conversion_rule"),
    "loftq": ("quantizer_abi", "coupled_base_identity"),
    "dora": ("magnitude", "normalization_axis", "runtime_variant"),
    "lora_plus": ("group_classifier", "rate_ratio"),
    "lora_fa": ("frozen_A", "fa_scale_rule"),
}
"""Additional portable or resume state of each mechanism (V 0x09H)."""

INTERACTIONS: dict[frozenset[str], tuple[str, ...]] = {
    frozenset({"nf4", "dora"}): ("magnitude_of_the_dequantized_base",),
    frozenset({"pissa", "alpha_over_sqrt_r"}): ("conversion_scale_convention",),
    frozenset({"lora_plus", "dora"}): ("magnitude_group_policy",),
}
"""State that no mechanism of a pair has alone (V 0x09H)."""


def artifact_union(axes: Axes) -> tuple[str, ...]:
    """The union of the parts' state, then the interaction fields."""
    parts = set(mechanisms(axes))
    own = tuple(field for name in mechanisms(axes) for field in STATE.get(name, ()))
    return own + tuple(field for pair, fields in INTERACTIONS.items() if pair <= parts for field in fields)


def owners(axes: Axes) -> dict[str, tuple[str, ...]]:
    """Which optimizer would move each factor; one owner a factor is the rule of V 0x09C."""
    return {
        "A": tuple(name for name in axes.optimizers if name != "lora_fa"),
        "B": axes.optimizers,
    }
