"""Sparse per-layer K/V state of Mixture-of-Depths decode (C 0x05L-0x05U).

One global token frontier, one compact row stream a routed layer. A row keeps its original position; its slot is an
address. Layers, token indices and slots are counted from 0. No tensor is stored here: a row is its position.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, equal
from oracles.errors import FixtureRefusedError, OracleError
from oracles.matrix import require_length
from oracles.model import Fixture, Oracle
from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest

ROWS, POSITIONS, RECEIPTS = "C 0x05M", "C 0x05N", "C 0x05O"
PREFIX, FENCES, LEDGER = "C 0x05Q", "C 0x05R", "C 0x05S"

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


def stream_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """Membership -> positions and slots; an empty layer is a valid stream."""
    final = commit(fixture, len(fixture.positions))
    slots = tuple(tuple(one[2] for one in layer if len(one) == 3) for layer in final.receipts)
    yield equal("positions", fixture.positions, (10, 11, 12, 13, 14, 15), source=ROWS)
    yield equal("stored positions", final.rows, STORED, source=ROWS)
    yield equal("compact slots", slots, ((0, 1, 2, 3),) * 3 + ((),), source=ROWS)
    yield equal("rows a layer at T = 6", counts(final), (4, 4, 4, 0), source=ROWS)
    yield equal("rows a layer at T = 4", counts(commit(fixture, 4)), (3, 2, 2, 0), source=ROWS)
    yield equal("rows a layer at T = 5", counts(commit(fixture, 5)), (3, 3, 3, 0), source=ROWS)
    closed = tuple(one[0] for one in final.receipts[3])
    yield equal("empty layer: six closed outcomes", closed, (ABSENT,) * 6, source=ROWS)
    yield equal("global frontier", final.tokens, 6, source=ROWS)


def position_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """What the last token reads, and what compact slots would have told it."""
    final, last = commit(fixture, len(fixture.positions)), fixture.positions[-1]
    reads = tuple(visible(fixture, final, layer, last) if fixture.membership[layer][-1] else None for layer in range(4))
    yield equal("visible to the last token", reads, (*STORED[:3], None), source=POSITIONS)
    used = tuple(last if fixture.rope_position == "semantic" else len(rows) - 1 for rows in final.rows if rows)
    yield equal("position of the last query", used, (15, 15, 15), source=POSITIONS)
    slots = tuple(len(rows) - 1 for rows in final.rows[:3])
    yield equal("its slot would say", slots, (3, 3, 3), source=POSITIONS)
    by_position = tuple(last - p for p in final.rows[0])
    by_slot = tuple(slots[0] - j for j in range(len(final.rows[0])))
    yield equal("distances in layer 0, by position", by_position, (5, 3, 2, 0), source=POSITIONS)
    yield equal("distances in layer 0, by slot", by_slot, (3, 2, 1, 0), source=POSITIONS)


def transaction_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """A fault after layer 1 publishes nothing; the predecessor keeps its digest."""
    fault = fixture.failure
    if not (0 <= fault.token < 6 and 0 <= fault.after_layer < 4):
        raise FixtureRefusedError("failure", (fault.token, fault.after_layer), "a token and a layer of the trace")
    before = commit(fixture, fault.token)
    column = tuple(layer[fault.token] for layer in fixture.membership)
    staged = stage(before, fixture.positions[fault.token], column[: fault.after_layer + 1])
    yield equal("staged at the fault", staged, ((ABSENT, 14), (PRESENT, 14, 2)), source=FENCES)
    yield equal("token is not published", published(before, staged, 0), False, source=RECEIPTS)
    unchanged = after_fault(fixture, before, staged).digest() == before.digest()
    yield equal("predecessor digest is unchanged", unchanged, True, source=FENCES)
    whole = stage(before, fixture.positions[fault.token], column)
    yield equal("all layers closed: published", published(before, whole, 0), True, source=RECEIPTS)
    yield equal("one outcome a layer", len(whole), 4, source=RECEIPTS)


def fork_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """Parent and child share a prefix and diverge by route; rollback and the fence keep their own counts."""
    fork = fixture.fork
    if not 0 <= fork.shared_tokens < 6:
        raise FixtureRefusedError("fork.shared_tokens", fork.shared_tokens, "a token of the trace")
    shared, again = commit(fixture, fork.shared_tokens), commit(fixture, fork.shared_tokens)
    position = fixture.positions[fork.shared_tokens]
    parent, child = (publish(shared, stage(shared, position, column), 0) for column in (fork.parent, fork.child))
    yield equal("shared prefix", (shared.digest() == again.digest(), shared.tokens), (True, 5), source=FENCES)
    yield equal("parent rows", counts(parent), (4, 4, 4, 0), source=FENCES)
    yield equal("child rows", counts(child), (3, 4, 4, 0), source=FENCES)
    branches = (fork.parent, fork.child)
    yield equal("final memberships", branches, ((True, True, True, False), (False, True, True, False)), source=FENCES)
    yield equal("successor digests differ", parent.digest() != child.digest(), True, source=FENCES)
    back = truncate(fixture, parent, fixture.rollback_tokens)
    yield equal("rows after rollback to T = 4", counts(back), (3, 2, 2, 0), source=FENCES)
    yield equal("rollback is the earlier state", back.digest() == commit(fixture, 4).digest(), True, source=FENCES)
    late = stage(back, 14, (False, True, False, False))
    yield equal("late completion of the fenced generation", published(back, late, 0), False, source=FENCES)
    yield equal("retry in the current generation", published(back, late, back.generation), True, source=FENCES)


def replay_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """Three replay modes: which decisions and which rows are computed again."""
    pairs = sum(len(layer) for layer in fixture.membership)
    rows = sum(sum(layer) for layer in fixture.membership)
    modes = {"deterministic_model": (pairs, rows), "frozen_decision": (0, rows), "cache_only": (0, 0)}
    yield equal("recomputed decisions and rows", tuple((k, *v) for k, v in modes.items()), REPLAY, source=FENCES)


def prefix_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """The exact consumer is accepted, each of the twelve fields guards, three consumers are refused by name."""
    producer = fixture.producer
    names = tuple(PrefixManifest.model_fields)
    yield equal("manifest fields", len(names), 12, source=PREFIX)
    yield equal("manifest", tuple(getattr(producer, name) for name in names), MANIFEST, source=PREFIX)
    yield equal("exact consumer", mismatches(producer, producer), (), source=PREFIX)
    guards = tuple(mismatches(producer, producer.model_copy(update={name: "another"}))[0][0] for name in names)
    yield equal("each field guards alone", guards, names, source=PREFIX)
    refused = tuple(
        mismatches(producer, producer.model_copy(update={one.field: one.value})) for one in fixture.consumers
    )
    yield equal("refused consumers", refused, REFUSED, source=PREFIX)


def ledger_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """Payload and the named metadata."""
    width = fixture.bytes
    layers, tokens = len(fixture.membership), len(fixture.positions)
    rows = sum(sum(layer) for layer in fixture.membership)
    row = 2 * width.kv_heads * width.head_width * width.element
    yield equal("executed layer-tokens", (rows, layers * tokens), (12, 24), source=LEDGER)
    yield equal("one row", row, 16, source=LEDGER)
    yield equal("dense payload", layers * tokens * row, 384, source=LEDGER)
    yield equal("sparse payload", rows * row, 192, source=LEDGER)
    metadata = (rows * width.position, -(-layers * tokens // 8), (layers + 1) * width.offset)
    yield equal("positions, bitmap, offsets", metadata, (24, 3, 20), source=LEDGER)
    yield equal("named bytes", rows * row + sum(metadata), 239, source=LEDGER)
    yield equal("payload ratio", rows / (layers * tokens), 0.5, source=LEDGER)
    dimensions = (width.kv_heads, width.head_width, width.element)
    yield equal("kv heads, head width, element bytes", dimensions, (2, 2, 2), source=LEDGER)


def evaluate(fixture: SparseKvFixture) -> Iterator[Check]:
    """Every check of C 0x05M to 0x05S, in the order of the subsections."""
    require_length("positions", fixture.positions, 6)
    yield from stream_checks(fixture)
    yield from position_checks(fixture)
    yield from transaction_checks(fixture)
    yield from replay_checks(fixture)
    yield from prefix_checks(fixture)
    yield from fork_checks(fixture)
    yield from ledger_checks(fixture)


STORED = ((10, 12, 13, 15), (11, 12, 14, 15), (10, 11, 14, 15), ())
REPLAY = (("deterministic_model", 24, 12), ("frozen_decision", 0, 12), ("cache_only", 0, 0))
MANIFEST = (
    *("model-3", "weights-1", "predictor-7", "policy-2", "0.0", ">", "original-position", "sparse-kv-1"),
    *("tokens-a", "no-side-input", "tenant-a", "trace-a"),
)
REFUSED = (
    (("logit_threshold", "0.0", "0.25"),),
    (("predictor_revision", "predictor-7", "predictor-8"),),
    (("route_trace", "trace-a", "trace-b"),),
)

ORACLE = Oracle(
    name="mod_sparse_kv",
    document="C",
    sections=("0x05M", "0x05N", "0x05O", "0x05Q", "0x05R", "0x05S"),
    module=__name__,
    fixture=SparseKvFixture,
    evaluate=evaluate,
    proves=(
        "layer-local row streams under one token frontier, with original positions apart from slots",
        "a token closes in every layer or not at all; fork, rollback and fence keep each layer's own count",
        "twelve manifest fields that each refuse a consumer by name, and the payload and metadata ledger",
    ),
    does_not_prove=(
        "a page table, an allocator, a prefix index or any measured memory or latency",
        "that a predictor would take the recorded decisions again",
    ),
    own=("producer", "consumers", "rollback_tokens"),
    document_mutations=32,
)
