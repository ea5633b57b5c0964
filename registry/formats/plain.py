"""Write a plain LoRA directory: what a reader of alpha / r alone understands (interfaces of vLLM, SGLang, LoRAX)."""

from __future__ import annotations

from pathlib import Path

from registry.formats.peft.names import factor_tensors, names_of
from registry.formats.peft.write import plain_config, write_directory
from registry.formats.safetensors_write import ReadTensor
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest


def write_plain(
    directory: Path, adapter: AdapterManifest, base: BaseManifest, read_tensor: ReadTensor, *, base_name: str
) -> tuple[Path, ...]:
    """Write the output of the rule `plain_lora`: one r, alpha = r, leaf names as targets, nothing else switched on.

    Raises:
        DigestMismatchError: `TENSOR_DIGEST_MISMATCH`.
    """
    (rank,) = {factor.rank for factor in adapter.factors}
    assert all(factor.scale.value == 1.0 and not factor.extra for factor in adapter.factors), "the scale is baked"
    names = names_of(adapter, base)
    targets = sorted({factor.module.rpartition(".")[2] for factor in adapter.factors})
    config = plain_config(rank, rank, targets) | {
        "base_model_name_or_path": base_name,
        "fan_in_fan_out": any(names.kind(factor) == "conv1d" for factor in adapter.factors),
    }
    tensors = dict(item for factor in adapter.factors for item in factor_tensors(factor, names))
    return write_directory(directory, config, tensors, read_tensor)
