"""PEFT directories of tiny random models, and what PEFT itself makes of them by loading and merging in float64.

Every case is seeded: a base is made and saved by transformers, an adapter of it by PEFT, its factors are filled with
random numbers, saved, loaded again onto the base in float64 and merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from peft import AdaLoraConfig, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertModel, GPT2Model, ViTModel

from tests.registry.formats.models import model

Arrays = dict[str, NDArray[np.float64]]
Config = Mapping[str, Any]
ROOT: Final = "base_model.model."


@dataclass(frozen=True)
class Case:
    """One directory: the base's model type, how it is loaded, PEFT's config, and what makes the case one of its own."""

    model_type: str
    config: Config
    loader: Any = AutoModelForCausalLM
    head: bool = True
    adaptive: bool = False
    model: Config = field(default_factory=dict)
    convert: bool = False
    prune: Mapping[str, list[bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """What a case wrote, and the parameters before and after PEFT's merge, by their names in memory."""

    base: Path
    adapter: Path
    before: Arrays
    after: Arrays


def make(case: Case, folder: Path) -> Made:
    """Write base and adapter of a case and merge them with PEFT."""
    base, adapter = folder / "base", folder / "adapter"
    tied = {"tie_word_embeddings": False} if case.head and case.loader is AutoModelForCausalLM else {}
    model(case.model_type, head=case.head, **{**tied, **case.model}).save_pretrained(base)
    torch.manual_seed(1)
    config = (AdaLoraConfig if case.adaptive else LoraConfig)(**case.config)
    wrapped = get_peft_model(_load(case, base), config)
    if case.convert:
        wrapped.peft_config["default"].init_lora_weights = True
        wrapped.save_pretrained(str(folder / "initial"))
        wrapped.peft_config["default"].init_lora_weights = case.config["init_lora_weights"]
    _fill(wrapped)
    if case.prune:
        _prune(wrapped, case.prune)
    initial = {"path_initial_model_for_weight_conversion": str(folder / "initial")} if case.convert else {}
    wrapped.save_pretrained(str(adapter), **initial)
    return Made(base, adapter, *_merged(case, base, adapter))


def _load(case: Case, base: Path) -> Any:
    return case.loader.from_pretrained(base, dtype=torch.float32)


def _fill(wrapped: Any) -> None:
    """Random numbers in everything that is trained; a magnitude stays near the norm it starts at."""
    draw = torch.Generator().manual_seed(2)
    for name, parameter in wrapped.named_parameters():
        if not parameter.requires_grad and "lora_" not in name:
            continue
        noise = torch.randn(parameter.shape, generator=draw)
        with torch.no_grad():
            if "magnitude" in name:
                parameter.mul_(1 + 0.3 * noise)
            else:
                parameter.copy_(parameter + 0.3 * noise)


def _prune(wrapped: Any, kept: Mapping[str, list[bool]]) -> None:
    """What AdaLoRA's allocator does at the end: masked singular values are zero, and the config names the rest."""
    pattern = {}
    for name, parameter in wrapped.named_parameters():
        leaf = next((leaf for leaf in kept if f"{leaf}.lora_E" in name), None)
        if leaf is not None:
            with torch.no_grad():
                parameter.mul_(torch.tensor(kept[leaf], dtype=parameter.dtype)[:, None])
            pattern[name.removeprefix(ROOT)] = kept[leaf]
    wrapped.peft_config["default"].rank_pattern = pattern


def _merged(case: Case, base: Path, adapter: Path) -> tuple[Arrays, Arrays]:
    """Parameters as they stand under the loaded adapter (a residual where it changes the base), and merged."""
    loaded = PeftModel.from_pretrained(_load(case, base), str(adapter)).double()
    before = {_name(name): _array(value) for name, value in loaded.state_dict().items() if _is_base(name)}
    after = {name: _array(value) for name, value in loaded.merge_and_unload().state_dict().items()}
    return before, after


def _is_base(name: str) -> bool:
    return not any(part in name for part in ("lora_", "modules_to_save", "ranknum", "trainable_tokens"))


def _name(name: str) -> str:
    plain = name.removeprefix(ROOT).replace(".base_layer", "").replace(".original_module", "")
    return plain.replace(".token_adapter", "")


def _array(value: torch.Tensor) -> NDArray[np.float64]:
    return value.detach().to(torch.float64).numpy().copy()


Q_AND_V: Final[Config] = {"target_modules": ["q_proj", "v_proj"], "r": 3, "lora_alpha": 5}
BERT_Q: Final[Config] = {"target_modules": ["query", "value"], "r": 2, "lora_alpha": 6}
GPT2_C: Final[Config] = {"target_modules": ["c_attn", "c_proj"], "r": 2, "lora_alpha": 3, "fan_in_fan_out": True}
CONV: Final[Config] = {"target_modules": ["projection"], "r": 2, "lora_alpha": 4}
BARE: Final[Any] = {"loader": BertModel, "head": False}
GPT2: Final[Any] = {"loader": GPT2Model, "head": False}
VIT: Final[Any] = {"loader": ViTModel, "head": False}
SEQ: Final[Config] = {**BERT_Q, "task_type": "SEQ_CLS"}
ADA: Final[Config] = {
    "target_modules": ["query", "value"],
    "init_r": 4,
    "target_r": 2,
    "lora_alpha": 6,
    "total_step": 9,
}
ADA_GPT2: Final[Config] = {**ADA, "target_modules": ["c_attn"], "fan_in_fan_out": True}
PRUNED: Final = {"query": [True, False, True, False], "value": [False, False, False, False]}

CASES: Final[Mapping[str, Case]] = {
    "lora": Case("llama", Q_AND_V),
    "lora-gaussian": Case("llama", {**Q_AND_V, "init_lora_weights": "gaussian"}),
    "lora-orthogonal": Case("llama", {**Q_AND_V, "r": 2, "init_lora_weights": "orthogonal"}),
    "lora-mica": Case("llama", {**Q_AND_V, "init_lora_weights": "mica"}),
    "lora-eva": Case("llama", {**Q_AND_V, "init_lora_weights": "eva"}),
    "lora-velora": Case("llama", {**Q_AND_V, "velora_config": {"num_groups": 2}}),
    "lora-negative-alpha": Case("llama", {**Q_AND_V, "lora_alpha": -3}),
    "rslora": Case("llama", {**Q_AND_V, "use_rslora": True}),
    "rslora-patterns": Case(
        "llama",
        {
            **Q_AND_V,
            "use_rslora": True,
            "rank_pattern": {r"layers\.0\..*q_proj": 1, "^model.layers.1.self_attn.v_proj": 4},
            "alpha_pattern": {"v_proj": 7},
        },
    ),
    "all-linear": Case("llama", {"target_modules": "all-linear", "r": 2, "lora_alpha": 4}),
    "all-linear-layers": Case("qwen2", {"target_modules": r".*\.1\..*_proj", "r": 2, "lora_alpha": 4}),
    "layers-to-transform": Case("mistral", {**Q_AND_V, "layers_to_transform": [1], "layers_pattern": "layers"}),
    "exclude": Case("gemma", {**Q_AND_V, "target_modules": "all-linear", "exclude_modules": ["mlp.up_proj"]}),
    "output": Case("llama", {**Q_AND_V, "target_modules": ["q_proj", "lm_head"]}),
    "embedding": Case("llama", {**Q_AND_V, "target_modules": ["embed_tokens", "q_proj"]}),
    "embedding-rslora": Case("llama", {**Q_AND_V, "target_modules": ["embed_tokens"], "use_rslora": True}),
    "token-rows": Case("llama", {**Q_AND_V, "trainable_token_indices": [7, 2, 19]}),
    "token-rows-named": Case("llama", {**Q_AND_V, "trainable_token_indices": {"embed_tokens": [0, 3]}}),
    "saved-output": Case("llama", {**Q_AND_V, "modules_to_save": ["lm_head"]}),
    "saved-norm": Case("llama", {**Q_AND_V, "modules_to_save": ["input_layernorm"]}),
    "dora": Case("llama", {**Q_AND_V, "use_dora": True}),
    "dora-rslora": Case("llama", {**Q_AND_V, "use_dora": True, "use_rslora": True, "rank_pattern": {"v_proj": 1}}),
    "dora-embedding": Case("llama", {**Q_AND_V, "target_modules": ["embed_tokens"], "use_dora": True}),
    "pissa-native": Case("llama", {**Q_AND_V, "init_lora_weights": "pissa"}),
    "pissa-native-rslora": Case("llama", {**Q_AND_V, "init_lora_weights": "pissa", "use_rslora": True}),
    "pissa-converted": Case("llama", {**Q_AND_V, "init_lora_weights": "pissa"}, convert=True),
    "olora-native": Case("llama", {**Q_AND_V, "init_lora_weights": "olora"}),
    "olora-converted": Case("llama", {**Q_AND_V, "init_lora_weights": "olora"}, convert=True),
    "pissa-dora": Case("llama", {**Q_AND_V, "init_lora_weights": "pissa", "use_dora": True}),
    "kasa": Case("llama", {**Q_AND_V, "kasa_config": {"beta": 1e-4, "gamma": 1e-3}}),
    "bert": Case("bert", BERT_Q, **BARE),
    "bert-lora-bias": Case("bert", {**BERT_Q, "lora_bias": True}, **BARE),
    "bert-bias-lora-only": Case("bert", {**BERT_Q, "bias": "lora_only"}, **BARE),
    "bert-bias-all": Case("bert", {**BERT_Q, "bias": "all"}, **BARE),
    "bert-word-table": Case("bert", {**BERT_Q, "target_modules": ["query", "word_embeddings"]}, **BARE),
    "bert-head-model": Case("bert", SEQ, loader=AutoModelForSequenceClassification, head=False),
    "adalora": Case("bert", ADA, adaptive=True, **BARE),
    "adalora-pruned": Case("bert", ADA, adaptive=True, prune=PRUNED, **BARE),
    "gpt2-conv1d": Case("gpt2", GPT2_C, **GPT2),
    "gpt2-conv1d-dora": Case("gpt2", {**GPT2_C, "use_dora": True}, **GPT2),
    "gpt2-conv1d-bias": Case("gpt2", {**GPT2_C, "lora_bias": True}, **GPT2),
    "gpt2-conv1d-adalora": Case("gpt2", ADA_GPT2, adaptive=True, **GPT2),
    "gpt2-positions": Case("gpt2", {**GPT2_C, "target_modules": ["wpe", "c_attn"]}, **GPT2),
    "vit-conv2d": Case("vit", CONV, **VIT),
    "vit-conv2d-dora": Case("vit", {**CONV, "use_dora": True}, **VIT),
    "vit-conv2d-bias": Case("vit", {**CONV, "lora_bias": True}, **VIT),
    "vit-all-linear": Case("vit", {"target_modules": "all-linear", "r": 2, "lora_alpha": 4}, **VIT),
    "experts-both": Case(
        "mixtral",
        {**Q_AND_V, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
    ),
    "experts-one": Case(
        "qwen3_moe", {"r": 2, "lora_alpha": 3, "target_modules": [], "target_parameters": ["experts.down_proj"]}
    ),
    "parameter-of-a-linear": Case(
        "llama", {"r": 2, "lora_alpha": 3, "target_modules": [], "target_parameters": ["mlp.up_proj.weight"]}
    ),
}  # fmt: skip
