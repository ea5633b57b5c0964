"""One whole chain of manifests, base to publication, that can be changed in one field at any place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import BaseManifest
from schemas.canonical import JsonObject, JsonValue
from schemas.composition import AdmissionManifest, CompositionManifest
from schemas.conversion import ConversionManifest
from schemas.decision import COMPONENTS, COORDINATES
from schemas.digests import Digest, manifest_digest, tensor_digest
from schemas.model import Manifest, validate
from schemas.publication import KvIdentity, PublicationManifest, StatementManifest

Change = Callable[[str, JsonObject], JsonObject]
Path = tuple[str | int, ...]

PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "base": (),
    "factor": ("base",),
    "adapter": ("base", "factor"),
    "sibling": ("base",),
    "admission": ("base", "adapter", "sibling"),
    "composition": ("base", "adapter", "sibling", "admission"),
    "conversion": ("base", "adapter"),
    "kv_identity": ("base", "composition"),
    "publication": ("composition", "kv_identity"),
    "statement": ("adapter",),
}
"""Which manifest names which."""


def descendants(node: str) -> set[str]:
    """Everything whose identity follows from this manifest's."""
    below = {child for child, parents in PARENTS.items() if node in parents}
    return below.union(*map(descendants, below))


def unchanged(_: str, document: JsonObject) -> JsonObject:
    """The chain as it is written here."""
    return document


def build(change: Change = unchanged) -> dict[str, Manifest]:
    """Every manifest of the chain, each document passing through `change` before it is validated."""

    def make(node: str, model: type[Manifest], document: JsonObject) -> Manifest:
        return validate(model, change(node, document))

    base = make("base", BaseManifest, base_document())
    factor = make("factor", FactorManifest, factor_document(base.digest, "layers.0.q_proj"))
    adapter = make("adapter", AdapterManifest, adapter_document(base.digest, factor))
    other = validate(FactorManifest, factor_document(base.digest, "layers.1.q_proj"))
    sibling = make("sibling", AdapterManifest, adapter_document(base.digest, other))
    parents: list[JsonValue] = [
        {"adapter": digest, "weight": weight}
        for digest, weight in sorted([(adapter.digest, 1.0), (sibling.digest, -0.5)])
    ]
    admission = make("admission", AdmissionManifest, admission_document(base.digest, parents))
    composition = make("composition", CompositionManifest, composition_document(base.digest, parents, admission.digest))
    kv_identity = make("kv_identity", KvIdentity, kv_document(base.digest, composition.digest))
    return {
        "base": base,
        "factor": factor,
        "adapter": adapter,
        "sibling": sibling,
        "admission": admission,
        "composition": composition,
        "conversion": make("conversion", ConversionManifest, conversion_document(base.digest, adapter.digest)),
        "kv_identity": kv_identity,
        "publication": make(
            "publication", PublicationManifest, publication_document(composition.digest, kv_identity.digest)
        ),
        "statement": make("statement", StatementManifest, statement_document(adapter.digest)),
    }


def digest_of(label: str) -> Digest:
    """A digest that stands for something outside the chain."""
    return manifest_digest("example", label.encode())


def tensor_document(label: str, *shape: int) -> JsonObject:
    """A float32 tensor by content."""
    return {"tensor": tensor_digest("F32", shape, label.encode()), "dtype": "F32", "shape": list(shape)}


def base_document() -> JsonObject:
    """A declared base, so that a changed weight needs no second digest beside it."""
    return {
        "kind": "base",
        "schema": 1,
        "weights": "not_verified",
        "weights_digest": "not_verified",
        "architecture": {
            "model_type": "bert",
            "hidden_size": 6,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "hidden_act": "gelu",
            "layer_norm_eps": 0.001,
            "max_position_embeddings": 64,
            "position_embedding_type": "absolute",
            "type_vocab_size": 2,
            "vocab_size": 100,
        },
        "tokenizer": {"digest": digest_of("tokenizer"), "length": 100},
        "quantizer": "none",
        "compute_contracts": "none",
    }


def factor_document(base: Digest, module: str) -> JsonObject:
    """A rank 2 pair on a square module."""
    return {
        "kind": "factor",
        "schema": 1,
        "base": base,
        "module": module,
        "expert": None,
        "map_head": None,
        "route_side": None,
        "a": tensor_document(f"{module} a", 2, 6),
        "b": tensor_document(f"{module} b", 6, 2),
        "order": "B@A",
        "rank": 2,
        "scale": {"alpha": 4.0, "rule": "alpha_over_r", "value": 2.0, "applied": "output"},
        "extra": {"bias": tensor_document("bias", 6)},
        "parent": None,
        "source": "lora",
    }


def adapter_document(base: Digest, factor: Manifest) -> JsonObject:
    """An adapter of one factor, with a head and a training field."""
    return {
        "kind": "adapter",
        "schema": 1,
        "base": base,
        "factors": [factor.document()],
        "family": "lora",
        "initializer": "none",
        "payload": "portable",
        "full_replacements": [{"name": "classifier.weight", "value": tensor_document("head", 2, 6)}],
        "training": {"stage": "single"},
    }


def admission_document(base: Digest, members: list[JsonValue]) -> JsonObject:
    """A conditional decision on a TIES merge, with one finding."""
    passes: JsonObject = {"status": "pass", "reason": "no_rule_objects", "evidence": "derived"}
    return {
        "kind": "admission",
        "schema": 1,
        "spec": {
            "base": base,
            "lane": "static_fusion",
            "members": members,
            "method": "ties",
            "alias": None,
            "space": "factor",
            "choices": choices_document(),
            "acknowledge": ["BASE_EVIDENCE_DECLARED"],
        },
        "rules": "rules/1",
        "decision": {
            "outcome": "conditional",
            "vector": dict.fromkeys(COORDINATES, passes),
            "predicates": dict.fromkeys(COMPONENTS, "pass"),
            "findings": [
                {
                    "code": "BASE_EVIDENCE_DECLARED",
                    "predicate": "B",
                    "coordinate": "evidence",
                    "severity": "condition",
                    "subject": base,
                    "path": ["weights_digest", 0],
                    "expected": "every weight hashed",
                    "observed": "not_verified",
                }
            ],
            "inputs": digest_of("inputs"),
        },
        "acknowledged": ["BASE_EVIDENCE_DECLARED"],
    }


def choices_document() -> JsonObject:
    """Every choice there is, so that each field of each can be changed."""
    return {
        "rank": 2,
        "ties": {
            "density": 0.5,
            "k_rule": "floor",
            "elect": "total",
            "values": "unweighted",
            "zero_sum": "zero",
            "reduce": "count",
        },
        "dare": {"density": 0.25, "seed": "18446744073709551615", "generator": "blake3_u32_stream/1"},
        "prune": {"density": 0.75, "k_rule": "round"},
        "svd": {"split": "b", "mode": "certified"},
        "dtype": {"work": "float64", "store": "float32"},
    }


def composition_document(base: Digest, members: list[JsonValue], admission: Digest) -> JsonObject:
    """What came of it."""
    return {
        "kind": "composition",
        "schema": 1,
        "admission": admission,
        "base": base,
        "lane": "static_fusion",
        "members": members,
        "method": "ties",
        "alias": "ties_svd",
        "space": "factor",
        "choices": choices_document(),
        "stochastic": {"generator": "blake3_u32_stream/1", "seed": "7", "density": 0.25},
        "operator": "ties/1",
        "representation": "factors_to_factors",
        "output": digest_of("output"),
        "modules": [
            {
                "module": "layers.0.q_proj",
                "input_ranks": [2, 2],
                "output_rank": 2,
                "retained": [18, 18],
                "masks": [{"adapter": digest_of("member"), "role": "a", "mask": digest_of("mask"), "retained": 9}],
            }
        ],
        "oracle_reports": [digest_of("report")],
        "claims": {
            "training_reproduced": False,
            "checkpoint": False,
            "autograd": False,
            "gpu_kernel": False,
            "scheduler": False,
            "latency": False,
            "throughput": False,
            "quality": digest_of("evaluation"),
            "benchmark": False,
            "ranking": False,
        },
    }


def conversion_document(base: Digest, parent: Digest) -> JsonObject:
    """A cast, with a value in every field."""
    return {
        "kind": "conversion",
        "schema": 1,
        "parent": parent,
        "initial": digest_of("initial snapshot"),
        "base": base,
        "rule": "cast",
        "operator": "cast/1",
        "store": "F32",
        "acknowledged": ["BASE_EVIDENCE_DECLARED"],
        "output": digest_of("converted"),
    }


def kv_document(base: Digest, composition: Digest) -> JsonObject:
    """The cache identity of generation 43."""
    return {
        "kind": "kv_identity",
        "schema": 1,
        "base": base,
        "weight_transforms": [composition],
        "router_revision": "none",
        "route_policy": "none",
        "threshold": "none",
        "comparator": "none",
        "position_contract": "not_verified",
        "cache_abi": "not_verified",
        "numerical_contract": "not_verified",
        "channel": "support-bot",
        "generation": 43,
    }


def publication_document(composition: Digest, kv_identity: Digest) -> JsonObject:
    """Generation 43, which restores 41."""
    return {
        "kind": "publication",
        "schema": 1,
        "channel": "support-bot",
        "generation": 43,
        "artifacts": [composition],
        "previous": digest_of("generation 42"),
        "reason": "rollback",
        "restored": 41,
        "kv_identity": kv_identity,
    }


def statement_document(subject: Digest) -> JsonObject:
    """A statement whose body holds a value of each type."""
    return {
        "kind": "statement",
        "schema": 1,
        "topic": "provenance",
        "subject": subject,
        "body": {"epochs": 3, "loss": 0.5, "merged": False, "producer": "trainer", "targets": ["q", "v"], "url": None},
        "author": "importer",
        "previous": digest_of("earlier statement"),
    }


def leaves(value: JsonValue, path: Path = ()) -> Iterator[Path]:
    """The path of every value that is not a container."""
    steps: Iterator[tuple[str | int, JsonValue]]
    if isinstance(value, dict):
        steps = iter(value.items())
    elif isinstance(value, list):
        steps = iter(enumerate(value))
    else:
        yield path
        return
    for step, inner in steps:
        yield from leaves(inner, (*path, step))


def replaced(value: JsonValue, path: Path, put: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """The document with the value at one path replaced."""
    if not path:
        return put(value)
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {key: replaced(inner, rest, put) if key == step else inner for key, inner in value.items()}
    assert isinstance(value, list)
    return [replaced(inner, rest, put) if index == step else inner for index, inner in enumerate(value)]


def value_at(value: JsonValue, path: Path) -> JsonValue:
    """The value at a path."""
    for step in path:
        if isinstance(value, dict):
            value = value[str(step)]
        else:
            assert isinstance(value, list)
            assert isinstance(step, int)
            value = value[step]
    return value
