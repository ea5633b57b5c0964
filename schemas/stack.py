"""A variant stack: what each of the methods stacked in one training recipe changes, and the answer about them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.decision import Outcome, Vector
from schemas.model import Key, Record

Optimizer = Literal["adamw", "lora_plus", "lora_fa"]


class VariantStack(Record):
    """``S = (base, rank owner, scale, initializer, parameterization, optimizers, artifact, adapters)`` (V 0x09A).

    `base` is what represents the frozen weights, `rank` who decides it, `optimizers` everyone who claims the factors:
    naming two is legal here and judged by the vector. `loftq_config` hands over a quantizer configuration without
    asking for the LoftQ initializer. `adapters` counts the initialized adapters on one base.
    """

    base: Literal["dense", "nf4"] = "dense"
    rank: Literal["fixed", "patterned", "adalora"] = "fixed"
    scale: Literal["alpha_over_r", "alpha_over_sqrt_r"] = "alpha_over_r"
    initializer: Literal["zero_b", "pissa", "loftq", "loftq_config"] = "zero_b"
    parameterization: Literal["additive", "dora"] = "additive"
    optimizers: Annotated[tuple[Optimizer, ...], Field(min_length=1)] = ("adamw",)
    artifact: Literal["native", "converted"] = "native"
    adapters: Literal["one", "several"] = "one"


class StackDecision(Record):
    """The answer about one stack: its axes, the whole vector, and the state its artifact must hold (V 0x09H).

    `reasons` says in a sentence, with its place in the document, what each reason of the vector means.
    """

    stack: VariantStack
    outcome: Outcome
    vector: Vector
    reasons: dict[Key, str]
    artifact: tuple[Key, ...]
