"""Seven methods as contracts: compatible shapes are not equivalent operators (C 0x08, event identity C 0x00F)."""

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

from oracles.checks import Check, equal
from oracles.conditional.contracts import Contract, ContractField, Method, differing, unverified
from oracles.model import Fixture, Oracle
from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest

EVENT, FIELDS, RECORDS = "C 0x00F", "C 0x08A", "C 0x08C"
SHAPES, STATE, WORK, CLOSURE = "C 0x08D", "C 0x08E", "C 0x08J", "C 0x08K"


class Contracts(Fixture):
    """The seven records of C 0x08C; the words are ours, their meaning the document's."""

    moa: Contract
    switchhead: Contract
    mod_training: Contract
    mod_decode: Contract
    staged: Contract
    integrated: Contract
    moe_llava: Contract


class MoaWork(Fixture):
    """Destination rows, sources, experts and selected count."""

    destinations: int
    sources: int
    experts: int
    k: int


class SwitchheadWork(Fixture):
    """The same with heads and one count a side."""

    destinations: int
    sources: int
    heads: int
    experts: int
    k_source: int
    k_destination: int


class TrainingWork(Fixture):
    """Sequences, rows, capacity and heads."""

    sequences: int
    rows: int
    capacity: int
    heads: int


class DecodeWork(Fixture):
    """Layers, tokens and executed layer-tokens."""

    layers: int
    tokens: int
    executed: int


class StagedWork(Fixture):
    """Rows, depth capacity, experts and experts a row."""

    rows: int
    capacity: int
    experts: int
    k: int


class IntegratedWork(Fixture):
    """Rows, experts, no-op paths and rows that chose one."""

    rows: int
    experts: int
    no_ops: int
    no_op_rows: int


class LlavaWork(Fixture):
    """Materialised and valid rows, experts and executed edges."""

    rows: int
    valid: int
    experts: int
    executed: int


class Work(Fixture):
    """Dimensions of the seven teaching fixtures."""

    moa: MoaWork
    switchhead: SwitchheadWork
    mod_training: TrainingWork
    mod_decode: DecodeWork
    staged: StagedWork
    integrated: IntegratedWork
    moe_llava: LlavaWork


class Width(Fixture):
    """Model, head and expert width of the shape witnesses."""

    d: int
    d_h: int
    d_ff: int


class Substitution(Fixture):
    """One field of one method replaced by another method's word."""

    method: Method
    field: ContractField
    word: str


class Event(Fixture):
    """The fourteen coordinates of one conditional event; no float among them. The values are ours."""

    batch_id: int
    sequence_id: int
    layer_id: int
    token_occurrence_id: int
    original_position: int
    routing_axis: Literal["attention_expert", "depth", "ffn_expert"]
    candidate_pool_id: str
    attention_map_id: int
    route_side: Literal["source", "destination"]
    projection_family: Literal["Q", "K", "V", "O"]
    selected_component_ids: tuple[int, ...]
    membership: bool
    decision_policy_revision: str
    model_revision: str


class FamilyFixture(Fixture):
    """Contracts, dimensions, substitutions and one event."""

    contracts: Contracts
    work: Work
    width: Width
    substitutions: tuple[Substitution, ...]
    event: Event


def records(fixture: FamilyFixture) -> dict[str, Contract]:
    """Method -> contract, in the document's order."""
    return {name: getattr(fixture.contracts, name) for name in Contracts.model_fields}


def identity(coordinates: dict[str, JsonValue]) -> Digest:
    """Digest of the fourteen coordinates."""
    return manifest_digest("oracle_event", canonical_bytes(coordinates))


def event_checks(fixture: FamilyFixture) -> Iterator[Check]:
    """Fourteen coordinates, each of them part of identity, none a float; a row is not a position."""
    event = fixture.event
    values = tuple(getattr(event, name) for name in Event.model_fields)
    yield equal("event coordinates", len(values), 14, source=EVENT)
    yield equal("event", values, EVENT_VALUES, source=EVENT)
    coordinates: dict[str, JsonValue] = event.model_dump(mode="json")
    moved = tuple(identity({**coordinates, name: "another"}) != identity(coordinates) for name in coordinates)
    yield equal("each coordinate is part of identity", moved, (True,) * 14, source=EVENT)
    yield equal("no coordinate is a float", any(isinstance(value, float) for value in values), False, source=EVENT)
    rows = (event.token_occurrence_id, event.original_position)
    yield equal("row and position", rows, (3, 14), source=EVENT)


def distance_checks(fixture: FamilyFixture) -> Iterator[Check]:
    """21 fields, 21 pairs, known differences between 14 and 21."""
    contracts = records(fixture)
    names = tuple(Contract.model_fields)
    yield equal("methods and fields", (len(contracts), len(names)), (7, 21), source=FIELDS)
    yield equal("fields by group", sum(GROUPS), len(names), source=FIELDS)
    pairs = tuple(combinations(contracts, 2))
    yield equal("pairs", len(pairs), 21, source=FIELDS)
    table = {pair: len(differing(contracts[pair[0]], contracts[pair[1]])) for pair in pairs}
    rows = tuple(tuple(d for (left, _), d in table.items() if left == name) for name in list(contracts)[:-1])
    yield equal("distances", rows, DISTANCES, source=RECORDS)
    bounds = (min(table.values()), max(table.values()))
    yield equal("smallest and largest distance", bounds, (14, 21), source=FIELDS)
    nearest = tuple(pair for pair, d in table.items() if d == bounds[0])
    yield equal("nearest pairs", nearest, (("moa", "switchhead"), ("mod_training", "mod_decode")), source=RECORDS)
    apart = tuple(unverified(contracts[a], contracts[b]) for a, b in pairs)
    yield equal("pairs with an unverified field", sum(n > 0 for n in apart), 11, source=RECORDS)


def shape_checks(fixture: FamilyFixture) -> Iterator[Check]:
    """Equal arrays, different axes, caches and residuals."""
    moa, switchhead, width = fixture.work.moa, fixture.work.switchhead, fixture.width
    contracts = records(fixture)
    maps = (1, moa.destinations, moa.k, moa.sources), (1, switchhead.heads, switchhead.destinations, switchhead.sources)
    yield equal("attention shapes", maps, ((1, 2, 2, 3), (1, 2, 2, 3)), source=SHAPES)
    stored = (1, moa.sources, width.d_h), (1, switchhead.sources, switchhead.heads, width.d_h)
    yield equal("K/V shapes", stored, ((1, 3, 2), (1, 3, 2, 2)), source=SHAPES)
    output = (1, fixture.work.staged.rows, width.d), (1, fixture.work.integrated.rows, width.d)
    yield equal("MoDE output shapes", output, ((1, 4, 2), (1, 4, 2)), source=STATE)
    yield equal("named parameters", named_parameters(fixture), (30, 30), source=STATE)
    for source, left, right, fields in (
        (SHAPES, "moa", "switchhead", ATTENTION_FIELDS),
        (STATE, "staged", "integrated", COMPOSITION_FIELDS),
    ):
        found = tuple(name for name in differing(contracts[left], contracts[right]) if name in fields)
        yield equal(f"{left} and {right} differ behind the shape", found, fields, source=source)


def named_parameters(fixture: FamilyFixture) -> tuple[int, int]:
    """Experts and routers of staged and integrated composition."""
    staged, integrated, width = fixture.work.staged, fixture.work.integrated, fixture.width
    expert = 2 * width.d * width.d_ff
    return (
        staged.experts * expert + width.d + staged.experts * width.d,
        integrated.experts * expert + (integrated.experts + integrated.no_ops) * width.d,
    )


def work_checks(fixture: FamilyFixture) -> Iterator[Check]:
    """(scores, projection edges, map elements, block rows, FFN edges, K/V rows); None is not materialised, not 0."""
    for name, vector in work_vectors(fixture.work).items():
        stated = STAGED_AS_PRINTED if name == "staged" else None
        yield equal(f"work of {name}", vector, WORK_TABLE[name], source=WORK, stated=stated)


def work_vectors(work: Work) -> dict[str, tuple[int | None, ...]]:
    """The six counters from the dimensions of each fixture."""
    moa, sh, train, decode = work.moa, work.switchhead, work.mod_training, work.mod_decode
    staged, dense, llava = work.staged, work.integrated, work.moe_llava
    edges = sh.heads * (sh.sources * sh.k_source + sh.destinations * sh.k_destination)
    rows = train.sequences * train.capacity
    scored = staged.rows + staged.capacity * staged.experts
    return {
        "moa": (
            moa.destinations * moa.experts,
            moa.destinations * moa.k,
            moa.destinations * moa.k * moa.sources,
            None,
            None,
            moa.sources,
        ),
        "switchhead": (
            sh.heads * sh.experts * (sh.sources + sh.destinations),
            edges,
            sh.heads * sh.destinations * sh.sources,
            None,
            None,
            sh.sources,
        ),
        "mod_training": (train.sequences * train.rows, None, train.heads * rows * train.capacity, rows, None, None),
        "mod_decode": (decode.layers * decode.tokens, None, None, decode.executed, None, decode.executed),
        "staged": (scored, None, None, staged.capacity, staged.capacity * staged.k, staged.capacity),
        "integrated": (
            dense.rows * (dense.experts + dense.no_ops),
            None,
            None,
            dense.rows,
            dense.rows - dense.no_op_rows,
            dense.rows,
        ),
        "moe_llava": (llava.rows * llava.experts, None, None, None, llava.executed, llava.valid),
    }


def substitution_checks(fixture: FamilyFixture) -> Iterator[Check]:
    """A shape-compatible word from another method is another contract, at a distance of exactly its field."""
    contracts = records(fixture)
    replaced = tuple(
        (one.method, one.field, getattr(contracts[one.method], one.field), one.word) for one in fixture.substitutions
    )
    yield equal("substitutions", replaced, SUBSTITUTIONS, source=CLOSURE)
    changed = tuple(
        differing(contracts[one.method], contracts[one.method].model_copy(update={one.field: one.word}))
        for one in fixture.substitutions
    )
    yield equal("each is refused by its field", changed, tuple((row[1],) for row in SUBSTITUTIONS), source=CLOSURE)


def evaluate(fixture: FamilyFixture) -> Iterator[Check]:
    """Every check of C 0x08, after the event identity of C 0x00F."""
    yield from event_checks(fixture)
    yield from distance_checks(fixture)
    yield from shape_checks(fixture)
    yield from work_checks(fixture)
    yield from substitution_checks(fixture)


EVENT_VALUES = (0, 1, 2, 3, 14, "depth", "pool-a", 4, "destination", "Q", (2, 0), True, "policy-2", "model-3")
GROUPS = (2, 2, 5, 4, 1, 2, 2, 2, 1)
# Row by row: a method against all later ones, counted from the table of contracts.
DISTANCES = (
    (14, 18, 18, 18, 18, 20),
    (18, 18, 18, 18, 20),
    (14, 18, 19, 21),
    (17, 19, 21),
    (18, 21),
    (19,),
)
ATTENTION_FIELDS = (
    *("routed_object", "selection_population", "score_transform", "route_weight"),
    *("attention_execution", "kv_payload"),
)
COMPOSITION_FIELDS = (
    *("admission_policy", "capacity_unit", "residual_location", "attention_execution", "ffn_execution"),
    *("kv_row_policy", "kv_payload"),
)
WORK_TABLE: dict[str, tuple[int | None, ...]] = {
    "moa": (6, 4, 12, None, None, 3),
    "switchhead": (30, 20, 12, None, None, 3),
    "mod_training": (12, None, 36, 6, None, None),
    "mod_decode": (24, None, None, 12, None, 12),
    "staged": (8, None, None, 2, 2, 2),
    "integrated": (12, None, None, 4, 3, 4),
    "moe_llava": (48, None, None, None, 24, 9),
}
# The table prints 6 score scalars; four depth scores and two rows over two experts are 8.
STAGED_AS_PRINTED = (6, None, None, 2, 2, 2)
SUBSTITUTIONS = (
    ("moa", "attention_execution", "k_maps", "H_A_maps"),
    ("staged", "attention_execution", "C_D_by_C_D", "dense_valid"),
    ("mod_decode", "route_weight", "raw_r", "raw_sigmoid"),
    ("moe_llava", "padding_router", "routed", "valid_only"),
    ("integrated", "kv_row_policy", "all_valid", "sparse_receipts"),
)

ORACLE = Oracle(
    name="family_contracts",
    document="C",
    sections=("0x00F", "0x08A", "0x08C", "0x08D", "0x08E", "0x08J", "0x08K"),
    module=__name__,
    fixture=FamilyFixture,
    evaluate=evaluate,
    proves=(
        "seven contracts of 21 fields, no two equal, and the known distance of every pair",
        "equal array shapes over different axes, caches and residuals",
        "a work vector of unlike units, recomputed from the dimensions of each fixture",
    ),
    does_not_prove=(
        "that a distance is a similarity, or that two work coordinates may be added",
        "the words of a field beyond the sources named in it; unverified fields are counted apart",
    ),
    own=("contracts", "substitutions", "event"),
)
