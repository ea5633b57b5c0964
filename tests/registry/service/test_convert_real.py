"""Converted adapters of real producers give the producer's own outputs on the original base (PEFT 0.21.2 runs live)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from registry.errors import RefusedError
from registry.service import add, export, look
from registry.service.context import Context
from registry.service.convert import convert
from registry.service.export import Form
from registry.service.wishes import Wish

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    # PEFT says so of every AdaLoRA adapter.
    pytest.mark.filterwarnings("ignore:The following rank_pattern keys did not match:RuntimeWarning"),
]
HEAD = "base_model.model.classifier.weight"
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def registry(context: Context, minilm: Path) -> Context:
    """A registry with the real base."""
    add.add_base(context, minilm, "minilm")
    return context


def logits(minilm: Path, adapter: Path) -> Tensor:
    """What PEFT computes with an adapter of three classes on fixed tokens, merged into the base."""
    torch.manual_seed(0)
    base = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=3)
    model = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().eval()
    tokens = (torch.arange(60).reshape(3, 20) * 131 + 999) % 30000
    with torch.no_grad():
        found: Tensor = model(input_ids=tokens).logits
    return found


def exported(context: Context, ref: str, out: Path) -> Path:
    export.export(context, ref, out, Form("minilm"))
    return out


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_converted_pissa_adapter_gives_the_trained_outputs_on_the_original_base(
    registry: Context, minilm: Path, adapters: Path, tmp_path: Path
) -> None:
    for name in ("raw", "init"):
        add.add_adapter(registry, adapters / f"minilm-pissa-{name}", "minilm", name)
    convert(registry, "raw", Wish("portable", "portable", initial="init"))
    ours = exported(registry, "portable", tmp_path / "out")
    # PEFT takes the start out of the base again before it loads the native factors.
    theirs = logits(minilm, adapters / "minilm-pissa-raw")
    assert torch.allclose(logits(minilm, ours), theirs, atol=5e-5)
    assert float(theirs.abs().max()) > 0.5
    # The trained head came along, which the producer's own conversion lost.
    assert (load_file(ours / WEIGHTS)[HEAD] == load_file(adapters / "minilm-pissa-raw" / WEIGHTS)[HEAD]).all()
    # Treated as a plain LoRA the native factors are another model.
    plain = tmp_path / "plain"
    plain.mkdir()
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        text = (adapters / "minilm-pissa-raw" / file).read_bytes().replace(b'"pissa"', b"true")
        (plain / file).write_bytes(text)
    assert float((logits(minilm, plain) - theirs).abs().max()) > 0.5


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_conversion_is_the_producers_own_where_that_kept_everything(
    registry: Context, adapters: Path, tmp_path: Path
) -> None:
    for name in ("raw", "init"):
        add.add_adapter(registry, adapters / f"minilm-pissa-{name}", "minilm", name)
    convert(registry, "raw", Wish("portable", "portable", initial="init"))
    ours = load_file(exported(registry, "portable", tmp_path / "out") / WEIGHTS)
    theirs = load_file(adapters / "minilm-pissa-converted" / WEIGHTS)
    for key in theirs:
        if key.endswith("lora_A.weight"):
            b = key.replace("lora_A", "lora_B")
            assert abs(ours[b] @ ours[key] - theirs[b] @ theirs[key]).max() < 1e-6
    # The producer's conversion has no head, although its configuration names one: it is no adapter of this task.
    with pytest.raises(RefusedError, match="SAVED_MODULE_MISSING"):
        add.add_adapter(registry, adapters / "minilm-pissa-converted", "minilm", "converted")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_compact_factors_give_adaloras_outputs(registry: Context, minilm: Path, adapters: Path, tmp_path: Path) -> None:
    add.add_adapter(registry, adapters / "minilm-adalora", "minilm", "ada")
    convert(registry, "ada", Wish("compact", "compact"))
    ours = exported(registry, "compact", tmp_path / "out")
    theirs = logits(minilm, adapters / "minilm-adalora")
    assert torch.allclose(logits(minilm, ours), theirs, atol=2e-6)
    assert look.show(registry, "compact").manifest["rule"] == "compact"
