"""Sparse per-layer K/V state of Mixture-of-Depths decode (C 0x05L-0x05U).

The state machine stands in `mod_sparse_kv_state`. Layers, token indices and slots are counted from 0.
"""

from collections.abc import Iterator

from oracles.checks import Check, equal
from oracles.conditional.mod_sparse_kv_state import (
    ABSENT,
    PRESENT,
    PrefixManifest,
    SparseKvFixture,
    after_fault,
    commit,
    counts,
    mismatches,
    publish,
    published,
    refused_handoff,
    stage,
    truncate,
    visible,
)
from oracles.errors import FixtureRefusedError
from oracles.matrix import require_length
from oracles.model import Oracle

ROWS, POSITIONS, RECEIPTS, PREFILL = "C 0x05M", "C 0x05N", "C 0x05O", "C 0x05P"
PREFIX, FENCES, LEDGER = "C 0x05Q", "C 0x05R", "C 0x05S"


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


def prefill_checks(fixture: SparseKvFixture) -> Iterator[Check]:
    """A teacher prefix is refused; a causal one hands over under a numerical contract or a frozen trace."""
    found = tuple((one.decisions, refused_handoff(one)) for one in fixture.prefills)
    yield equal("prefill handed to decode", found, HANDOFF, source=PREFILL)
    reasons = tuple(
        refused_handoff(fixture.prefills[1].model_copy(update=change))
        for change in ({"delta_gate": "predictor_probability"}, {"decisions": "unpinned"})
    )
    yield equal("each handoff condition refuses alone", reasons, (("delta_gate",), ("decisions",)), source=PREFILL)


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
    yield from prefill_checks(fixture)
    yield from prefix_checks(fixture)
    yield from fork_checks(fixture)
    yield from ledger_checks(fixture)


STORED = ((10, 12, 13, 15), (11, 12, 14, 15), (10, 11, 14, 15), ())
HANDOFF = (("numerical_contract", ("route_rule",)), ("numerical_contract", ()), ("frozen_trace", ()))
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
    sections=("0x05M", "0x05N", "0x05O", "0x05P", "0x05Q", "0x05R", "0x05S"),
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
