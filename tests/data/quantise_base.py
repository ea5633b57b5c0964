"""Make the tiny base of `bases/` and its quantised forms (bitsandbytes 0.50.2, accelerate 1.15.0, on the CPU).

Run from the repository root, with transformers, accelerate and bitsandbytes installed; no network, no GPU::

    python tests/data/quantise_base.py
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

OUTPUT = Path(__file__).parent / "bases"
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 48, "vocab_size": 40, "max_position_embeddings": 16,
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "int8": {"load_in_8bit": True},
}


def main() -> None:
    """Save the float base, then read and save it again in each form."""
    torch.manual_seed(20)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZES)).save_pretrained(OUTPUT / "float")
    for name, form in FORMS.items():
        config = BitsAndBytesConfig(**form)
        model = AutoModelForCausalLM.from_pretrained(
            OUTPUT / "float", quantization_config=config, device_map="cpu", dtype=torch.bfloat16
        )
        model.save_pretrained(OUTPUT / name)


if __name__ == "__main__":
    main()
