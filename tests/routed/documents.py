"""Documents as people write them by hand, legal as they stand, and one-field changes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from schemas.canonical import JsonObject, JsonValue
from schemas.compute import ComputeContractManifest, built_in
from schemas.continual import ContinualStateManifest
from schemas.digests import blob_digest
from schemas.evaluation import EvaluationManifest
from schemas.model import Manifest, validate
from schemas.release import CandidateManifest, ResolvedRouteManifest, TransactionManifest
from schemas.router import RouterManifest
from tests.schemas.chain import Path, replaced, value_at

PARAMETERS: dict[str, JsonObject] = {
    "moa_attention": {"experts": 3, "k": 2},
    "switchhead": {"experts": 3, "k": 2, "map_heads": 2},
    "mod_training": {"capacity": 3},
    "mod_decode": {"threshold": 0.0},
    "mode_staged": {"capacity": 2, "experts": 2, "k": 1},
    "mode_integrated": {"experts": 2, "no_ops": 1},
    "moe_llava": {
        "experts": 4,
        "k": 2,
        "capacity_factor": 1.5,
        "evaluation_capacity_factor": 2.0,
        "capacity_minimum": 3,
    },
}
"""Figures of the document's teaching configurations (C 0x02 to 0x07)."""


def contract(method: str, fields: JsonObject | None = None, /, **changes: Any) -> JsonObject:
    """A compute contract document with its method's fields, some of them replaced."""
    document: JsonObject = {
        "method": method,
        "contract": built_in()[method].document() | (fields or {}),
        "parameters": {**PARAMETERS[method], "routed_layers": [0, 1]},
    }
    return document | changes


def leaves(value: JsonValue, path: Path = ()) -> Iterator[Path]:
    """The path of every value, containers too, except the document itself."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from leaves(inner, (*path, step))


def alternatives(value: JsonValue) -> Iterator[JsonValue]:
    """Other values of the same look, other types, and nothing."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value) + 0.5)
    elif isinstance(value, float):
        yield from (value + 0.125, -value - 1.0)
    elif isinstance(value, str):
        yield from (f"{value}x", "not_verified", "none")
    elif isinstance(value, list):
        yield from (value[1:], [*value, *value[:1]], value[::-1])
    elif isinstance(value, dict):
        yield {key: inner for index, (key, inner) in enumerate(value.items()) if index}
        yield {**value, "note": "free text"}
    yield from (None, [], {}, 7, "other")


def tensor(label: str, *shape: int) -> JsonObject:
    """A tensor whose content is its label."""
    return {"tensor": blob_digest(label.encode()), "dtype": "F32", "shape": [*shape]}


def router(base: str, pool: list[JsonValue], /, **changes: Any) -> JsonObject:
    """A dense token router over one layer and matrix: softmax over the pool, read from the layer's input."""
    document: JsonObject = {
        "base": base,
        "family": "our_own",
        "tensors": {"gate.weight": {"role": "gate", "value": tensor("gate", len(pool), 6)}},
        "pool": pool,
        "topology": "independent",
        "extents": {"positions": "every", "layers": 1, "matrices": 1},
        "lifetime": "token",
        "persistence": "none",
        "selection": {"rule": "all"},
        "gates": {"activation": "softmax", "normalization": "pool_row", "gradient": "full", "dtype": "float32"},
        "feature_source": "layer_input",
        "pooling": "none",
        "mask": "none",
        "population": "valid_rows",
        "label_role": "none",
        "execution": "dense",
    }
    return document | changes


TOP_K: JsonObject = {
    "selection": {"rule": "top_k", "k": 2, "ties": "candidate_order"},
    "gates": {"activation": "softmax", "normalization": "selected_row", "gradient": "selected", "dtype": "float32"},
}
"""The two best candidates, their gates normalized over the two."""

REQUEST: JsonObject = {
    "extents": {"positions": "one", "layers": 1, "matrices": 1},
    "lifetime": "request",
    "persistence": "request_state",
    "feature_source": "prompt_hidden",
    "pooling": "mean",
    "mask": "valid_rows",
    "population": "requests",
}
"""One choice a prompt, kept for the request."""


def state(base: str, adapters: list[str], parents: list[str], /, **changes: Any) -> JsonObject:
    """The state after as many tasks as there are adapters, each on the same modules, in the cumulative lane."""
    names = [f"task{number}" for number in range(1, len(adapters) + 1)]
    tasks: list[JsonValue] = [
        {"task": name, "data": blob_digest(name.encode()), "adapter": adapter}
        for name, adapter in zip(names, adapters, strict=True)
    ]
    document: JsonObject = {
        "base": base,
        "lane": "olora_ordered",
        "tasks": tasks,
        "parents": [*parents],
        "selector": "none",
        "objective": {
            "regularizer": "squared_frobenius",
            "reduction": ["tasks", "modules"],
            "coefficients": {"overlap": 0.5},
        },
        "trainable": [names[-1]],
        "frozen": [*names[:-1]],
        "pair_map": {},
        "concatenation": "scale_in_blocks",
        "consolidation": {"kind": "kept_apart", "basis": "kept"},
        "orthogonality": "not_claimed",
        "evaluation": "not_verified",
    }
    return document | changes


MATRIX: JsonObject = {
    "metric": "accuracy",
    "scores": [[0.80, 0.25, 0.18], [0.72, 0.82, 0.25], [0.68, 0.78, 0.85]],
    "baseline": [0.10, 0.20, 0.15],
}
"""The teaching matrix (R 0x06K): ACC .770, BWT -.080, FWT +.075, forgetting .12 and .04."""


def candidate(base: str, *adapters: str) -> JsonObject:
    """A release state of two parts, as the registry writes it."""
    return {
        "admission": blob_digest(b"admission"),
        "base": base,
        "lane": "posthoc_routed",
        "router": blob_digest(b"router"),
        "state": "none",
        "adapters": [*adapters],
        "product": {"S": "none", **{name: blob_digest(name.encode()) for name in "BMTFC"}},
    }


def route(router_digest: str, adapters: list[str], /, **changes: Any) -> JsonObject:
    """One request's choice of two adapters at two layers."""
    chosen: list[JsonValue] = [
        {"adapter": adapter, "gate": gate} for adapter, gate in zip(adapters, (0.75, 0.25), strict=True)
    ]
    document: JsonObject = {
        "router": router_digest,
        "pooling": "none",
        "layers": [{"layer": 0, "chosen": chosen}, {"layer": 1, "chosen": chosen[::-1]}],
        "reconstruction": "none",
    }
    return document | changes


def transaction(candidate_digest: str, route_digest: str, /, **changes: Any) -> JsonObject:
    """A request bound to generation 41, with the slots and pointers of the document (R 0x09D)."""
    document: JsonObject = {
        "candidate": candidate_digest,
        "route": route_digest,
        "channel": "bot",
        "generation": 41,
        "execution": {
            "catalog_generation": 31,
            "plan_generation": 41,
            "slot_generations": [11, 12, 13],
            "pointer_generations": [21, 22, 23],
            "leases": ["lease-1"],
        },
        "kv_identity": blob_digest(b"kv identity"),
        "kv_route": route_digest,
    }
    return document | changes


WORKLOADS = ("domain_alpha", "base_retention", "unseen_transfer", "calibration", "safety")
QUALITIES: JsonObject = dict(zip(("target", "base", "unseen", "calibration", "safety"), WORKLOADS, strict=True))


def evaluation(means: dict[str, float], /, **changes: Any) -> JsonObject:
    """Candidates scored on every workload under four nuisance tuples that shift all of them alike.

    The first is the baseline of all others; the second is selected and tested.
    """
    baseline, selected = [*means][:2]
    cells: list[JsonValue] = [
        {
            "candidate": candidate,
            "workload": workload,
            "split": split,
            "nuisance": nuisance,
            "value": mean + 0.01 * nuisance,
        }
        for split in ("selection", "test")
        for candidate, mean in means.items()
        for workload in WORKLOADS
        for nuisance in range(4)
        if split == "selection" or candidate in (baseline, selected)
    ]
    document: JsonObject = {
        "design": {
            "candidates": [*means],
            "workloads": [*WORKLOADS],
            "nuisances": [
                {"init": f"i{n}", "data": f"d{n}", "route_tie": f"t{n}", "request_order": f"r{n}"} for n in range(4)
            ],
            **{split: blob_digest(split.encode()) for split in ("training", "route_validation", "selection", "test")},
        },
        "estimand": {"quality": "target", "direction": "higher"},
        "evaluator": "exact_match/1",
        "contrasts": [{"candidate": candidate, "baseline": baseline} for candidate in [*means][1:]],
        "qualities": QUALITIES,
        "margins": {"base": 0.01, "safety": 0.0},
        "selection_rule": "highest mean target on the selection split",
        "tie_break": "candidate order",
        "selected": selected,
        "cells": cells,
    }
    return document | changes


SCORES: list[JsonValue] = [[0.8, 0.25], [0.72, None]]


def stated() -> tuple[Manifest, ...]:
    """A legal manifest of each kind that is written by hand."""
    base, first, second = (blob_digest(label) for label in (b"base", b"first", b"second"))
    routed = router(base, [{"adapter": first}, {"adapter": second, "expert": 1}], **TOP_K)
    return (
        validate(ComputeContractManifest, contract("moa_attention", route_modules=["layers.0.router"])),
        validate(ComputeContractManifest, contract("moe_llava")),
        validate(RouterManifest, routed),
        validate(
            ContinualStateManifest,
            state(base, [first, second], [base], evaluation={**MATRIX, "scores": SCORES, "baseline": [0.1, 0.2]}),
        ),
        validate(CandidateManifest, candidate(base, first, second)),
        validate(ResolvedRouteManifest, route(blob_digest(b"router"), [first, second])),
        validate(EvaluationManifest, evaluation({first: 0.7175, second: 0.7575})),
        validate(TransactionManifest, transaction(blob_digest(b"candidate"), blob_digest(b"route"))),
    )


def mutations(document: JsonObject) -> Iterator[tuple[Path, JsonObject]]:
    """The document with one value changed, once for each place and each other value."""
    for path in leaves(document):
        here = value_at(document, path)
        for other in alternatives(here):
            if other != here or type(other) is not type(here):
                found = replaced(document, path, partial(_instead, other))
                assert isinstance(found, dict)
                yield path, found


def _instead(other: JsonValue, _: JsonValue) -> JsonValue:
    return other
