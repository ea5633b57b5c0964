"""Ten substitutions of the variants family: same keys and shapes, both load, and one of the two is refused."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from registry.db import tensors
from registry.errors import RefusedError, StaleHeadError
from registry.service import add, publish, verify
from registry.service.context import Context
from schemas.adapter import ScaleRule, make_scale
from schemas.digests import Digest
from tests.substitutions.conftest import QUERY, alone, ask, put, refusals, shapes
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor
from validators import CODES
from validators.rules.training import frozen_a

BASES = Path(__file__).parents[1] / "data" / "bases"
MODULE = "model.layers.0.self_attn.q_proj"
CODED = f"{MODULE}.weight"
SCALE = make_scale(4.0, "alpha_over_r", 2)

Tensors = dict[str, torch.Tensor]


def rebuilt(folder: Path, base: str, changed: dict[str, torch.Tensor]) -> Path:
    """A packed base of the same keys, dtypes and shapes, some tensors of which hold other values."""
    copytree(BASES / base, folder)
    held = load_file(folder / "model.safetensors")
    for name, value in changed.items():
        assert (held[name].shape, held[name].dtype) == (value.shape, value.dtype)
        assert not torch.equal(held[name], value)
    save_file(held | changed, folder / "model.safetensors", {"format": "pt"})
    return folder


def packed(base: str) -> Tensors:
    return load_file(BASES / base / "model.safetensors")


def on_packed(folder: Path, **config: Any) -> Path:
    """A rank 2 adapter on one packed projection of 32 x 32."""
    draw = np.random.default_rng(3)
    key = f"base_model.model.{MODULE}"
    factors = {
        f"{key}.lora_A.weight": draw.normal(size=(2, 32)).astype(np.float32),
        f"{key}.lora_B.weight": draw.normal(size=(32, 2)).astype(np.float32),
    }
    return tiny.write_adapter(folder, tensors=factors, target_modules=["q_proj"], **config)


@pytest.mark.parametrize("table", ["quant_map", "nested_quant_map"])
def test_a_packed_base_of_another_codebook_or_nesting_of_scales(context: Context, tmp_path: Path, table: str) -> None:
    tables = {name: value.flip(0) for name, value in packed("nf4").items() if name.endswith(f".weight.{table}")}
    assert tables
    add.add_base(context, BASES / "nf4", "mine")
    add.add_base(context, rebuilt(tmp_path / "other", "nf4", tables), "other")
    add.add_adapter(context, on_packed(tmp_path / "adapter"), "mine", "adapter")
    assert alone(context, "adapter", base="mine").outcome == "admitted"
    assert "QUANTIZER_ABI_DIFFERS" in refusals(alone(context, "adapter", base="other"))


def test_triplets_without_the_allocator_state_at_a_resume_in_mid_schedule(context: Context) -> None:
    factor = random_factor(1, 2, make_scale(2.0, "explicit", 1))
    values = {"E": np.ones((2, 1), np.float32)}
    averages = {role: np.zeros((2, 1), np.float32) for role in ("importance", "uncertainty")}
    whole = put(context, "whole", Factor(factor.a, factor.b, factor.scale, values | averages), family="adalora",
                payload="resume")  # fmt: skip
    bare = put(context, "bare", Factor(factor.a, factor.b, factor.scale, values), family="adalora", payload="resume")
    assert shapes(context, whole)[QUERY][:3] == shapes(context, bare)[QUERY]
    code = "ALLOCATOR_STATE_MISSING"
    assert code not in refusals(alone(context, "whole"))
    assert code in refusals(alone(context, "bare"))


def test_a_changed_rank_under_a_stale_alpha(context: Context, tmp_path: Path) -> None:
    halved = {key: value[:2] if "lora_A" in key else value[:, :2] for key, value in tiny.factors(1, 4).items()}
    told = tiny.write_adapter(tmp_path / "told", tensors=halved, r=2, lora_alpha=4)
    stale = tiny.write_adapter(tmp_path / "stale", tensors=halved, r=4, lora_alpha=8)
    assert add.add_adapter(context, told, "tiny", "told").created
    with pytest.raises(RefusedError) as refused:
        add.add_adapter(context, stale, "tiny", "stale")
    assert {problem.code for problem in refused.value.problems} == {"RANK_MISMATCH"}


def test_a_stale_exponent_of_the_rank(context: Context) -> None:
    factor = random_factor(1, 4)
    rules: tuple[tuple[ScaleRule, set[str]], ...] = (
        ("alpha_over_sqrt_r", set()),
        ("alpha_over_r", {"SCALE_INCONSISTENT"}),
    )
    for rule, expected in rules:
        put(context, rule, Factor(factor.a, factor.b, make_scale(8.0, rule, 4)), family="rslora")
        assert refusals(alone(context, rule)) == expected


def test_equal_learning_rates_under_a_method_of_two(context: Context) -> None:
    factor = random_factor(1, 2, SCALE)
    for name, ratio, expected in (("right", "16", set()), ("equal", "1.0", {"RATES_EQUAL"})):
        training = {"rate_ratio": ratio, "group_classifier": "peft_0_19_1"}
        put(context, name, factor, family="lora_plus", training=training)
        assert refusals(alone(context, name)) == expected


def test_a_valid_b_without_its_frozen_a(context: Context, tmp_path: Path) -> None:
    only_b = {key: value for key, value in tiny.factors(1).items() if "lora_B" in key}
    with pytest.raises(RefusedError) as refused:
        add.add_adapter(context, tiny.write_adapter(tmp_path / "b", tensors=only_b), "tiny", "b")
    assert {problem.code for problem in refused.value.problems} == {"FACTOR_UNPAIRED"}


def test_a_valid_b_over_the_frozen_a_of_another_base(context: Context) -> None:
    mine, other = random_factor(1, 2, SCALE), random_factor(2, 2, SCALE)
    stated = {"correction_scale_rule": "alpha_over_r", "frozen_a": frozen_a(put(context, "plain", mine))}
    right = put(context, "right", mine, family="lora_fa", training=stated)
    wrong = put(context, "wrong", Factor(other.a, mine.b, SCALE), family="lora_fa", training=stated)
    assert shapes(context, right) == shapes(context, wrong)
    assert alone(context, "right").outcome == "admitted"
    assert refusals(alone(context, "wrong")) == {"FROZEN_A_DIFFERS"}


def test_native_factors_of_rank_r_labelled_portable(context: Context) -> None:
    factor = random_factor(1, 2, SCALE)
    code = "NATIVE_LABELLED_PORTABLE"
    native = put(context, "native", factor, family="pissa", initializer="pissa", payload="native")
    labelled = put(context, "labelled", factor, family="pissa", initializer="pissa")
    assert shapes(context, native) == shapes(context, labelled)
    assert refusals(alone(context, "native")) == {"INITIALIZER_MUTATES_BASE", "PAYLOAD_NOT_PORTABLE"}
    assert refusals(alone(context, "labelled")) == {"INITIALIZER_MUTATES_BASE", code}


def test_an_adapter_paired_with_another_alternating_step_of_its_base(context: Context, tmp_path: Path) -> None:
    """Codes of another step: the same codebook and scales, other rounding of the same weight."""
    codes = packed("nf4")[CODED]
    add.add_base(context, BASES / "nf4", "step-one")
    add.add_base(context, rebuilt(tmp_path / "two", "nf4", {CODED: codes ^ 1}), "step-two")
    adapter = on_packed(tmp_path / "loftq", init_lora_weights="loftq", loftq_config={"loftq_bits": 4})
    add.add_adapter(context, adapter, "step-one", "loftq")
    code = "COUPLED_BASE_DIFFERS"
    assert code not in refusals(alone(context, "loftq", base="step-one"))
    assert code in refusals(alone(context, "loftq", base="step-two"))


def test_a_magnitude_vector_of_the_other_axis(context: Context, tmp_path: Path) -> None:
    module = "encoder.layer.0.intermediate.dense"
    key = f"base_model.model.{module}"
    for name, length in (("rows", 16), ("columns", tiny.HIDDEN)):
        arrays = {
            f"{key}.lora_A.weight": np.ones((2, tiny.HIDDEN), np.float32),
            f"{key}.lora_B.weight": np.ones((16, 2), np.float32),
            f"{key}.lora_magnitude_vector": np.ones((length,), np.float32),
        }
        directory = tiny.write_adapter(
            tmp_path / name, tensors=arrays, target_modules=["intermediate.dense"], use_dora=True
        )
        if name == "rows":
            assert add.add_adapter(context, directory, "tiny", name).created
            continue
        with pytest.raises(RefusedError) as refused:
            add.add_adapter(context, directory, "tiny", name)
        assert {problem.code for problem in refused.value.problems} == {"FACTOR_SHAPE"}
    a, b = np.ones((2, tiny.HIDDEN), np.float32), np.ones((16, 2), np.float32)
    columns = Factor(a, b, SCALE, {"magnitude": np.ones(tiny.HIDDEN, np.float32)}, {"source": "dora"})
    stored.put(context, "tiny", "stored", {module: columns}, family="dora")
    assert refusals(alone(context, "stored")) == {"DORA_NOT_ADDITIVE", "ROLE_SHAPE_MISMATCH"}


def test_a_magnitude_vector_of_another_direction_under_the_same_adapter(context: Context) -> None:
    """On a square module any vector fits; what is stored is told by its digest, and verification sees the exchange."""
    factor = random_factor(1, 2, SCALE)
    mine, other = np.ones(tiny.HIDDEN, np.float32), np.full(tiny.HIDDEN, 2.0, np.float32)
    right = put(context, "right", Factor(factor.a, factor.b, SCALE, {"magnitude": mine}), family="dora")
    wrong = put(context, "wrong", Factor(factor.a, factor.b, SCALE, {"magnitude": other}), family="dora")
    assert shapes(context, right) == shapes(context, wrong)
    assert right.digest != wrong.digest
    assert verify.verify(context, deep=True).clean
    _exchange(context, right.factors[0].extra["magnitude"].tensor, other.tobytes())
    faults = {fault.code for fault in verify.verify(context, deep=True).faults}
    assert "BLOB_DIGEST_MISMATCH" in faults


def _exchange(context: Context, tensor: Digest, data: bytes) -> None:
    """Overwrite a tensor where it lies."""
    with context.database.reading() as reader:
        (place,) = tensors.locations(reader, {tensor})[tensor]
    path = context.store.local_path(place.blob)
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[: place.offset] + data + whole[place.offset + place.length :])


def test_right_keys_on_another_revision_of_the_base(context: Context, tmp_path: Path) -> None:
    add.add_base(context, tiny.write_base(tmp_path / "later", tiny.base_tensors(seed=1)), "later")
    add.add_adapter(context, tiny.write_adapter(tmp_path / "one"), "tiny", "one")
    assert alone(context, "one").outcome == "admitted"
    assert refusals(alone(context, "one", base="later")) == {"BASE_WEIGHTS_DIFFER"}


def test_right_keys_on_a_slice_of_the_module(context: Context) -> None:
    whole = random_factor(1, 2, SCALE)
    put(context, "whole", whole)
    put(context, "slice", Factor(whole.a, whole.b[: tiny.HIDDEN // 2], SCALE))
    assert alone(context, "whole").outcome == "admitted"
    assert refusals(alone(context, "slice")) == {"TARGET_SHAPE_MISMATCH"}


def test_a_dense_sum_as_if_it_were_an_adapter(context: Context) -> None:
    for seed, name in enumerate(("one", "two")):
        put(context, name, random_factor(seed, 2, SCALE))
    both = {"one": 1.0, "two": 1.0}
    assert ask(context, both).outcome == "admitted"
    assert refusals(ask(context, both, method="dense_sum")) == {"METHOD_ONLY_DENSE_RELEASE"}


def test_a_base_that_arithmetic_unmerged_is_not_the_base(context: Context, tmp_path: Path) -> None:
    """Merged and subtracted in half precision: every key and shape is back, and some weights are not."""
    weights = tiny.base_tensors()
    directory = tiny.write_adapter(tmp_path / "one")
    add.add_adapter(context, directory, "tiny", "one")
    for module in tiny.MODULES:
        delta = tiny.delta(directory, module).astype(np.float16)
        merged = weights[f"{module}.weight"].astype(np.float16) + delta
        weights[f"{module}.weight"] = (merged - delta).astype(np.float32)
    add.add_base(context, tiny.write_base(tmp_path / "unmerged", weights), "unmerged")
    answer = alone(context, "one", base="unmerged")
    assert refusals(answer) == {"BASE_WEIGHTS_DIFFER"}
    assert answer.decision.refusals[0].observed.startswith("4 differ")


def test_a_release_from_a_generation_that_is_no_longer_live(context: Context) -> None:
    for seed, name in enumerate(("one", "two")):
        put(context, name, random_factor(seed, 2, SCALE))
    publish.publish(context, "bot", ["one"], expect=0)
    publish.publish(context, "bot", ["two"], expect=1)
    with pytest.raises(StaleHeadError) as stale:
        publish.publish(context, "bot", ["one"], expect=1)
    assert stale.value.code == "GENERATION_STALE"


def test_each_finding_of_the_family_has_a_code_and_a_repair_of_its_own() -> None:
    own = (
        "QUANTIZER_ABI_DIFFERS", "ALLOCATOR_STATE_MISSING", "SCALE_INCONSISTENT", "RATES_EQUAL", "FROZEN_A_DIFFERS",
        "NATIVE_LABELLED_PORTABLE", "COUPLED_BASE_DIFFERS", "ROLE_SHAPE_MISMATCH", "BASE_WEIGHTS_DIFFER",
        "TARGET_SHAPE_MISMATCH", "METHOD_ONLY_DENSE_RELEASE",
    )  # fmt: skip
    assert len({CODES[code].recovery for code in own}) == len(own)
    assert all(CODES[code].severity == "refuse" for code in own)


def test_the_packed_bases_differ_in_nothing_a_loader_looks_at(tmp_path: Path) -> None:
    codes = packed("nf4")[CODED]
    other = load_file(rebuilt(tmp_path / "two", "nf4", {CODED: codes ^ 1}) / "model.safetensors")
    mine = packed("nf4")
    assert {name: value.shape for name, value in mine.items()} == {name: value.shape for name, value in other.items()}
    config = (BASES / "nf4" / "config.json").read_text(encoding="utf-8")
    assert json.loads(config)["quantization_config"]["bnb_4bit_quant_type"] == "nf4"
