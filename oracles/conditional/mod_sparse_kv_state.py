"""The committed state of sparse decode: row streams, receipts, transactions, rollback and prefix manifests (C 0x05).

One global token frontier, one compact row stream a routed layer. A row keeps its original position; its slot is an
address. Layers, token indices and slots are counted from 0. No tensor is stored here: a row is its position.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.errors import OracleError
from oracles.model import Fixture
from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest

Layer = tuple[bool, bool, bool, bool, bool, bool]
Outcome = tuple[str, int] | tuple[str, int, int]
PRESENT, ABSENT = "PRESENT_KV", "ABSENT_BY_ROUTE"

ManifestField = Literal[
    "model_revision",
    "weight_transform_revision",
    "predictor_revision",
    "route_policy_revision",
    "logit_threshold",
    "comparator",
    "position_contract",
    "cache_abi",
    "token_prefix",
    "side_input",
    "isolation_namespace",
    "route_trace",
]


class PrefixManifest(Fixture):
    """The twelve fields of C 0x05Q, in the document's order; the short values are ours."""

    model_revision: str
    weight_transform_revision: str
    predictor_revision: str
    route_policy_revision: str
    logit_threshold: str
    comparator: str
    position_contract: str
    cache_abi: str
    token_prefix: str
    side_input: str
    isolation_namespace: str
    route_trace: str


class Override(Fixture):
    """A consumer that differs from the producer in one field."""

    field: ManifestField
    value: str


class Fork(Fixture):
    """Two successors of one shared prefix: the last membership column of parent and child."""

    shared_tokens: int
    parent: tuple[bool, bool, bool, bool]
    child: tuple[bool, bool, bool, bool]


class Prefill(Fixture):
    """How a prefix was computed: its route rule, its delta gate, and what pins its boundary decisions."""

    route_rule: Literal["complete_sequence_top_c", "causal_policy"]
    delta_gate: Literal["raw_router", "predictor_probability"]
    decisions: Literal["numerical_contract", "frozen_trace", "unpinned"]


class Failure(Fixture):
    """A fault while a token is staged."""

    token: int
    after_layer: int


class Bytes(Fixture):
    """Dimensions and widths of the ledger."""

    kv_heads: int
    head_width: int
    element: int
    position: int
    offset: int


class SparseKvFixture(Fixture):
    """The four-layer, six-token fixture of C 0x05M."""

    positions: tuple[int, ...]
    membership: tuple[Layer, Layer, Layer, Layer]
    rope_position: Literal["semantic", "slot"]
    own_row: Literal["visible", "hidden"]
    publication: Literal["atomic", "layer_by_layer"]
    rollback: Literal["own_rows", "token_count"]
    rollback_tokens: Annotated[int, Field(ge=0)]
    failure: Failure
    fork: Fork
    prefills: tuple[Prefill, Prefill, Prefill]
    producer: PrefixManifest
    consumers: tuple[Override, Override, Override]
    bytes: Bytes


class TornTokenError(OracleError):
    """A token was published before every routed layer closed, or from another generation."""


class Snapshot(NamedTuple):
    """A committed request state: rows a layer, receipts a layer and the generation that may extend it."""

    rows: tuple[tuple[int, ...], ...]
    receipts: tuple[tuple[Outcome, ...], ...]
    generation: int = 0

    @property
    def tokens(self) -> int:
        """The global committed frontier."""
        return len(self.receipts[0])

    def digest(self) -> Digest:
        """Identity of the committed rows and receipts, generation apart."""
        rows: list[JsonValue] = [[*layer] for layer in self.rows]
        receipts: list[JsonValue] = [[[*one] for one in layer] for layer in self.receipts]
        return manifest_digest("oracle_state", canonical_bytes({"rows": rows, "receipts": receipts}))


def empty(layers: int) -> Snapshot:
    """No token committed, every layer an empty stream."""
    return Snapshot(((),) * layers, ((),) * layers)


def stage(snapshot: Snapshot, position: int, column: tuple[bool, ...]) -> tuple[Outcome, ...]:
    """One outcome a layer: the row with its slot, or the absence receipt."""
    return tuple(
        (PRESENT, position, len(rows)) if execute else (ABSENT, position)
        for rows, execute in zip(snapshot.rows, column, strict=False)
    )


def publish(snapshot: Snapshot, staged: tuple[Outcome, ...], generation: int) -> Snapshot:
    """The successor, only when all layers closed and no fence was raised meanwhile."""
    if len(staged) != len(snapshot.rows):
        raise TornTokenError(f"{len(staged)} of {len(snapshot.rows)} layers closed")
    if generation != snapshot.generation:
        raise TornTokenError(f"generation {generation} is fenced; {snapshot.generation} is current")
    rows = tuple(
        (*layer, one[1]) if one[0] == PRESENT else layer for layer, one in zip(snapshot.rows, staged, strict=True)
    )
    receipts = tuple((*layer, one) for layer, one in zip(snapshot.receipts, staged, strict=True))
    return Snapshot(rows, receipts, snapshot.generation)


def published(snapshot: Snapshot, staged: tuple[Outcome, ...], generation: int) -> bool:
    """Whether publication succeeds."""
    try:
        publish(snapshot, staged, generation)
    except TornTokenError:
        return False
    return True


def after_fault(fixture: SparseKvFixture, before: Snapshot, staged: tuple[Outcome, ...]) -> Snapshot:
    """What a reader finds after a fault: the predecessor, or a torn state when each layer publishes alone."""
    if fixture.publication == "atomic":
        return before
    fresh = tuple((one[1],) if one[0] == PRESENT else () for one in staged)
    padded = fresh + ((),) * (len(before.rows) - len(fresh))
    return before._replace(rows=tuple(rows + more for rows, more in zip(before.rows, padded, strict=True)))


def commit(fixture: SparseKvFixture, tokens: int) -> Snapshot:
    """The state after the first tokens of the trace."""
    snapshot = empty(len(fixture.membership))
    for t in range(tokens):
        column = tuple(layer[t] for layer in fixture.membership)
        snapshot = publish(snapshot, stage(snapshot, fixture.positions[t], column), 0)
    return snapshot


def counts(snapshot: Snapshot) -> tuple[int, ...]:
    """Rows a layer."""
    return tuple(len(rows) for rows in snapshot.rows)


def truncate(fixture: SparseKvFixture, snapshot: Snapshot, tokens: int) -> Snapshot:
    """Roll back to an earlier token: each layer to its own row count there, and a fence for late completions."""
    receipts = tuple(layer[:tokens] for layer in snapshot.receipts)
    own = tuple(sum(one[0] == PRESENT for one in layer) for layer in receipts)
    lengths = own if fixture.rollback == "own_rows" else (tokens,) * len(receipts)
    rows = tuple(layer[:n] for layer, n in zip(snapshot.rows, lengths, strict=True))
    return Snapshot(rows, receipts, snapshot.generation + 1)


def visible(fixture: SparseKvFixture, snapshot: Snapshot, layer: int, position: int) -> tuple[int, ...]:
    """Positions the query at `position` reads in one layer, its own staged row included."""
    rows = snapshot.rows[layer]
    return rows if fixture.own_row == "visible" else tuple(p for p in rows if p != position)


def mismatches(producer: PrefixManifest, consumer: PrefixManifest) -> tuple[tuple[str, str, str], ...]:
    """(field, produced, consumed) for every field that differs, in the manifest's order."""
    names = tuple(PrefixManifest.model_fields)
    pairs = ((name, getattr(producer, name), getattr(consumer, name)) for name in names)
    return tuple((name, left, right) for name, left, right in pairs if left != right)


def refused_handoff(prefill: Prefill) -> tuple[str, ...]:
    """Why causal decode may not continue this prefix; nothing when it may."""
    return tuple(
        name
        for name, safe in (
            ("route_rule", prefill.route_rule == "causal_policy"),
            ("delta_gate", prefill.delta_gate == "raw_router"),
            ("decisions", prefill.decisions != "unpinned"),
        )
        if not safe
    )
