"""What the service knows of the arithmetic: a protocol, implemented by the worker room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import TensorRef
from schemas.canonical import JsonObject
from schemas.composition import ModuleRecord, ResolvedSpec, StochasticIdentity
from schemas.digests import Digest
from schemas.router import RouterManifest

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Extent:
    """Where a tensor's bytes lie on this machine."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True)
class Stored:
    """An adapter and where its tensors lie."""

    adapter: AdapterManifest
    extents: Mapping[Digest, Extent]


@dataclass(frozen=True)
class ComposeOrder:
    """An admitted composition with everything needed to compute it.

    `members` may read an adapter when it is asked for: many large manifests together would take more memory than the
    arithmetic.
    """

    spec: ResolvedSpec
    members: Mapping[Digest, Stored]


@dataclass(frozen=True)
class PlacedTensor:
    """A tensor of the written file: its digest and absolute extent in that file."""

    tensor: Digest
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True)
class Composed:
    """What the composer made: the output adapter, its one file, and figures beside the manifest.

    `families` are those of the members.
    """

    output: AdapterManifest
    families: frozenset[str]
    file: Path
    tensors: tuple[PlacedTensor, ...]
    modules: tuple[ModuleRecord, ...]
    stochastic: StochasticIdentity | None
    measurement: JsonObject
    run_record: JsonObject


@dataclass(frozen=True)
class Term:
    """One addend of a converted factor: ``sign * b diag(e) a``; without `e` the diagonal is one."""

    a: TensorRef
    b: TensorRef
    e: TensorRef | None = None
    sign: int = 1


@dataclass(frozen=True)
class FactorOrder:
    """One factor to make: its terms (none: zeros), the scale to bake and into which side, the rank to pad to.

    `sides` are ``(d_out, d_in)``, `dtype` is the stored dtype as safetensors names it.
    """

    key: str
    terms: tuple[Term, ...]
    sides: tuple[int, int]
    dtype: str
    scale: float = 1.0
    into: Literal["a", "b"] = "b"
    rank: int | None = None
    balance: bool = False


@dataclass(frozen=True)
class ConvertOrder:
    """Factors to make and whole tensors to carry byte for byte, with the places of everything they read."""

    factors: tuple[FactorOrder, ...]
    carried: Mapping[str, TensorRef]
    extents: Mapping[Digest, Extent]


@dataclass(frozen=True)
class Converted:
    """What was written: for each factor its `lora_A` and `lora_B` (none where no row was left), each carried tensor as
    `full`, by key and role."""

    file: Path
    tensors: Mapping[tuple[str, str], PlacedTensor]
    measurement: JsonObject


@dataclass(frozen=True)
class WeightOrder:
    """A base weight to change where it lies in a file that is being written: by factors, or by a tensor as a whole."""

    name: str
    place: Extent
    dtype: str
    shape: tuple[int, ...]
    factors: tuple[FactorManifest, ...] = ()
    whole: TensorRef | None = None


@dataclass(frozen=True)
class ReleaseOrder:
    """Weights to change in place, and where the tensors of their factors lie."""

    weights: tuple[WeightOrder, ...]
    extents: Mapping[Digest, Extent]


@dataclass(frozen=True)
class ReleasedWeight:
    """A changed weight: ``||D||_F`` of its change and ``||W + D - stored||_F``, which rounding took."""

    name: str
    tensor: TensorRef
    change: float
    rounding: float


@dataclass(frozen=True)
class RouteOrder:
    """A router with the manifests of its pool and where the tensors of both lie."""

    router: RouterManifest
    adapters: Mapping[Digest, AdapterManifest]
    extents: Mapping[Digest, Extent]


@dataclass(frozen=True)
class Additivity:
    """The largest ``||F(x1 + x2) - F(x1) - F(x2)||`` found, in which module, and how many could be tried."""

    residual: float
    module: str | None
    modules: int


def placed(composed: Composed) -> Stored:
    """A composed adapter with its tensors in the file just written."""
    extents = {item.tensor: Extent(composed.file, item.offset, item.length) for item in composed.tensors}
    return Stored(composed.output, extents)


class Composer(Protocol):
    """Runs admitted compositions. The same order gives the same output adapter."""

    def compose(self, order: ComposeOrder, folder: Path, progress: Progress | None = None) -> Composed:
        """Compute into `folder`; on failure nothing is left there."""
        ...

    def plan(self, order: ComposeOrder) -> JsonObject:
        """Cost before work: bytes, flops, peak memory, output size, workers."""
        ...

    def convert(self, order: ConvertOrder, folder: Path) -> Converted:
        """Make other factors of stored ones into `folder`; on failure nothing is left there."""
        ...

    def release(self, order: ReleaseOrder) -> tuple[ReleasedWeight, ...]:
        """Add deltas to weights in place, rounding each once; on failure the files are of no use."""
        ...

    def difference(self, left: Stored, right: Stored) -> float:
        """``max over modules ||D_left - D_right||_F / ||D_left||_F``; infinite when the modules differ."""
        ...

    def additivity(self, order: RouteOrder) -> Additivity:
        """Look for a counterexample that no fixed matrix does what the router with its pool does."""
        ...
