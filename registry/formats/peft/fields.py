"""adapter_config.json: every field of PEFT 0.21's LoraConfig and AdaLoraConfig and of their older forms, in one table.

A semantic field changes what the adapter computes; those this room does not implement must hold their neutral value.
Provenance is kept as a statement, ignorable fields say nothing about the result. A truthy field outside the table is
refused by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from registry.formats.fields import Fields
from registry.formats.report import shown
from schemas.canonical import JsonObject, JsonValue

CONFIG: Final = "adapter_config.json"
Kind = Literal["semantic", "provenance", "ignorable"]


@dataclass(frozen=True)
class FieldRule:
    """A field's class. `feature` names what a semantic field switches on and this room does not read; `neutral` are the
    values, besides null, false and empty, at which it is off."""

    kind: Kind
    feature: str | None = None
    neutral: tuple[JsonValue, ...] = ()


READ: Final = (
    "alora_invocation_tokens", "alpha_pattern", "bias", "exclude_modules", "fan_in_fan_out", "init_lora_weights",
    "kasa_config", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_bias", "modules_to_save", "peft_type",
    "peft_version", "qalora_group_size", "r", "rank_pattern", "target_modules", "target_parameters",
    "trainable_token_indices", "use_dora", "use_qalora", "use_rslora",
)  # fmt: skip
FEATURES: Final = {
    "arrow_config": "Arrow routing",
    "enable_lora": "a merged linear layer of PEFT 0.2",
    "layer_replication": "replicated layers",
    "megatron_config": "Megatron parallel layers",
    "monteclora_config": "Monte Carlo LoRA",
    "use_bdlora": "block-diagonal LoRA",
}
PROVENANCE: Final = (
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config", "loftq_config",
    "lora_dropout", "lora_ga_config", "revision", "task_type", "velora_config",
)  # fmt: skip
IGNORABLE: Final = ("inference_mode", "megatron_core", "merge_weights", "runtime_config")
ADALORA_READ: Final = ("init_r",)
ADALORA_PROVENANCE: Final = (
    "beta1", "beta2", "deltaT", "orth_reg_weight", "target_r", "tfinal", "tinit", "total_step",
)  # fmt: skip


def _rules() -> dict[str, FieldRule]:
    rules = {key: FieldRule("semantic") for key in (*READ, *ADALORA_READ)}
    rules |= {key: FieldRule("semantic", feature) for key, feature in FEATURES.items()}
    rules |= {key: FieldRule("provenance") for key in (*PROVENANCE, *ADALORA_PROVENANCE)}
    return rules | {key: FieldRule("ignorable") for key in IGNORABLE}


FIELDS: Final[Mapping[str, FieldRule]] = MappingProxyType(_rules())

METHODS: Final[Mapping[str, str]] = MappingProxyType({
    "adamss": "AdaMSS", "adaption_prompt": "Llama-Adapter prompts", "beft": "bias tuning",
    "boft": "butterfly rotations", "c3a": "C3A (circular convolutions)", "cartridge": "trained key-value prefixes",
    "cpt": "context-aware prompts", "deft": "DEFT projections", "delora": "DeLoRA (normalised rank-one terms)",
    "fourierft": "FourierFT (Fourier coefficients)", "frod": "FRoD", "glora": "GLoRA (generalised LoRA)",
    "gralora": "GraLoRA (block-wise pairs)", "hira": "HiRA (Hadamard product with the base weight)",
    "hra": "HRA (Householder reflections)", "ia3": "IA3 vectors", "lily": "LILY (shared pairs)",
    "ln_tuning": "trained layer norms", "loha": "LoHa (Hadamard products of pairs)",
    "lokr": "LoKr (Kronecker products)", "miss": "MiSS (shard sharing)",
    "multitask_prompt_tuning": "multitask prompts", "oft": "OFT rotations", "osf": "orthogonal subspaces",
    "peanut": "PEANuT networks", "poly": "Poly (skill mixtures)", "prefix_tuning": "prefix tuning",
    "prompt_tuning": "prompt tuning", "psoft": "PSOFT rotations", "pvera": "PVeRA (random pairs)",
    "p_tuning": "p-tuning", "randlora": "RandLora (random bases)", "road": "RoAd rotations", "shadow": "Shadow",
    "shira": "SHiRA (sparse entries)", "supertuning": "SuperTuning", "tinylora": "TinyLoRA",
    "trainable_tokens": "trained token rows alone", "unilora": "UniLoRA (one shared vector)",
    "vblora": "VB-LoRA (vector bank)", "vera": "VeRA (shared random pair)", "waveft": "wavelet coefficients",
    "xlora": "X-LoRA (gated mixture of adapters)",
})  # fmt: skip
"""PEFT's other methods by `peft_type` in small letters, named in the refusal: none is one pair of factors a module."""


def refuse_features(fields: Fields) -> None:
    """`CONFIG_FIELD_UNKNOWN` and `FEATURE_UNSUPPORTED`: nothing that is switched on is passed over."""
    for key, value in fields.document.items():
        rule = FIELDS.get(key)
        if rule is None and value:
            hint = "The field may change the function and is not understood; it cannot be dropped."
            fields.refuse("CONFIG_FIELD_UNKNOWN", key, "a field of LoraConfig", value, hint)
        elif rule is not None and rule.feature and value:
            hint = f"An adapter with {rule.feature} is not read; convert it to a plain LoRA first."
            fields.refuse("FEATURE_UNSUPPORTED", key, f"no {rule.feature}", value, hint)


def refuse_method(fields: Fields, method: str) -> None:
    """`METHOD_UNSUPPORTED`: another method than LoRA or AdaLoRA, by its name."""
    what = METHODS.get(method.lower(), "a method this version does not know")
    hint = f"An adapter of {what} is no pair of factors: convert it to LoRA where PEFT can (`convert_to_lora`)."
    fields.refuse("METHOD_UNSUPPORTED", "peft_type", "LORA or ADALORA", method, hint)


def provenance(document: JsonObject) -> dict[str, str | int | float | bool | tuple[str, ...] | None]:
    """What the config says that is not identity, in the values a statement can hold."""
    kept = [key for key, rule in FIELDS.items() if rule.kind == "provenance"]
    kept += ["init_lora_weights", "init_r", "peft_version", "target_modules"]
    return {key: _note(document[key]) for key in sorted(kept) if document.get(key) not in (None, {})}


def _note(value: JsonValue) -> str | int | float | bool | tuple[str, ...] | None:
    if isinstance(value, list):
        return tuple(sorted(str(item) for item in value))
    return shown(value) if isinstance(value, dict) else value
