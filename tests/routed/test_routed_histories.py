"""Continual states: order is identity, parents and pairs are kept, scales and claims hold, ledgers count (R 0x06)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from schemas.adapter import AdapterManifest, FactorManifest, make_scale
from schemas.canonical import JsonObject, JsonValue
from schemas.continual import ContinualStateManifest, TaskTime
from schemas.model import validate
from schemas.router import RouterManifest
from tests.routed.conftest import Api, Run, written
from tests.routed.documents import MATRIX, mutations, router, state, tensor
from tests.support import tiny
from tests.validators.examples import ARCHITECTURE, SHAPES, make_adapter, make_base
from tests.validators.examples import tensor as content
from validators.codes import continual
from validators.continual import capacity, judge_state
from validators.growth import ledgers, transfer

BASE = make_base()
NAMES = ("one", "two", "three")
ADAPTERS = {label: make_adapter(BASE, label) for label in NAMES}
KNOWN = {adapter.digest: adapter for adapter in ADAPTERS.values()}
PAIRS: JsonObject = {module: module for module in SHAPES}
DIGESTS = [ADAPTERS[label].digest for label in NAMES]


def history(digests: list[str], **changes: Any) -> list[ContinualStateManifest]:
    """The states after each task, each over those before it; changes reach the last."""
    states: list[ContinualStateManifest] = []
    for count in range(1, len(digests) + 1):
        last = changes if count == len(digests) else {}
        pairs = {"pair_map": PAIRS if count > 1 else {}}
        document = state(BASE.digest, digests[:count], [item.digest for item in states], **{**pairs, **last})
        states.append(validate(ContinualStateManifest, document))
    return states


def codes(
    states: list[ContinualStateManifest],
    *more: AdapterManifest,
    parents: list[ContinualStateManifest] | None = None,
    selector: RouterManifest | None = None,
) -> set[str]:
    """What is found in the last of these states."""
    known = KNOWN | {adapter.digest: adapter for adapter in more}
    before = states[:-1] if parents is None else parents
    return {found.code for found in judge_state(states[-1], known, before, selector)}


def selector(pool: list[str], **changes: Any) -> RouterManifest:
    """Raters over a zero branch and the tasks, in order."""
    raters: JsonObject = {
        f"rater.{number}": {"role": "gate", "value": tensor(f"u{number}", 8)} for number in range(len(pool) + 1)
    }
    document = router(
        BASE.digest,
        [{"adapter": digest} for digest in pool],
        family="amlora",
        tensors=raters,
        no_op_ids=[0],
        feature_source="branch_output",
        **changes,
    )
    return validate(RouterManifest, document)


MIXTURE: JsonObject = {"lane": "amlora_selector", "concatenation": "separate_branches"}


def mixture(digests: list[str], **changes: Any) -> list[ContinualStateManifest]:
    """An attentional mixture over the tasks."""
    return history(digests, **{**MIXTURE, "selector": selector(digests).digest, **changes})


def test_a_whole_history_is_found_without_fault() -> None:
    for count in (1, 2, 3):
        assert codes(history(DIGESTS[:count])) == set()
        assert codes(mixture(DIGESTS[:count]), selector=selector(DIGESTS[:count])) == set()


def test_the_same_tasks_in_another_order_are_another_state_with_parents_of_its_own() -> None:
    states, reordered = history(DIGESTS), history([DIGESTS[1], DIGESTS[0], DIGESTS[2]])
    assert states[-1].digest != reordered[-1].digest
    assert codes(reordered) == set()
    over_old = validate(
        ContinualStateManifest, reordered[-1].document() | {"parents": [item.digest for item in states[:-1]]}
    )
    assert codes([over_old], parents=states[:-1]) == {"TASKS_REORDERED"}


def scaled(alpha: float) -> AdapterManifest:
    """A task whose scale differs from the others'."""
    return make_adapter(BASE, f"scaled {alpha}", factor={"alpha": alpha})


def wide(rank: int) -> AdapterManifest:
    """A task of a high rank."""
    return make_adapter(BASE, f"rank {rank}", factor={"rank": rank, "alpha": float(2 * rank)})


def elsewhere() -> AdapterManifest:
    """A task trained on another base."""
    other = make_base(architecture=ARCHITECTURE.model_copy(update={"vocab_size": 7}))
    return make_adapter(other, "elsewhere")


def discarded() -> list[ContinualStateManifest]:
    """A second state over a first that was merged and lost its basis."""
    merged = {"consolidation": {"kind": "merged", "basis": "discarded"}}
    first = history(DIGESTS[:1], **merged)[0]
    second = state(BASE.digest, DIGESTS[:2], [first.digest], pair_map=PAIRS)
    return [first, validate(ContinualStateManifest, second)]


def test_each_breach_of_a_history_has_its_own_code() -> None:
    two = DIGESTS[:2]
    strange, hot, broad = elsewhere(), scaled(8.0), wide(3)
    pairs_short = {module: module for module in list(SHAPES)[:-1]}
    breaches = {
        "TASK_BASE_DIFFERS": codes(history([DIGESTS[0], strange.digest]), strange),
        "PARENTS_INCOMPLETE": codes(history(two, parents=[]), parents=[]),
        "TASKS_REORDERED": codes(history(two[::-1]), parents=history(two[:1])) - {"PARENTS_INCOMPLETE"},
        "MERGED_PARENT_WITHOUT_BASIS": codes(discarded()),
        "SELECTOR_MISSING": codes(mixture(two, selector="none")),
        "SELECTOR_FOREIGN": codes(history(two, selector=selector(two).digest), selector=selector(two)),
        "SELECTOR_POOL_DIFFERS": codes(mixture(two), selector=selector(two[::-1])),
        "PAIR_MAP_INCOMPLETE": codes(history(two, pair_map=pairs_short)),
        "SCALES_LOST_IN_CONCATENATION": codes(history([two[0], hot.digest], concatenation="one_scale"), hot),
        "CONCATENATION_CONTRADICTS_LANE": codes(history(two, concatenation="separate_branches")),
        "ORTHOGONALITY_OVERCLAIMED": codes(history([*two, broad.digest], orthogonality="exact"), broad),
        "EARLIER_TASK_NOT_FROZEN": codes(history(two, frozen=[])),
        "TRAINABLE_AND_FROZEN": codes(history(two, trainable=["task2", "head"], frozen=["task1", "head"])),
        "MATRIX_OF_OTHER_TASKS": codes(history(two, evaluation=MATRIX)),
    }
    assert breaches == {code: {code} for code in breaches}
    assert breaches.keys() == {record.code for record in continual.RECORDS}


def test_further_ways_to_break_a_history() -> None:
    two = DIGESTS[:2]
    assert codes(history(two, pair_map={**PAIRS, "nobody": "layers.0.q_proj"})) == {"PAIR_MAP_INCOMPLETE"}
    assert codes(history(two, pair_map={**PAIRS, "layers.0.q_proj": "nobody"})) == {"PAIR_MAP_INCOMPLETE"}
    assert codes(history(two, trainable=[])) == {"EARLIER_TASK_NOT_FROZEN"}
    assert codes(mixture(two, concatenation="one_scale"), selector=selector(two)) == {"CONCATENATION_CONTRADICTS_LANE"}
    states = history(DIGESTS)
    assert codes(states, parents=[states[1], states[0]]) == {"PARENTS_INCOMPLETE", "TASKS_REORDERED"}


def test_scales_of_one_value_or_inside_the_blocks_are_kept() -> None:
    hot = scaled(8.0)
    assert codes(history(DIGESTS[:2], concatenation="one_scale")) == set()
    assert codes(history([DIGESTS[0], hot.digest]), hot) == set()


def test_the_claim_is_refused_and_not_the_state() -> None:
    broad = wide(3)
    claimed = history([*DIGESTS[:2], broad.digest], orthogonality="exact")
    assert capacity(claimed[-1], KNOWN | {broad.digest: broad})["layers.0.q_proj"] == (7, 6)
    assert codes(claimed, broad) == {"ORTHOGONALITY_OVERCLAIMED"}
    assert codes(history([*DIGESTS[:2], broad.digest]), broad) == set()
    assert codes(history(DIGESTS, orthogonality="exact")) == set()


def test_the_documents_matrix_gives_its_four_estimands() -> None:
    found = transfer(validate(TaskTime, MATRIX))
    assert found.acc == pytest.approx(0.770, abs=1e-12)
    assert found.bwt == pytest.approx(-0.080, abs=1e-12)
    assert found.fwt == pytest.approx(0.075, abs=1e-12)
    assert found.forgetting == pytest.approx((0.12, 0.04), abs=1e-12)


def test_a_missing_cell_stays_missing_in_all_that_needs_it() -> None:
    scores: JsonValue = [[0.8, 0.25, 0.18], [0.72, None, 0.25], [0.68, 0.78, 0.85]]
    found = transfer(validate(TaskTime, {**MATRIX, "scores": scores}))
    assert (found.bwt, found.forgetting[1]) == (None, None)
    assert found.acc == pytest.approx(0.77)
    assert found.fwt == pytest.approx(0.075)
    one = transfer(validate(TaskTime, {"metric": "accuracy", "scores": [[0.5]], "baseline": [None]}))
    assert one.model_dump() == {"acc": 0.5, "bwt": None, "fwt": None, "forgetting": ()}
    assert transfer(validate(TaskTime, {**MATRIX, "baseline": [0.1, None, 0.15]})).fwt is None


def square(label: str) -> AdapterManifest:
    """A rank-one task on one module of two by two (R 0x06J)."""
    factor = FactorManifest(
        base=BASE.digest,
        module="layer",
        a=content(f"{label} a", 1, 2),
        b=content(f"{label} b", 2, 1),
        rank=1,
        scale=make_scale(1.0, "alpha_over_r", 1),
        source="lora",
    )
    return AdapterManifest(base=BASE.digest, factors=(factor,), family="lora")


def test_the_documents_layer_has_twelve_factor_and_eight_rater_scalars() -> None:
    tasks = [square(f"task {number}") for number in range(3)]
    known = {adapter.digest: adapter for adapter in tasks}
    raters: JsonObject = {f"u{i}": {"role": "gate", "value": tensor(f"u{i}", 2)} for i in range(4)}
    pool: list[JsonValue] = [{"adapter": adapter.digest} for adapter in tasks]
    mixed = validate(RouterManifest, router(BASE.digest, pool, tensors=raters, no_op_ids=[0]))
    document = state(BASE.digest, [*known], ["blake3:" + "0" * 64, "blake3:" + "1" * 64], **MIXTURE)
    found = ledgers(validate(ContinualStateManifest, document), known, mixed)
    assert (found.factors, found.selector, found.factors + found.selector) == (12, 8, 20)
    assert (found.frozen, found.trainable) == (8, 12)
    assert (found.branches, found.logits) == (3, 4)
    assert found.capacity == {"layer": (3, 2)}
    summed = ledgers(validate(ContinualStateManifest, document), known, None)
    assert (summed.selector, summed.branches, summed.logits, summed.trainable) == (0, 1, 0, 4)
    assert len(summed.rollback) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"lane": "static_fusion"},
        {"evaluation": {**MATRIX, "baseline": [0.1]}},
        {"evaluation": {**MATRIX, "scores": [[0.1, 0.2]]}},
        {"tasks": []},
        {"orthogonality": "approximate"},
        {"slot": 1},
    ],
)
def test_what_no_state_can_say_is_refused_by_type(changes: JsonObject) -> None:
    with pytest.raises(RefusedError):
        validate(ContinualStateManifest, state(BASE.digest, DIGESTS[:1], [], **changes))


def test_a_task_is_learned_once() -> None:
    document = state(BASE.digest, DIGESTS[:2], [])
    assert isinstance(document["tasks"], list)
    document["tasks"][1] = document["tasks"][0]
    with pytest.raises(RefusedError, match="learned once"):
        validate(ContinualStateManifest, document)


def test_one_changed_field_is_refused_or_another_identity() -> None:
    states, outcomes = history(DIGESTS, evaluation=MATRIX), Counter[str]()
    parents = {item.digest: item for item in states[:-1]}
    for path, mutated in mutations(states[-1].document()):
        try:
            found = validate(ContinualStateManifest, mutated)
        except RefusedError:
            outcomes["refused by type"] += 1
            continue
        named = {task.adapter for task in found.tasks} | set(found.parents)
        if named - KNOWN.keys() - parents.keys() or set(found.parents) - parents.keys():
            outcomes["refused as unknown"] += 1
        elif list(judge_state(found, KNOWN, [parents[item] for item in found.parents], None)):
            outcomes["refused by rule"] += 1
        else:
            assert found.digest != states[-1].digest, path
            outcomes["another identity"] += 1
    print(dict(outcomes))
    assert {"refused by type", "refused by rule", "another identity"} <= set(outcomes)


def test_an_adapter_is_no_second_task_of_the_same_history(registry: EmbeddedRegistry) -> None:
    registry.add_continual_state(named("one"), "s1")
    with pytest.raises(RefusedError, match="summed twice"):
        registry.add_continual_state(named("one", "one"), "s2")


PAIRED: JsonObject = {module: module for module in tiny.MODULES}


def named(*adapters: str, **changes: Any) -> JsonObject:
    """A state document over registered adapters by name, following the state `sN` of the tasks before."""
    document = state("tiny", [*adapters], [], pair_map=PAIRED if len(adapters) > 1 else {}, **changes)
    if len(adapters) > 1:
        del document["parents"]
        document["parent"] = f"s{len(adapters) - 1}"
    return document


def test_states_are_registered_one_after_the_other_and_refused_out_of_order(registry: EmbeddedRegistry) -> None:
    added = [registry.add_continual_state(named(*NAMES[:count]), f"s{count}") for count in (1, 2, 3)]
    shown = registry.show("s3").manifest
    assert shown["parents"] == [added[0].digest, added[1].digest]
    with pytest.raises(RefusedError) as caught:
        registry.add_continual_state(named("two", "one", "three"), "reordered")
    assert caught.value.code == "TASKS_REORDERED"
    roles = [link.role for link in registry.lineage("s3", "up").links if link.child == added[2].digest]
    assert Counter(roles) == {"base": 1, "task": 3, "parent": 2}
    assert registry.lineage("s1", "down").nodes[1].digest in {item.digest for item in added}
    report = registry.state_report("s3")
    assert (report.tasks, report.ledgers.branches) == (("task1", "task2", "task3"), 1)
    assert report.ledgers.factors == 3 * 4 * 2 * (8 + 8)
    assert report.transfer is None


def test_a_state_is_registered_by_command_and_by_request(run: Run, api: Api, tmp_path: Path) -> None:
    run("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    for seed, name in enumerate(NAMES, 1):
        run("add", "adapter", tiny.write_adapter(tmp_path / f"cli-{name}", seed), "--base", "tiny", "--name", name)
    for count in (1, 2, 3):
        changes = {"evaluation": MATRIX} if count == 3 else {}
        document = named(*NAMES[:count], **changes)
        run("add", "continual-state", written(tmp_path / "state.json", document), "--name", f"s{count}")
        body = {"name": f"s{count}", "document": document}
        assert [api.post("/v1/continual-states", json=body).status_code for _ in range(2)] == [201, 200]
    assert "ACC 0.770  BWT -0.080  FWT 0.075  forgetting 0.120, 0.040" in run("state", "s3").stdout
    found = json.loads(run("state", "s3", "-o", "json").stdout)
    assert found["ledgers"]["factors"] == 3 * 4 * 2 * (8 + 8)
    assert api.get("/v1/continual-states/s3/report").json()["transfer"]["acc"] == pytest.approx(0.77)
    overclaimed = named("one", orthogonality="exact", frozen=["task1"])
    run("add", "continual-state", written(tmp_path / "no.json", overclaimed), "--name", "no", code=3)
