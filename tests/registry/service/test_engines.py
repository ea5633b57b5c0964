"""What each engine loads, as its own sources decide: vLLM 0.33.0, SGLang 0.5.23, LoRAX at 03679f3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.formats import read_base
from registry.service.engines import EngineName, engine_problems
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, make_scale, sorted_factors
from schemas.base import BaseManifest, TensorRef, WeightRef
from schemas.digests import tensor_digest
from tests.support import tiny
from tests.support.stored import ref

QUERY, KEY, VALUE = (f"encoder.layer.0.attention.self.{name}" for name in ("query", "key", "value"))
GROUP = (QUERY, KEY, VALUE)
EVERY = tuple(f"encoder.layer.{layer}.attention.self.{name}" for layer in (0, 1) for name in ("query", "key", "value"))
SCALE = make_scale(4.0, "alpha_over_r", 4)


@pytest.fixture(scope="module")
def base(tiny_base: Path) -> BaseManifest:
    """The tiny base's manifest."""
    return read_base(tiny_base).manifest


def array(*shape: int) -> TensorRef:
    return ref(np.ones(shape, np.float32))


def factor(base: BaseManifest, module: str, rank: int = 4, **fields: Any) -> FactorManifest:
    """A square factor with fields changed."""
    document: dict[str, Any] = {
        "base": base.digest, "module": module, "a": array(rank, tiny.HIDDEN), "b": array(tiny.HIDDEN, rank),
        "rank": rank, "scale": make_scale(float(rank), "alpha_over_r", rank), "source": "lora",
    }  # fmt: skip
    return FactorManifest(**(document | fields))


def adapter(base: BaseManifest, factors: list[FactorManifest], **fields: Any) -> AdapterManifest:
    return AdapterManifest(base=base.digest, factors=sorted_factors(factors), **({"family": "lora"} | fields))


def features(
    base: BaseManifest, made: AdapterManifest, engine: EngineName, limit: int | None = None, *, plain: bool = False
) -> list[str]:
    """What an engine objects to."""
    return [problem.observed for problem in engine_problems(made, base, engine, limit, plain=plain)]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lorax"])
def test_a_plain_adapter_of_whole_groups_in_every_layer_goes_everywhere(base: BaseManifest, engine: EngineName) -> None:
    assert features(base, adapter(base, [factor(base, module) for module in EVERY]), engine) == []


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lorax"])
@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"extra": {"magnitude": array(tiny.HIDDEN)}}, "DoRA"),
        ({"extra": {"bias": array(tiny.HIDDEN)}}, "a bias in lora_B"),
        ({"expert": 1}, "factors of experts"),
    ],
)
def test_what_no_engine_can_load_is_named(
    base: BaseManifest, engine: EngineName, change: dict[str, Any], feature: str
) -> None:
    made = adapter(base, [factor(base, module, **(change if module == QUERY else {})) for module in EVERY])
    assert features(base, made, engine, plain=True) == [feature]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lorax"])
def test_native_factors_are_refused_with_the_conversion_as_the_way_out(base: BaseManifest, engine: EngineName) -> None:
    made = adapter(base, [factor(base, module) for module in EVERY], initializer="pissa", payload="native")
    (problem,) = engine_problems(made, base, engine, None, plain=True)
    assert (problem.observed, "--to portable" in problem.hint) == ("native factors of pissa", True)


@pytest.mark.parametrize(
    ("engine", "head", "refused"),
    [
        ("vllm", "classifier.weight", False),
        ("vllm", "score.weight", False),
        ("vllm", "qa_outputs.weight", True),
        ("sglang", "classifier.weight", True),
        ("lorax", "classifier.weight", True),
    ],
)
def test_a_saved_module_is_loaded_by_vllm_as_a_classification_head_alone(
    base: BaseManifest, engine: EngineName, head: str, refused: bool
) -> None:
    saved = FullReplacement(name=head, value=array(3, tiny.HIDDEN))
    made = adapter(base, [factor(base, module) for module in EVERY], full_replacements=(saved,))
    assert features(base, made, engine) == (["modules_to_save"] if refused else [])


def test_a_trained_bias_is_refused_as_such(base: BaseManifest) -> None:
    saved = FullReplacement(name=f"{QUERY}.bias", value=array(tiny.HIDDEN))
    made = adapter(base, [factor(base, module) for module in EVERY], full_replacements=(saved,))
    assert features(base, made, "vllm") == ["a trained bias"]


@pytest.mark.parametrize(
    ("engine", "limit", "rank", "refused"),
    [
        ("vllm", None, 16, []),
        ("vllm", None, 32, ["32"]),
        ("vllm", 64, 64, []),
        ("vllm", 64, 65, ["65"]),
        ("vllm", 100, 64, ["100"]),
        ("sglang", None, 4096, []),
        ("sglang", 32, 33, ["33"]),
        ("lorax", 8, 9, ["9"]),
    ],
)
def test_a_rank_is_held_to_the_engines_limit(
    base: BaseManifest, engine: EngineName, limit: int | None, rank: int, refused: list[str]
) -> None:
    made = adapter(base, [factor(base, module, rank) for module in EVERY])
    problems = engine_problems(made, base, engine, limit, plain=False)
    assert [problem.observed for problem in problems] == refused
    assert {problem.code for problem in problems} <= {"ENGINE_RANK"}


def test_engines_that_read_alpha_over_r_alone_are_told_how_weak_it_would_be(base: BaseManifest) -> None:
    scale = make_scale(4.0, "alpha_over_sqrt_r", 4)
    made = adapter(base, [factor(base, module, scale=scale) for module in EVERY], family="rslora")
    assert features(base, made, "vllm") == []
    assert features(base, made, "lorax") == []
    assert features(base, made, "sglang") == ["rsLoRA, read as alpha / r and 2 times too weak"]
    assert features(base, made, "sglang", plain=True) == []


def test_patterns_are_read_by_vllm_alone(base: BaseManifest) -> None:
    made = adapter(base, [factor(base, module, 2 if module == QUERY else 4) for module in EVERY])
    assert features(base, made, "vllm") == []
    for engine in ("sglang", "lorax"):
        assert features(base, made, engine) == ["rank_pattern or alpha_pattern, which it does not read"]


def test_triplets_go_out_as_plain_lora_only(base: BaseManifest) -> None:
    scale = make_scale(2.0, "explicit", 4)
    made = adapter(base, [factor(base, module, scale=scale, extra={"E": array(4, 1)}) for module in EVERY])
    assert features(base, made, "vllm") == ["AdaLoRA's triplets"]
    assert features(base, made, "vllm", plain=True) == []


def test_a_part_of_a_fused_layer_needs_the_rest_in_sglang(base: BaseManifest) -> None:
    made = adapter(base, [factor(base, QUERY), factor(base, VALUE)])
    assert features(base, made, "sglang") == [KEY]
    assert features(base, made, "sglang", plain=True) == []
    assert features(base, made, "vllm") == []


def test_a_layer_type_needs_every_layer_in_lorax(base: BaseManifest) -> None:
    made = adapter(base, [factor(base, module) for module in GROUP])
    (found,) = features(base, made, "lorax")
    assert found == "layers without factors, encoder.layer.1.attention.self.key and 2 more"


def test_factors_of_a_table_are_loaded_by_all_but_lorax(base: BaseManifest) -> None:
    table = factor(
        base, "embeddings.word_embeddings", a=array(4, 32), b=array(tiny.HIDDEN, 4), order="(B@A)^T"
    )  # fmt: skip
    made = adapter(base, [table, *(factor(base, module) for module in EVERY)])
    assert [features(base, made, engine) for engine in ("vllm", "sglang")] == [[], []]
    assert features(base, made, "lorax") == ["factors of a layer of kind embedding"]


def test_a_convolution_is_loaded_by_none(base: BaseManifest) -> None:
    weight = tensor_digest("F32", (8, 4, 3, 3), bytes(8 * 4 * 9 * 4))
    assert isinstance(base.weights, dict)
    with_conv = base.model_copy(
        update={"weights": base.weights | {"conv.weight": WeightRef(tensor=weight, dtype="F32", shape=(8, 4, 3, 3))}}
    )
    conv = factor(with_conv, "conv", a=array(4, 4, 3, 3), b=array(8, 4, 1, 1))
    for engine in ("vllm", "sglang", "lorax"):
        assert features(with_conv, adapter(with_conv, [conv]), engine, plain=True) == [
            "factors of a layer of kind conv2d"
        ]
