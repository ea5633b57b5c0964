"""model_config.yaml of a NeMo adapter: the whole training configuration, of which a few fields decide the function.

The multiplier is ``alpha / adapter_dim``, 1 where no alpha is given (NeMo 1.23, `ParallelLinearAdapter.forward`; its
merge script of that time leaves it out, which is a fault of the script and not the operator). Heads and query groups
say how the fused rows lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from registry.formats.directory import Directory
from registry.formats.fields import Fields
from registry.formats.readings import FileReading, Note
from registry.formats.report import refuse_all
from registry.formats.yaml_text import yaml_object

CONFIG: Final = "model_config.yaml"
LARGEST_YAML: Final = 128 * 2**10
LARGEST_COUNT: Final = 2**20
_TUNING: Final = frozenset({
    "a2a_experimental", "adapter_dim", "adapter_dropout", "alpha", "column_init_method", "dropout_position",
    "layer_selection", "position_embedding_strategy", "row_init_method", "target_modules", "variant",
})  # fmt: skip
_SETS: Final = {
    "attention_qkv": ("q_proj", "k_proj", "v_proj"),
    "attention_dense": ("o_proj",),
    "mlp_fc1": ("gate_proj", "up_proj"),
    "mlp_fc2": ("down_proj",),
}
_SETS_OF_SETS: Final = {
    "attention": ("attention_qkv", "attention_dense"),
    "mlp": ("mlp_fc1", "mlp_fc2"),
    "all": tuple(_SETS),
}


@dataclass(frozen=True)
class NemoSettings:
    """What decides the function.

    Attributes:
        rank: of every pair.
        alpha: the multiplier is alpha / rank.
        heads: attention heads of the base.
        groups: key and value heads of the base.
        head_dim: numbers a head holds.
        leaves: names of the adapted layers in a block, as the hub calls them.
        blocks: the adapted blocks from 0, null for all.
    """

    rank: int
    alpha: float
    heads: int
    groups: int
    head_dim: int
    leaves: frozenset[str]
    blocks: frozenset[int] | None


def read_config(directory: Directory) -> tuple[NemoSettings, FileReading, dict[str, Note]]:
    """The settings, the file they stand in, and what it says beside the function.

    Raises:
        RefusedError: `YAML_INVALID`, `METHOD_UNSUPPORTED`, `FEATURE_UNSUPPORTED`, `CONFIG_FIELD_*`.
    """
    data, reading = directory.read_file(CONFIG, LARGEST_YAML)
    fields = Fields(yaml_object(data, CONFIG), CONFIG)
    peft = Fields(fields.table("peft"), CONFIG, "peft")
    scheme = peft.text("peft_scheme", "lora")
    if scheme != "lora":
        hint = "Only LoRA is a pair of factors; train or export a LoRA adapter."
        peft.refuse("METHOD_UNSUPPORTED", "peft_scheme", "lora", scheme, hint)
    tuning = Fields(peft.table("lora_tuning"), CONFIG, "peft", "lora_tuning")
    settings = _settings(fields, tuning)
    refuse_all((*fields.problems, *peft.problems, *tuning.problems))
    notes: dict[str, Note] = {
        "variant": tuning.text("variant", "nemo"),
        "dropout": tuning.number("adapter_dropout", 0.0),
    }
    return settings, reading, notes


def _settings(fields: Fields, tuning: Fields) -> NemoSettings:
    for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size"):
        if fields.integer(key, 1) != 1:
            hint = "Join the ranks with NeMo's converter first (tensor and pipeline size 1)."
            fields.refuse("FEATURE_UNSUPPORTED", key, "1", fields.document[key], hint)
    for key, value in tuning.document.items():
        if value and key == "weight_tying":
            hint = "Tied adapters share their factors in a way the file does not say; train them untied."
            tuning.refuse("FEATURE_UNSUPPORTED", key, "no tied adapters", value, hint)
        elif value and key not in _TUNING:
            hint = "The field may change the function and is not understood; it cannot be dropped."
            tuning.refuse("CONFIG_FIELD_UNKNOWN", key, "a field of lora_tuning", value, hint)
    rank = _count(tuning, "adapter_dim", None)
    heads = _count(fields, "num_attention_heads", None)
    hidden = _count(fields, "hidden_size", None)
    return NemoSettings(
        rank=rank,
        alpha=tuning.number("alpha", float(rank)),
        heads=heads,
        groups=_count(fields, "num_query_groups", heads),
        head_dim=_count(fields, "kv_channels", max(hidden // heads, 1)),
        leaves=_leaves(tuning),
        blocks=_blocks(tuning),
    )


def _count(fields: Fields, key: str, default: int | None) -> int:
    """A positive number that fits a model; 1 where it is wrong, so that reading goes on."""
    value = fields.integer(key, default)
    if 1 <= value <= LARGEST_COUNT:
        return value
    fields.refuse("CONFIG_FIELD_VALUE", key, f"1 to {LARGEST_COUNT}", value)
    return 1


def _leaves(tuning: Fields) -> frozenset[str]:
    names = tuning.texts("target_modules") or ("attention_qkv",)
    found: set[str] = set()
    for name in (names,) if isinstance(names, str) else names:
        sets = _SETS_OF_SETS.get(name, (name,))
        if not set(sets) <= _SETS.keys():
            known = ", ".join((*_SETS, *_SETS_OF_SETS))
            tuning.refuse("CONFIG_FIELD_VALUE", "target_modules", f"some of {known}", name)
        found |= {leaf for part in sets for leaf in _SETS.get(part, ())}
    return frozenset(found)


def _blocks(tuning: Fields) -> frozenset[int] | None:
    """NeMo counts blocks from 1."""
    value = tuning.document.get("layer_selection")
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    numbers = frozenset(item - 1 for item in items if type(item) is int)
    if any(type(item) is not int for item in items):
        tuning.refuse("CONFIG_FIELD_TYPE", "layer_selection", "numbers of layers from 1", value)
    return numbers
