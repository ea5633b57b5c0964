"""Composition methods and every choice they have; the spec names them all and the manifest records them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from schemas.model import Count, Record

Method = Literal[
    "cat",
    "delta_svd",
    "ties",
    "dare_linear",
    "dare_ties",
    "factor_linear",
    "magnitude_prune",
    "dense_sum",
]
Space = Literal["delta", "factor"]
Lane = Literal[
    "independent",
    "static_fusion",
    "shared_a_selected",
    "shared_a_dense",
    "olora_ordered",
    "amlora_selector",
    "joint_routed",
    "staged_routed",
    "posthoc_routed",
    "pregated_fused",
    "task_composed",
    "instance_factors",
]
ExactnessClass = Literal["exact", "best_rank", "deterministic", "stochastic"]

Density = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]
Seed = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,19})$")]

ALIASES: Final[dict[str, tuple[Method, Space]]] = {
    "svd": ("delta_svd", "delta"),
    "linear": ("factor_linear", "factor"),
    "ties_svd": ("ties", "delta"),
    "dare_linear_svd": ("dare_linear", "delta"),
    "dare_ties_svd": ("dare_ties", "delta"),
    "magnitude_prune_svd": ("magnitude_prune", "delta"),
}
"""Other tools' names, accepted in a spec and recorded beside the method they mean."""

SPACES: Final[dict[Method, tuple[Space, ...]]] = {
    "cat": ("delta",),
    "delta_svd": ("delta",),
    "ties": ("delta", "factor"),
    "dare_linear": ("delta", "factor"),
    "dare_ties": ("delta", "factor"),
    "factor_linear": ("factor",),
    "magnitude_prune": ("delta", "factor"),
    "dense_sum": ("delta",),
}
"""The coordinate spaces in which a method is defined (R 0x05A)."""

METHODS: Final[dict[str, Method]] = {method: method for method in SPACES}

OPERATOR_VERSIONS: Final[dict[Method, str]] = {method: f"{method}/1" for method in SPACES}
"""Raised when an operator's output changes for the same inputs."""


class TiesChoices(Record):
    """Every choice of trim, elect and disjoint merge (R 0x05E).

    `values` says on which values signs are elected; the reduce always runs over the weighted, aligned, non-zero ones.
    """

    density: Density
    k_rule: Literal["floor", "round"] = "floor"
    elect: Literal["total", "frequency"] = "total"
    values: Literal["unweighted", "weighted"] = "unweighted"
    zero_sum: Literal["zero", "plus"] = "zero"
    reduce: Literal["count", "weight_sum", "sum"] = "count"


def ties_preset(name: Literal["paper", "peft", "mergekit"], density: float) -> TiesChoices:
    """The choices a tool or the paper makes; the three differ on the same deltas."""
    if name == "paper":
        return TiesChoices(density=density)
    if name == "peft":
        return TiesChoices(density=density, zero_sum="plus")
    return TiesChoices(density=density, values="weighted", reduce="weight_sum")


class DareChoices(Record):
    """DARE keeps each coordinate with probability `density` and divides by it (R 0x05F). `seed` is a u64 in decimal."""

    density: Density
    seed: Seed
    generator: Literal["blake3_u32_stream/1"] = "blake3_u32_stream/1"


class PruneChoices(Record):
    """Magnitude pruning keeps the top `density` fraction of each member."""

    density: Density
    k_rule: Literal["floor", "round"] = "floor"


class SvdChoices(Record):
    """How a delta is refactored: the singular values go to b, or are split evenly."""

    split: Literal["b", "sqrt"] = "b"
    mode: Literal["certified", "exact"] = "certified"


class DtypeChoices(Record):
    """`work` is the arithmetic, `store` the dtype written once at the end."""

    work: Literal["float64", "float32"] = "float64"
    store: Literal["float32", "bfloat16", "float16", "float64"] = "float32"


class Choices(Record):
    """All choices of one composition; those a method does not own are null."""

    rank: Annotated[Count, Field(ge=1)] | None = None
    ties: TiesChoices | None = None
    dare: DareChoices | None = None
    prune: PruneChoices | None = None
    svd: SvdChoices | None = None
    dtype: DtypeChoices = Field(default_factory=DtypeChoices)
