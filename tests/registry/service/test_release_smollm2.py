"""A dense release of a real language model of 538 MB with an adapter trained on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from registry.db import Database, migrate
from registry.service import add, verify
from tests.support import smollm2
from tests.support.releasing import opened, released

pytestmark = [
    pytest.mark.long,
    # transformers 5 warns of a name that PEFT 0.21 asks for; PEFT of the config that an older PEFT wrote.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
ADAPTER: Final = Path(__file__).parents[2] / "data" / "adapters" / "smollm2-pydoc-lora"
SCALE: Final = 16 / 8
"""alpha / r of its config."""
TEXT: Final = "The with statement is used to wrap the execution of a block with methods"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The base directory."""
    folder = tmp_path_factory.mktemp("smollm2")
    yield smollm2.write_base(smollm2.fetch(folder), folder)
    shutil.rmtree(folder)


def test_logits_are_those_of_base_plus_delta_and_memory_stays_small(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out = f"sqlite:///{tmp_path / 'registry.db'}", tmp_path / "out"
    migrate.upgrade(url)
    with Database(url) as database:
        registry = opened(database, tmp_path / "store")
        add.add_base(registry, base, "base")
        add.add_adapter(registry, ADAPTER, "base", "pydoc")
    start = perf_counter()
    shutil.copytree(base, tmp_path / "copy")
    copied = perf_counter() - start
    seconds, peak = released(url, tmp_path / "store", "pydoc", out)
    with capsys.disabled():
        print(f"\ndense release of SmolLM2, {size_of(base) / 1e6:.0f} MB: cp {copied:.2f} s, ours {seconds:.2f} s, "
              f"ratio {seconds / copied:.1f} x, peak {peak / 2**20:.0f} MiB")  # fmt: skip
    assert peak < 2 * smollm2.LARGEST + 512 * 2**20
    exact = base_plus_delta(base)
    check_weights(exact, load_file(out / "model.safetensors"))
    check_logits(base, out, exact)
    with Database(url) as database:
        assert verify.verify(opened(database, tmp_path / "store"), deep=True).faults == ()


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def base_plus_delta(base: Path) -> dict[str, Tensor]:
    """``W + s B A`` of every adapted weight in float64, from the two files alone."""
    weights, factors = load_file(base / "model.safetensors"), load_file(ADAPTER / "adapter_model.safetensors")
    found = {}
    for key, a in factors.items():
        if key.endswith(".lora_A.weight"):
            module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            b = factors[key.replace("lora_A", "lora_B")]
            found[f"{module}.weight"] = weights[f"{module}.weight"].double() + SCALE * (b.double() @ a.double())
    return found


def check_weights(exact: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Every weight is the nearest float32: at most half a unit in the last of its 24 digits away."""
    assert len(exact) == 60
    for name, value in exact.items():
        assert found[name].dtype == torch.float32
        assert bool(((found[name].double() - value).abs() <= value.abs() * 2.0**-24 * (1 + 1e-9)).all())


def check_logits(base: Path, out: Path, exact: dict[str, Tensor]) -> None:
    """In float64 the release differs from base plus delta by what rounding the weights takes; in float32 from PEFT by
    what a float32 product does."""
    tokens = AutoTokenizer.from_pretrained(base)(TEXT, return_tensors="pt").input_ids
    found: Any = AutoModelForCausalLM.from_pretrained(out)
    wanted: Any = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        plain = wanted(tokens).logits
        adapted = PeftModel.from_pretrained(wanted, ADAPTER)(tokens).logits
        torch.testing.assert_close(found(tokens).logits, adapted, rtol=1e-4, atol=1e-3)
        double: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
        double.load_state_dict(exact, strict=False)
        distance = (found.double()(tokens).logits - double(tokens).logits).abs().max()
    assert distance < 1e-5 * (adapted - plain).abs().max()
