"""The router manifest: tensors and the whole policy by which a pool of adapters is chosen from (R 0x01, 0x07)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.base import TensorRef
from schemas.canonical import JsonObject
from schemas.digests import Digest
from schemas.linked import Link, LinkedManifest
from schemas.model import Count, Finite, Identifier, Key, NoneLiteral, NotVerified, Record

Lifetime = Literal["task", "request", "sequence", "instance", "token"]
FeatureSource = Literal[
    "task_examples",
    "prompt_hidden",
    "sequence_hidden",
    "preceding_layer",
    "layer_input",
    "prior_pass",
    "branch_output",
    "metadata",
    "same_layer_output",
    "future_tokens",
    "test_labels",
    "training_label",
]
"""Where the router looks. The last four exist in wrong graphs only; a record may say so and is then refused."""
Execution = Literal["dense", "sparse", "not_verified"]
Positive = Annotated[int, Field(ge=1, le=2**31)]


class PoolEntry(Record):
    """One candidate: an adapter, or one expert of it."""

    adapter: Digest
    expert: Count | None = None


class RouterTensor(Record):
    """A tensor and what it does: `gate` rows give one logit each, `feature` prepares what they look at."""

    role: Literal["gate", "feature"]
    value: TensorRef


class Extents(Record):
    """How far one decision reaches along each axis (R 0x07A): one position or every one; how many layers, matrices."""

    positions: Literal["one", "every"]
    layers: Positive
    matrices: Positive

    def entries(self, pool: int, *, requests: int = 1, length: int = 1) -> int:
        """``N_G = B S_r L_r P_r J``, the logical gate entries of a batch of requests of one length."""
        return requests * (length if self.positions == "every" else 1) * self.layers * self.matrices * pool


class Selection(Record):
    """Which candidates take part: all of them, the k best, or those past a threshold; and who wins a tie."""

    rule: Literal["all", "top_k", "threshold"]
    k: Positive | None = None
    threshold: Finite | None = None
    comparator: Literal["strict_greater", "greater_equal"] | NoneLiteral = "none"
    ties: Literal["candidate_order", "random_stored"] | NotVerified | NoneLiteral = "none"


class Gates(Record):
    """From logits to weights: activation, over what it is normalized, and what the gradient passes through."""

    activation: Literal["softmax", "sigmoid", "uniform", "raw"]
    normalization: Literal["pool_row", "selected_row", "flattened_selected", "none"]
    gradient: Literal["full", "selected", "stopped_denominator", "none"] | NotVerified
    dtype: Identifier


class Capacity(Record):
    """How many rows a candidate takes, in which order it serves them, and what becomes of the rest (R 0x07E)."""

    limit: Positive
    overflow: Literal["base_path", "drop", "next_choice"]
    service: Literal["row_order", "priority"]


class RouterManifest(LinkedManifest):
    """A router: who owns which decision, from what, for how long. A runtime's slots and kernels never enter it.

    `topology` says how the factors of the pool are owned; `trace` is the evidence that unselected work was left out.
    """

    KIND: ClassVar[str] = "router"
    kind: Literal["router"] = "router"
    base: Digest
    family: Key
    tensors: dict[Identifier, RouterTensor]
    pool: Annotated[tuple[PoolEntry, ...], Field(min_length=1)]
    topology: Literal["independent", "shared_a", "rank_one"]
    extents: Extents
    lifetime: Lifetime
    persistence: Literal["task_artifact", "request_state", "recomputed", "none"]
    selection: Selection
    gates: Gates
    capacity: Capacity | NoneLiteral = "none"
    randomness: Literal["none", "seeded", "stored_noise"] = "none"
    no_op_ids: tuple[Count, ...] = ()
    feature_source: FeatureSource
    pooling: Literal["none", "mean", "last", "max", "attention"]
    mask: Literal["valid_rows", "ignored", "none"] | NotVerified
    population: Literal["valid_rows", "all_rows", "requests"]
    label_role: Literal["none", "target", "input"]
    votes: Literal["last_router", "majority"] | NoneLiteral = "none"
    execution: Execution
    trace: Digest | NotVerified | NoneLiteral = "none"

    @property
    def candidates(self) -> int:
        """J: the pool and its no-op paths."""
        return len(self.pool) + len(self.no_op_ids)

    @property
    def policy(self) -> JsonObject:
        """What decides routes beside tensors and pool; hashed apart for cache identities."""
        document = self.document()
        return {key: value for key, value in document.items() if key not in ("tensors", "pool", "trace", "execution")}

    def links(self) -> tuple[Link, ...]:
        """The base and every adapter of the pool, each once, in pool order."""
        adapters = dict.fromkeys(entry.adapter for entry in self.pool)
        return (("base", self.base), *(("candidate", adapter) for adapter in adapters))

    @model_validator(mode="after")
    def _ids_are_candidates(self) -> Self:
        if list(self.no_op_ids) != sorted(set(self.no_op_ids)) or any(i >= self.candidates for i in self.no_op_ids):
            raise ValueError("no-op ids are sorted, each once, and below the number of candidates")
        entries = [(entry.adapter, entry.expert) for entry in self.pool]
        if len(set(entries)) != len(entries):
            raise ValueError("a candidate stands in the pool once")
        return self
