"""What people ran into, cases 13, 22 to 24 and 29 to 31: converting, and handing out to servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from registry.errors import ConditionError, ConflictError, DigestMismatchError, RefusedError
from registry.service import add, convert, export, look, publish
from registry.service.context import Context
from registry.service.engines import EngineName
from registry.service.export import Form
from registry.service.wishes import Wish
from tests.cases.product import ONE_MODULE, QUERY, ROOT, WEIGHTS, ask, close, codes, merge, pair, register, spec
from tests.support import tiny
from tests.support.plain_reader import read_plain

PLAIN = Form("tiny", "plain-lora")
BASES = Path(__file__).parents[1] / "data" / "bases"
PROJECTION = "model.layers.0.self_attn.q_proj"


def principal(base: Path, rank: int = 2) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """PiSSA's start on `QUERY`: the largest singular directions of the base weight, at scale 1."""
    weight = load_file(base / "model.safetensors")[f"{QUERY}.weight"]
    u, s, vt = np.linalg.svd(weight)
    root = np.sqrt(s[:rank])
    return (root[:, None] * vt[:rank]).astype(np.float32), (u[:, :rank] * root).astype(np.float32)


def register_pissa(context: Context, base: Path, folder: Path) -> np.ndarray[Any, Any]:
    """A trained native adapter `raw` and its start `init`; the delta on the original base."""
    a0, b0 = principal(base)
    draw = np.random.default_rng(3)
    a, b = (x + 0.05 * draw.normal(size=x.shape).astype(np.float32) for x in (a0, b0))
    head = {f"{ROOT}classifier.weight": np.arange(2 * tiny.HIDDEN, dtype=np.float32).reshape(2, tiny.HIDDEN)}
    shared = {**ONE_MODULE, "lora_alpha": 2, "modules_to_save": ["classifier"]}
    register(context, base, folder, "raw", tensors=pair(QUERY, a, b) | head, init_lora_weights="pissa", **shared)
    register(context, base, folder, "init", tensors=pair(QUERY, a0, b0) | head, **shared)
    wide = [x.astype(np.float64) for x in (b, a, b0, a0)]
    delta: np.ndarray[Any, Any] = wide[0] @ wide[1] - wide[2] @ wide[3]
    return delta


def test_case_13_rounding_to_bfloat16_is_a_number(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path, "one")
    made = convert.convert(context, "one", Wish("cast", "half", store="BF16"))
    assert made.measurement is not None
    said: Any = made.measurement["total"]
    squares = 0.0
    for module in tiny.MODULES:
        tensors = load_file(tmp_path / "one" / WEIGHTS)
        a, b = (tensors[f"{ROOT}{module}.lora_{side}.weight"] for side in "AB")
        exact = b.astype(np.float64) @ a.astype(np.float64)
        squares += float(np.linalg.norm(bfloat16(b) @ bfloat16(a) - exact) ** 2)
    assert said["rounding"] == pytest.approx(squares**0.5, rel=1e-6)
    assert 1e-3 < said["rounding"] / said["norm"] < 1e-2


def bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to nearest, ties to even, by the bits of float32."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def test_case_22_native_factors_are_not_plain_lora_on_the_original_base(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    register_pissa(context, tiny_base, tmp_path)
    assert codes(ask(context, spec({"raw": 1.0})))
    for form, code in ((PLAIN, "NOT_PLAIN_LORA"), (Form("tiny"), "ADAPTER_NOT_PEFT")):
        with pytest.raises(RefusedError, match=code):
            export.export(context, "raw", tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


def test_case_22_after_conversion_the_delta_is_the_trained_one(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    expected = register_pissa(context, tiny_base, tmp_path)
    convert.convert(context, "raw", Wish("portable", "portable", initial="init"))
    # The model with the head keeps the bare one under a prefix.
    close(merge(context, tmp_path / "out", {"portable": 1.0})[f"bert.{QUERY}"], expected)


def test_case_22_the_initial_snapshot_is_noticed_although_its_flag_says_plain(
    context: Context, minilm: Path, adapters: Path
) -> None:
    add.add_base(context, minilm, "minilm")
    added = add.add_adapter(context, adapters / "minilm-pissa-init", "minilm", "init")
    assert added.notes["conditions"] == ["BASE_REPEATED"]
    # A sum would hold the principal part of the base twice: it waits for a word, and the word is kept.
    add.add_adapter(context, adapters / "qa-lora", "minilm", "qa")
    members: list[Any] = [{"ref": ref, "weight": 1.0} for ref in ("init", "qa")]
    asked: dict[str, Any] = {"name": "m", "base": "minilm", "method": "cat", "space": "delta", "members": members}
    answer = ask(context, asked)
    assert (answer.outcome, answer.acknowledged) == ("conditional", ())
    assert "SNAPSHOT_SUMMED" in {finding.code for finding in answer.decision.findings}
    assert ask(context, {**asked, "acknowledge": ["SNAPSHOT_SUMMED"]}).acknowledged == ("SNAPSHOT_SUMMED",)


def test_case_23_a_conversion_keeps_the_trained_head(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register_pissa(context, tiny_base, tmp_path)
    convert.convert(context, "raw", Wish("portable", "portable", initial="init"))
    export.export(context, "portable", tmp_path / "out", Form("tiny"))
    key = f"{ROOT}classifier.weight"
    (found,) = (value for name, value in load_file(tmp_path / "out" / WEIGHTS).items() if name.endswith(key[-17:]))
    assert found.tobytes() == load_file(tmp_path / "raw" / WEIGHTS)[key].tobytes()


def test_case_23_a_converted_directory_that_lost_its_head_is_refused(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    register_pissa(context, tiny_base, tmp_path)
    directory = tiny.write_adapter(tmp_path / "lost", modules_to_save=["classifier"])
    with pytest.raises(RefusedError, match="SAVED_MODULE_MISSING"):
        add.add_adapter(context, directory, "tiny", "lost")


def write_projection(directory: Path, seed: int) -> Path:
    """A rank-2 adapter of one projection of the tiny Llama."""
    draw = np.random.default_rng(seed)
    a, b = (draw.normal(size=shape).astype(np.float32) for shape in ((2, 32), (32, 2)))
    return tiny.write_adapter(directory, tensors=pair(PROJECTION, a, b), target_modules=["q_proj"])


def test_case_24_adapters_of_a_packed_and_the_float_base_meet_only_by_an_acknowledged_rebase(
    context: Context, tmp_path: Path
) -> None:
    for seed, base in enumerate(("float", "nf4"), 1):
        add.add_base(context, BASES / base, base)
        add.add_adapter(context, write_projection(tmp_path / base, seed), base, f"on-{base}")
    with pytest.raises(ConditionError, match="BASE_REPLACED"):
        convert.convert(context, "on-nf4", Wish("rebase", "moved", base="float"))
    accepted = frozenset({"BASE_REPLACED"})
    moved = convert.convert(context, "on-nf4", Wish("rebase", "moved", base="float", acknowledge=accepted))
    found = merge(context, tmp_path / "out", {"on-float": 1.0, "moved": 1.0}, base="float")
    expected = [tiny.delta(tmp_path / base, PROJECTION) for base in ("float", "nf4")]
    close(found[PROJECTION], expected[0] + expected[1])
    # What was accepted stays in the lineage of everything made of it.
    up = look.line(context, "merged", "up")
    assert moved.conversion in {node.digest for node in up.nodes}
    assert look.show(context, "moved").manifest["acknowledged"] == ["BASE_REPLACED"]


def test_case_13_baking_into_a_packed_base_in_place_is_refused(context: Context, tmp_path: Path) -> None:
    add.add_base(context, BASES / "nf4", "nf4")
    add.add_adapter(context, write_projection(tmp_path / "one", 1), "nf4", "one")
    with pytest.raises(RefusedError, match="NO_DENSE_RELEASE") as refused:
        export.export(context, "one", tmp_path / "out", Form("nf4", "dense"))
    assert ("base", "quantizer") in {problem.path for problem in refused.value.problems}
    assert not (tmp_path / "out").exists()


def test_case_29_engines_that_scale_by_alpha_over_r_get_the_scale_in_the_weights(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    rank = 4
    register(context, tiny_base, tmp_path, "one", rank=rank, use_rslora=True)
    export.export(context, "one", tmp_path / "peft", Form("tiny"))
    export.export(context, "one", tmp_path / "plain", PLAIN)
    found = read_plain(tmp_path / "plain")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = load_file(tmp_path / "peft" / WEIGHTS)
    for module in tiny.MODULES:
        expected = tiny.delta(tmp_path / "one", module)
        close(found[module], expected)
        # What such an engine makes of the config as it is: sqrt(r) too weak.
        a, b = (tensors[f"{ROOT}{module}.lora_{side}.weight"].astype(np.float64) for side in "AB")
        close(np.sqrt(rank) * (config["lora_alpha"] / config["r"]) * (b @ a), expected)


REFUSED: dict[str, tuple[dict[str, Any], tuple[EngineName, ...], str]] = {
    "DoRA": ({"use_dora": True}, ("vllm", "sglang", "lorax"), "DoRA"),
    "a head": ({"modules_to_save": ["classifier"]}, ("sglang", "lorax"), "modules_to_save"),
    "a bias": ({"bias": "all"}, ("vllm", "sglang", "lorax"), "a trained bias"),
    "native factors": ({"init_lora_weights": "pissa"}, ("vllm", "sglang", "lorax"), "native factors of pissa"),
    "a large rank": ({"rank": 17}, ("vllm",), "17"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_case_30_an_engines_limits_are_told_before_anything_is_written(
    context: Context, tiny_base: Path, tmp_path: Path, name: str
) -> None:
    config, engines, feature = REFUSED[name]
    fields = dict(config)
    rank = fields.pop("rank", 2)
    tensors = tiny.factors(1, rank)
    if "use_dora" in fields:
        tensors |= {
            f"{ROOT}{module}.lora_magnitude_vector": np.ones(tiny.HIDDEN, np.float32) for module in tiny.MODULES
        }
    if "modules_to_save" in fields:
        tensors[f"{ROOT}classifier.weight"] = np.ones((2, tiny.HIDDEN), np.float32)
    if "bias" in fields:
        tensors[f"{ROOT}{QUERY}.base_layer.bias"] = np.ones(tiny.HIDDEN, np.float32)
    register(context, tiny_base, tmp_path, "one", rank=rank, tensors=tensors, **fields)
    for engine in engines:
        with pytest.raises(RefusedError) as refused:
            export.export(context, "one", tmp_path / "out", Form("tiny", engine=engine))
        assert feature in {problem.observed for problem in refused.value.problems}
        assert all(problem.hint for problem in refused.value.problems)
    assert not (tmp_path / "out").exists()


def test_case_31_one_name_for_each_generation_and_content(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two"), 1):
        register(context, tiny_base, tmp_path, name, seed)
        publish.publish(context, "bot", [name])
    publish.rollback(context, "bot")
    names = []
    for number in (1, 2, 3):
        made = export.export(context, f"channel:bot@g{number}", tmp_path / "served", PLAIN, named=True)
        names.append(Path(made.directory).name)
    assert [name.partition("-")[0] for name in names] == ["bot@g1", "bot@g2", "bot@g3"]
    ends = [name.partition("-")[2] for name in names]
    assert ends[0] == ends[2] != ends[1]
    with pytest.raises(ConflictError, match="TARGET_EXISTS"):
        export.export(context, "channel:bot@g1", tmp_path / "served", PLAIN, named=True)


def test_case_35_a_half_written_export_never_has_its_name(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    added = register(context, tiny_base, tmp_path, "one")
    held = [path for path in (tmp_path / "registry" / "store").rglob("*") if path.is_file()]
    for path in held:
        if path.stat().st_size == (tmp_path / "one" / WEIGHTS).stat().st_size:
            # Another tensor of the same shape: found while writing, after the config is there.
            path.chmod(0o644)
            save_file(tiny.factors(8), path)
    with pytest.raises(DigestMismatchError, match="TENSOR_DIGEST_MISMATCH"):
        export.export(context, added.digest, tmp_path / "out", Form("tiny"))
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.glob(".out*")) == []
