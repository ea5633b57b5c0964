"""Composition spec, admission and composition manifests."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from schemas.decision import Code, Decision
from schemas.digests import Digest
from schemas.methods import Choices, Lane, Method, Space
from schemas.model import UNION_TAG, Count, Finite, Identifier, Manifest, ModuleName, Record
from schemas.release import ResolvedRelease

ORDERED_LANES: Final[frozenset[Lane]] = frozenset({"olora_ordered", "amlora_selector", "staged_routed"})
CLAIMS: Final = (
    "training_reproduced", "checkpoint", "autograd", "gpu_kernel", "scheduler", "latency", "throughput", "quality",
    "benchmark", "ranking",
)  # fmt: skip
"""The closed set of claims: each is false, or names the evidence that carries it."""


class ResolvedMember(Record):
    """One member by digest, with its request coefficient lambda."""

    adapter: Digest
    weight: Finite


class ResolvedSpec(Record):
    """A spec after resolution: digests instead of references, every choice filled in, no name.

    Members of `static_fusion` are a set and come sorted by digest; members of ordered lanes keep their order. A digest
    may appear twice here (an admission must be able to record that refusal), a composition never has one twice.
    """

    base: Digest
    lane: Lane
    members: tuple[ResolvedMember, ...] = Field(min_length=1)
    method: Method
    alias: Identifier | None = None
    space: Space | None
    choices: Choices
    acknowledge: tuple[Code, ...] = ()

    @model_validator(mode="after")
    def _fusion_is_sorted(self) -> Self:
        keys = [(member.adapter, member.weight) for member in self.members]
        if self.lane == "static_fusion" and keys != sorted(keys):
            raise ValueError("members of a static fusion are sorted by adapter digest")
        if list(self.acknowledge) != sorted(set(self.acknowledge)):
            raise ValueError("acknowledged codes are sorted, each once")
        return self


def in_identity_order(lane: Lane, members: tuple[ResolvedMember, ...]) -> tuple[ResolvedMember, ...]:
    """Members as they are hashed and computed: sorted where they are a set, as given where order is identity."""
    if lane in ORDERED_LANES:
        return members
    return tuple(sorted(members, key=lambda member: (member.adapter, member.weight)))


def _question(value: object) -> str:
    """Only a release says how it is packaged."""
    packaged = "package" in value if isinstance(value, dict) else isinstance(value, ResolvedRelease)
    return f"{UNION_TAG}release" if packaged else f"{UNION_TAG}composition"


Question = Annotated[
    Annotated[ResolvedSpec, Tag(f"{UNION_TAG}composition")] | Annotated[ResolvedRelease, Tag(f"{UNION_TAG}release")],
    Discriminator(_question),
]
"""What an admission answers: a composition, or the release of a lane's own parts."""


class AdmissionManifest(Manifest):
    """A stored decision, also when it refuses: the question, the rules' version and the whole answer."""

    KIND: ClassVar[str] = "admission"
    kind: Literal["admission"] = "admission"
    spec: Question
    rules: Identifier
    decision: Decision
    acknowledged: tuple[Code, ...] = ()


class Claims(Record):
    """The claim ceiling: false, or the digest of the evidence. Nothing is claimed by silence."""

    training_reproduced: Literal[False] | Digest = False
    checkpoint: Literal[False] | Digest = False
    autograd: Literal[False] | Digest = False
    gpu_kernel: Literal[False] | Digest = False
    scheduler: Literal[False] | Digest = False
    latency: Literal[False] | Digest = False
    throughput: Literal[False] | Digest = False
    quality: Literal[False] | Digest = False
    benchmark: Literal[False] | Digest = False
    ranking: Literal[False] | Digest = False


class StochasticIdentity(Record):
    """What makes a random draw repeatable; the mask digests stand per module."""

    generator: Identifier
    seed: Identifier
    density: Finite


class MaskRef(Record):
    """BLAKE3 of the packed keep-mask of one member in one module and role, and how many coordinates it kept."""

    adapter: Digest
    role: Literal["delta", "a", "b"]
    mask: Digest
    retained: Count


class ModuleRecord(Record):
    """Discrete facts about one composed module; floating figures stand in the measurement beside the manifest."""

    module: ModuleName
    input_ranks: tuple[Count, ...]
    output_rank: Count
    retained: tuple[Count, ...] = ()
    masks: tuple[MaskRef, ...] = ()


class CompositionManifest(Manifest):
    """What exactly a merge produced: parents, method with every choice, output, and what is claimed about it."""

    KIND: ClassVar[str] = "composition"
    kind: Literal["composition"] = "composition"
    admission: Digest
    base: Digest
    lane: Lane
    members: tuple[ResolvedMember, ...] = Field(min_length=1)
    method: Method
    alias: Identifier | None
    space: Space
    choices: Choices
    stochastic: StochasticIdentity | None
    operator: Annotated[str, StringConstraints(pattern=r"^[a-z_]+/[1-9][0-9]*$")]
    representation: Identifier
    output: Digest
    modules: tuple[ModuleRecord, ...]
    oracle_reports: tuple[Digest, ...] = ()
    claims: Claims = Field(default_factory=Claims)

    @model_validator(mode="after")
    def _members_once(self) -> Self:
        digests = [member.adapter for member in self.members]
        if len(set(digests)) != len(digests):
            raise ValueError("a member appears once; add the weights")
        if self.lane not in ORDERED_LANES and digests != sorted(digests):
            raise ValueError("members of a set are sorted by digest")
        names = [module.module for module in self.modules]
        if names != sorted(set(names)):
            raise ValueError("modules are sorted, each once")
        return self
