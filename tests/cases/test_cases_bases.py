"""What people ran into, cases 24 and 26: packed bases beside float ones, and other packages of the same weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from registry.formats.hub import HubRef
from registry.service import add, hub, look
from registry.service.context import Context
from schemas.decision import Finding
from tests.cases.product import ask
from tests.registry.formats.models import model, save, saved
from tests.support import tiny
from tests.support.hub import Repository, running_hub

BASES: Final = Path(__file__).parents[1] / "data" / "bases"
MODULE: Final = "model.layers.0.self_attn.q_proj"


def write_adapter(directory: Path, seed: int) -> Path:
    """A rank-2 adapter of one projection of the tiny Llama."""
    random = np.random.default_rng(seed)
    key = f"base_model.model.{MODULE}"
    tensors = {
        f"{key}.lora_A.weight": random.standard_normal((2, 32), dtype=np.float32),
        f"{key}.lora_B.weight": random.standard_normal((32, 2), dtype=np.float32),
    }
    tiny.write_adapter(directory, seed, tensors=tensors, rank=2, target_modules=["q_proj"])
    return directory


def refusals(context: Context, base: str, members: tuple[str, ...]) -> dict[str, Finding]:
    listed: list[Any] = [{"ref": ref, "weight": 1.0} for ref in members]
    answer = ask(context, {"name": "m", "base": base, "method": "cat", "space": "delta", "members": listed})
    return {finding.code: finding for finding in answer.decision.refusals}


@pytest.mark.parametrize("packed", ["nf4", "fp4", "int8"])
def test_case_24_adapters_of_a_packed_and_of_the_float_base_do_not_meet(
    context: Context, tmp_path: Path, packed: str
) -> None:
    one, two = write_adapter(tmp_path / "one", 1), write_adapter(tmp_path / "two", 2)
    digests = set()
    for base in ("float", packed):
        add.add_base(context, BASES / base, base)
        digests.add(add.add_adapter(context, one, base, f"one-{base}").digest)
    add.add_adapter(context, two, packed, "two")
    assert len(digests) == 2
    found = refusals(context, "float", ("one-float", "two"))
    assert {"BASE_QUANTIZER_DIFFERS", "BASE_WEIGHTS_DIFFER"} <= found.keys()
    assert found["BASE_QUANTIZER_DIFFERS"].expected == "none"
    assert refusals(context, packed, (f"one-{packed}", "two")) == {}


def test_case_24_the_same_codes_under_another_codebook_are_another_base(context: Context, tmp_path: Path) -> None:
    other = shutil.copytree(BASES / "nf4", tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    for name in tensors:
        if name.endswith(".weight.quant_map"):
            tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, other / "model.safetensors")
    for seed, (name, directory) in enumerate({"nf4": BASES / "nf4", "other": other}.items()):
        add.add_base(context, directory, name)
        add.add_adapter(context, write_adapter(tmp_path / f"a{seed}", seed), name, f"on-{name}")
    found = refusals(context, "nf4", ("on-nf4", "on-other"))
    assert found["QUANTIZER_ABI_DIFFERS"].path == ("base", "quantizer", "codebook")


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "roberta"])
def test_case_26_two_packages_of_the_same_weights_are_one_base(
    context: Context, tmp_path: Path, model_type: str
) -> None:
    shards = save(model(model_type), tmp_path / "shards", max_shard_size=1200)
    assert len(list(shards.glob("*.safetensors"))) > 2
    one = add.add_base(context, saved(model_type), "one")
    two = add.add_base(context, shards, "two", store=True)
    assert (two.digest, two.created) == (one.digest, False)


def test_case_26_a_repository_of_a_hub_is_the_base_its_directory_is(context: Context, tmp_path: Path) -> None:
    stored = {path.name: path.read_bytes() for path in (BASES / "nf4").iterdir()}
    directory = write_adapter(tmp_path / "adapter", 3)
    adapter = {path.name: path.read_bytes() for path in directory.iterdir()}
    with running_hub({"o/nf4": Repository(stored, "b" * 40), "o/lora": Repository(adapter, "c" * 40)}) as found:
        fetched = hub.add_hub_base(context, HubRef("o/nf4", "main"), "fetched", endpoint=found.url)
        lora = hub.add_hub_adapter(context, HubRef("o/lora", None), "fetched", "lora", endpoint=found.url)
        again = hub.add_hub_base(context, HubRef("o/nf4", "main"), "fetched", endpoint=found.url)
    assert add.add_base(context, BASES / "nf4", "local").digest == fetched.digest == again.digest
    assert add.add_adapter(context, directory, "local", "same").digest == lora.digest
    (said,) = look.show(context, "fetched").statements
    origin = {"source": "hub", "repository": "o/nf4", "revision": "main", "commit": "b" * 40}
    assert said["body"] == origin
    bodies: list[Any] = [item["body"] for item in look.show(context, "lora").statements]
    assert bodies[-1]["commit"] == "c" * 40
