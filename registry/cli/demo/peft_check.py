"""Does the exported adapter compute base + the weighted sum of its members' deltas? (torch, transformers and PEFT)

Run as `python -m registry.cli.demo.peft_check EXPORT MODEL ADAPTER=WEIGHT…`. The reference reads the members' own files
and configuration, and shares no code with the registry.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from registry.cli.demo.steps import Term

TOLERANCE: Final = 1e-5
SENTENCES: Final = ["How do I reset my password?", "The invoice of March is missing.", "A list is a mutable sequence."]


def relative_error(export: Path, base: Path, terms: Sequence[Term]) -> float:
    """||PEFT(export) - (base + sum w s B A)|| / ||reference|| over last hidden states, float32."""
    torch.set_num_threads(2)
    logging.disable_progress_bar()
    tokens = AutoTokenizer.from_pretrained(base)(SENTENCES, padding=True, return_tensors="pt")
    reference = AutoModel.from_pretrained(base, dtype=torch.float32).eval()
    for term in terms:
        _add(reference, term)
    served = PeftModel.from_pretrained(AutoModel.from_pretrained(base, dtype=torch.float32), export).eval()
    with torch.inference_mode():
        expected = reference(**tokens).last_hidden_state
        found = served(**tokens).last_hidden_state
    return float((found - expected).norm() / expected.norm())


def _add(model: torch.nn.Module, term: Term) -> None:
    """W += w s B A in float64, straight from the member's files."""
    config = json.loads((term.directory / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = load_file(term.directory / "adapter_model.safetensors")
    weights = dict(model.named_parameters())
    for key, a in tensors.items():
        if ".lora_A." not in key:
            continue
        module = key.removeprefix("base_model.model.").split(".lora_A.")[0]
        b = tensors[key.replace(".lora_A.", ".lora_B.")]
        alpha = _pattern(config["alpha_pattern"], module, config["lora_alpha"])
        scale = alpha / (math.sqrt(a.shape[0]) if config["use_rslora"] else a.shape[0])
        weight = weights[f"{module}.weight"]
        with torch.no_grad():
            weight.copy_(weight.double() + term.weight * scale * (b.double() @ a.double()))


def _pattern(patterns: dict[str, float], module: str, default: float) -> float:
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def main(arguments: Sequence[str]) -> int:
    """Print the error and fail above the tolerance."""
    export, base, *members = arguments
    terms = [Term(Path(path), float(weight)) for path, _, weight in (member.rpartition("=") for member in members)]
    error = relative_error(Path(export), Path(base), terms)
    verdict = "equal" if error <= TOLERANCE else "DIFFERENT"
    sys.stdout.write(f"last hidden state: {verdict} within {TOLERANCE:g} relative (error {error:.2e})\n")
    return 0 if error <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
