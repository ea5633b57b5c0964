"""Whether a router is whole and causal: predicate R, and what of B, F and E its manifest carries (R 0x01, 0x07)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from schemas.adapter import AdapterManifest
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path
from schemas.model import NONE, NOT_VERIFIED
from schemas.router import FeatureSource, Lifetime, RouterManifest
from validators.context import finding
from validators.routes import families, pools

_NEVER: Final[Mapping[FeatureSource, str]] = MappingProxyType(
    {
        "same_layer_output": "FEATURE_CIRCULAR",
        "future_tokens": "FEATURE_FROM_THE_FUTURE",
        "test_labels": "FEATURE_READS_TEST_LABELS",
        "training_label": "TRAINING_LABEL_AS_INPUT",
    }
)
_FEATURES: Final[Mapping[Lifetime, frozenset[FeatureSource]]] = MappingProxyType(
    {
        "task": frozenset({"task_examples", "metadata"}),
        "request": frozenset({"prompt_hidden", "metadata"}),
        "sequence": frozenset({"sequence_hidden", "prompt_hidden", "preceding_layer", "metadata"}),
        "instance": frozenset({"preceding_layer", "sequence_hidden", "metadata"}),
        "token": frozenset({"layer_input", "preceding_layer", "prior_pass", "branch_output", "metadata"}),
    }
)
"""What exists when a decision of each lifetime is needed (R 0x07G)."""
_PERSISTENCE: Final[Mapping[Lifetime, frozenset[str]]] = MappingProxyType(
    {
        "task": frozenset({"task_artifact"}),
        "request": frozenset({"request_state"}),
        "sequence": frozenset({"request_state", "recomputed"}),
        "instance": frozenset({"request_state", "recomputed"}),
        "token": frozenset({"none"}),
    }
)
_POOLED: Final = frozenset({"prompt_hidden", "sequence_hidden", "preceding_layer"})


def judge_router(router: RouterManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    """Everything wrong with a router over the adapters of its pool."""
    yield from pools.judge(router, adapters)
    yield from families.judge(router)
    yield from _extents(router)
    yield from _feature(router)
    yield from _pooling(router)
    yield from _gates(router)
    yield from _selection(router)
    yield from _execution(router)


def _extents(router: RouterManifest) -> Iterator[Finding]:
    """``L P J`` gate rows; positions follow the lifetime, of which they are no synonym."""
    gates = [item.value.shape for item in router.tensors.values() if item.role == "gate"]
    rows = sum(shape[0] if len(shape) > 1 else 1 for shape in gates)
    wanted = 0 if router.gates.activation == "uniform" else router.extents.entries(router.candidates)
    if rows != wanted:
        yield _found("GATE_ENTRIES_DIFFER", ("tensors",), f"{wanted} gate rows", str(rows))
    positions = "every" if router.lifetime == "token" else "one"
    if router.extents.positions != positions:
        path = ("extents", "positions")
        yield _found("LIFETIME_CALLED_PLACEMENT", path, f"{positions} for {router.lifetime}", router.extents.positions)


def _feature(router: RouterManifest) -> Iterator[Finding]:
    source, legal = router.feature_source, _FEATURES[router.lifetime]
    if source in _NEVER:
        yield _found(_NEVER[source], ("feature_source",), " or ".join(sorted(legal)), source)
    elif source not in legal:
        yield _found("FEATURE_OF_ANOTHER_LIFETIME", ("feature_source",), " or ".join(sorted(legal)), source)
    if router.label_role == "input":
        yield _found("TRAINING_LABEL_AS_INPUT", ("label_role",), "none or target", "input")


def _pooling(router: RouterManifest) -> Iterator[Finding]:
    """A sequence is pooled over its valid rows; a row and metadata are not pooled (R 0x07G.1)."""
    needed = router.lifetime != "token" and router.feature_source in _POOLED
    if needed == (router.pooling == NONE):
        expected = "a pooling" if needed else NONE
        yield _found("POOLING_UNDECLARED", ("pooling",), expected, router.pooling)
    elif needed and router.mask == NOT_VERIFIED:
        yield _found("MASK_NOT_VERIFIED", ("mask",), "valid_rows", router.mask)
    elif needed and router.mask != "valid_rows":
        yield _found("POOLING_READS_PADDING", ("mask",), "valid_rows", router.mask)
    kept = _PERSISTENCE[router.lifetime]
    if router.persistence not in kept:
        expected = " or ".join(sorted(kept))
        yield _found("PERSISTENCE_CONTRADICTS_LIFETIME", ("persistence",), expected, router.persistence)


def _gates(router: RouterManifest) -> Iterator[Finding]:
    normalization, path = router.gates.normalization, ("gates", "normalization")
    if normalization == "flattened_selected":
        yield _found("GATES_FLATTENED", path, "selected_row", normalization)
    if normalization == "selected_row" and router.selection.rule == "all":
        yield _found("GATES_CONTRADICT_SELECTION", path, "pool_row, since all take part", normalization)
    if router.gates.activation == "softmax" and normalization == NONE:
        yield _found("GATES_CONTRADICT_SELECTION", path, "pool_row or selected_row for a softmax", normalization)


def _selection(router: RouterManifest) -> Iterator[Finding]:
    chosen = router.selection
    wanted = {
        "k": chosen.rule == "top_k",
        "ties": chosen.rule == "top_k",
        "threshold": chosen.rule == "threshold",
        "comparator": chosen.rule == "threshold",
    }
    for name, needed in wanted.items():
        value = getattr(chosen, name)
        if needed == (value in (None, NONE)):
            expected = f"{name} for {chosen.rule}" if needed else f"no {name} for {chosen.rule}"
            yield _found("SELECTION_INCOMPLETE", ("selection", name), expected, str(value))
    if chosen.k is not None and chosen.k > router.candidates:
        yield _found("DEGREE_TOO_LARGE", ("selection", "k"), f"at most {router.candidates}", str(chosen.k))
    if chosen.ties == "random_stored" and router.randomness == NONE:
        yield _found("RANDOMNESS_NOT_KEPT", ("randomness",), "seeded or stored_noise", NONE)


def _execution(router: RouterManifest) -> Iterator[Finding]:
    """Weights never show what was left out (R 0x07J)."""
    if router.execution != "sparse":
        return
    if router.selection.rule == "all":
        yield _found("SOFTMAX_CALLED_SPARSE", ("execution",), "dense or not_verified", "sparse")
    elif router.trace in (NONE, NOT_VERIFIED):
        yield _found("SPARSE_WITHOUT_TRACE", ("trace",), "the digest of a trace", router.trace)


def _found(code: str, path: Path, expected: str, observed: str) -> Finding:
    return finding(code, "router", path, expected, observed)
