"""mlx-lm's adapter_config.json: every argument of the training command, of which the loader reads three.

`fine_tune_type`, `num_layers` and `lora_parameters` decide the function (mlx-lm 0.32, `tuner/utils.py`,
`load_adapters`); the rest is how the training ran. Releases before 0.20 said `lora_layers` and `use_dora`, and
multiplied by `alpha / rank` where `lora_parameters` has an `alpha`: later releases load the same directory without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from registry.formats.directory import Directory
from registry.formats.fields import Fields
from registry.formats.readings import FileReading, Note
from registry.formats.report import refuse_all
from schemas.canonical import JsonObject

CONFIG: Final = "adapter_config.json"
LARGEST_RANK: Final = 2**31
_SEMANTIC: Final = frozenset({"fine_tune_type", "lora_layers", "lora_parameters", "num_layers", "use_dora"})
_PROVENANCE: Final = frozenset({"data", "iters", "learning_rate", "model", "optimizer", "seed", "train_mode"})
_RUN: Final = frozenset({
    "adapter_path", "batch_size", "clear_cache_threshold", "config", "grad_accumulation_steps", "grad_checkpoint",
    "hf_dataset", "lr_schedule", "mask_prompt", "max_seq_length", "optimizer_config", "project_name", "prompt_feature",
    "completion_feature", "report_to", "resume_adapter_file", "save_every", "steps_per_eval", "steps_per_report",
    "test", "test_batches", "train", "trust_remote_code", "val_batches", "wandb",
})  # fmt: skip
_PARAMETERS: Final = frozenset({"alpha", "dropout", "keys", "rank", "scale"})


@dataclass(frozen=True)
class MlxSettings:
    """What decides the function.

    Attributes:
        rank: of every pair.
        scale: the multiplier itself.
        dora: whether every module has a magnitude.
        blocks: how many of the last blocks are adapted; null for all.
        keys: names of the adapted modules, inside a block or whole; null where the config leaves them to the model.
    """

    rank: int
    scale: float
    dora: bool
    blocks: int | None
    keys: frozenset[str] | None


def is_config(document: JsonObject) -> bool:
    """Whether a config is mlx-lm's and not PEFT's."""
    return "lora_parameters" in document and "peft_type" not in document


def read_config(directory: Directory) -> tuple[MlxSettings, FileReading, dict[str, Note]]:
    """The settings, the file they stand in, and what it says beside the function.

    Raises:
        RefusedError: `CONFIG_FIELD_UNKNOWN`, `FEATURE_UNSUPPORTED`, `CONFIG_FIELD_MISSING`, `CONFIG_FIELD_TYPE`,
            `CONFIG_FIELD_VALUE`, `SCALE_AMBIGUOUS`, all at once.
    """
    document, reading = directory.read_object(CONFIG)
    fields = Fields(document, CONFIG)
    for key, value in document.items():
        if value and key not in _SEMANTIC | _PROVENANCE | _RUN:
            hint = "The field may change the function and is not understood; it cannot be dropped."
            fields.refuse("CONFIG_FIELD_UNKNOWN", key, "a field of mlx-lm", value, hint)
    settings = _settings(fields)
    refuse_all(fields.problems)
    return settings, reading, _notes(document)


def _settings(fields: Fields) -> MlxSettings:
    kind = fields.text("fine_tune_type", "dora" if fields.boolean("use_dora", False) else "lora")
    if kind not in {"lora", "dora"}:
        hint = "Whole fine-tuned weights are a base of their own: fuse them and register the result as a base."
        fields.refuse("FEATURE_UNSUPPORTED", "fine_tune_type", "lora or dora", kind, hint)
    inner = Fields(fields.table("lora_parameters"), CONFIG, "lora_parameters")
    for key, value in inner.document.items():
        if value and key not in _PARAMETERS:
            hint = "The field may change the function and is not understood; it cannot be dropped."
            inner.refuse("CONFIG_FIELD_UNKNOWN", key, "a field of lora_parameters", value, hint)
    rank, scale = inner.integer("rank"), inner.number("scale")
    if not 1 <= rank <= LARGEST_RANK:
        inner.refuse("CONFIG_FIELD_VALUE", "rank", f"a rank of 1 to {LARGEST_RANK}", rank)
    if "alpha" in inner.document and inner.number("alpha") != rank:
        hint = "Write the scale the adapter was trained with, scale * alpha / rank, as `scale` and remove `alpha`."
        expected = "no alpha, or one equal to rank"
        inner.refuse("SCALE_AMBIGUOUS", "alpha", expected, inner.document["alpha"], hint)
    keys = inner.texts("keys")
    blocks = fields.integer("num_layers", fields.integer("lora_layers", -1))
    fields.problems += inner.problems
    chosen = None if keys is None else frozenset((keys,) if isinstance(keys, str) else keys)
    return MlxSettings(rank, scale, kind == "dora", blocks if blocks > 0 else None, chosen)


def _notes(document: JsonObject) -> dict[str, Note]:
    notes: dict[str, Note] = {}
    for key in sorted(_PROVENANCE & document.keys()):
        value = document[key]
        notes["base_model_name_or_path" if key == "model" else key] = (
            value if isinstance(value, str | int | float | bool) else str(value)
        )
    return notes
