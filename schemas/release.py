"""Releases of routed and continual lanes: what is asked, and the typed product that is published (R 0x09A, 0x09C)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.adapter import AdapterManifest
from schemas.canonical import JsonValue, canonical_bytes
from schemas.continual import ContinualStateManifest
from schemas.decision import Code
from schemas.digests import Digest, manifest_digest
from schemas.linked import Link, LinkedManifest
from schemas.methods import Lane
from schemas.model import Count, Finite, Identifier, NoneLiteral, Record
from schemas.names import Name
from schemas.router import RouterManifest


class ReleaseSpec(Record):
    """What to release, as people write it: a lane with its router or state, by reference.

    `package` asks for the live parts, or for one merged artifact, which no routed function is.
    """

    name: Name
    lane: Lane
    router: Identifier | None = None
    state: Identifier | None = None
    package: Literal["live", "static"] = "live"
    acknowledge: tuple[Code, ...] = ()


class ResolvedRelease(Record):
    """A release after resolution: digests instead of references, no name."""

    base: Digest
    lane: Lane
    router: Digest | NoneLiteral
    state: Digest | NoneLiteral
    package: Literal["live", "static"]
    acknowledge: tuple[Code, ...] = ()

    @model_validator(mode="after")
    def _codes_are_sorted(self) -> Self:
        if list(self.acknowledge) != sorted(set(self.acknowledge)):
            raise ValueError("acknowledged codes are sorted, each once")
        return self


class Product(Record):
    """``I_model = H(I_B, I_M, I_T, I_F, I_C, I_S)``: six digests, never one concatenation; none where not owned."""

    B: Digest
    M: Digest
    T: Digest
    F: Digest
    C: Digest
    S: Digest | NoneLiteral

    @property
    def model(self) -> Digest:
        """``I_model``: equal exactly when all six components are, whatever a runtime does."""
        return manifest_digest("model", canonical_bytes(self.document()))


class CandidateManifest(LinkedManifest):
    """The release state of a lane: its parts, and the product that tells two states of equal shapes apart.

    Slots, generations and leases are not in it; they belong to a transaction.
    """

    KIND: ClassVar[str] = "candidate"
    kind: Literal["candidate"] = "candidate"
    admission: Digest
    base: Digest
    lane: Lane
    router: Digest | NoneLiteral
    state: Digest | NoneLiteral
    adapters: Annotated[tuple[Digest, ...], Field(min_length=1)]
    product: Product

    def links(self) -> tuple[Link, ...]:
        """Admission, base, router, state, and the adapters in order."""
        named = (("router", self.router), ("state", self.state))
        parts = [(role, digest) for role, digest in named if digest != "none"]
        adapters = dict.fromkeys(self.adapters)
        return (
            ("admission", self.admission),
            ("base", self.base),
            *parts,
            *(("member", adapter) for adapter in adapters),
        )


class Routed(Record):
    """One candidate that takes part in a layer: which, in which version, with which weight."""

    adapter: Digest
    expert: Count | None = None
    gate: Finite


class RouteLayer(Record):
    """The choice at one place; rows of a token route stand in `row`, one request's single choice has row 0."""

    layer: Count
    matrix: Count = 0
    row: Count = 0
    chosen: tuple[Routed, ...]


class ResolvedRouteManifest(LinkedManifest):
    """One request's choices, or the contract by which they can be made again from the same input (R 0x07H, 0x08G)."""

    KIND: ClassVar[str] = "resolved_route"
    kind: Literal["resolved_route"] = "resolved_route"
    router: Digest
    pooling: Identifier
    layers: tuple[RouteLayer, ...]
    reconstruction: Digest | NoneLiteral

    def links(self) -> tuple[Link, ...]:
        """The router that chose."""
        return (("router", self.router),)

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if bool(self.layers) == (self.reconstruction != "none"):
            raise ValueError("a route has layers, or a reconstruction contract instead of them")
        places = [(layer.layer, layer.matrix, layer.row) for layer in self.layers]
        if places != sorted(set(places)):
            raise ValueError("layers are sorted by layer, matrix and row, each once")
        return self


class Execution(Record):
    """``I_E``: where a launch finds what the request is bound to. It changes no function and belongs to no model."""

    catalog_generation: Count
    plan_generation: Count
    slot_generations: tuple[Count, ...]
    pointer_generations: tuple[Count, ...]
    leases: tuple[Identifier, ...]


class TransactionManifest(LinkedManifest):
    """``I_exec = H(I_model, I_R, I_E, I_K)``: one request bound to a generation (R 0x09A, 0x09D).

    `kv_route` is the route under which the cached prefix was made, `kv_identity` the generation's cache identity.
    """

    KIND: ClassVar[str] = "transaction"
    kind: Literal["transaction"] = "transaction"
    candidate: Digest
    route: Digest
    channel: Name
    generation: Annotated[int, Field(ge=1)]
    execution: Execution
    kv_identity: Digest
    kv_route: Digest

    def links(self) -> tuple[Link, ...]:
        """The candidate and the route."""
        return (("candidate", self.candidate), ("route", self.route))


def product(
    base: Digest,
    lane: Lane,
    adapters: tuple[AdapterManifest, ...],
    router: RouterManifest | None,
    state: ContinualStateManifest | None,
) -> Product:
    """The six components of a release, each hashed over its named fields."""
    families = sorted({adapter.family for adapter in adapters} | ({router.family} if router else set()))
    training: list[JsonValue] = [{**adapter.training} for adapter in adapters]
    sets: JsonValue = None if state is None else state.objective.document() | _sets(state)
    owned: list[JsonValue] = [adapter.digest for adapter in adapters]
    return Product(
        B=base,
        M=_part("M", {"families": [*families], "lane": lane}),
        T=_part("T", {"adapters": training, "state": sets}),
        F=_part("F", {"adapters": owned, "topology": "none" if router is None else router.topology}),
        C=_part("C", {"lane": lane, "router": "none" if router is None else router.digest}),
        S="none" if state is None else state.digest,
    )


def _sets(state: ContinualStateManifest) -> dict[str, JsonValue]:
    return {"trainable": [*state.trainable], "frozen": [*state.frozen]}


def _part(component: str, document: dict[str, JsonValue]) -> Digest:
    return manifest_digest(f"component {component}", canonical_bytes(document))
