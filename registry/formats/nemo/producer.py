"""NeMo's tensors: ``linear_in [r, d_in]`` and ``linear_out [d_out, r]`` of an adapter layer, fused or one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from registry.formats.attention import Heads, heads_of
from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece, Targets
from registry.formats.nemo.config import CONFIG, NemoSettings, read_config
from registry.formats.nemo.fused import attention_rows, attention_size, gated_rows
from registry.formats.pairs import pair_problems
from registry.formats.rearrange import MADE, Arrangement, rows, write_arranged
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from registry.formats.single import single_tensor_file
from schemas.adapter import make_scale
from schemas.base import BaseManifest
from schemas.errors import Problem

_KEY: Final = re.compile(
    r"(?:model\.)?(?:module\.)?(?:decoder|language_model\.encoder)\.layers\.(?P<block>\d{1,6})"
    r"\.(?:self_attention|mlp)\.adapter_layer\.(?P<adapter>[a-z0-9_]+(?:\.[a-z]+_adapter)?)"
    r"\.(?P<role>linear_in|linear_out)\.weight"
)
_FUSED: Final = {
    "lora_kqv_adapter": "self_attn",
    "lora_hto4h_adapter": "mlp",
}
_SINGLE: Final = {
    "lora_unfused_kqv_adapter.q_adapter": "self_attn.q_proj",
    "lora_unfused_kqv_adapter.k_adapter": "self_attn.k_proj",
    "lora_unfused_kqv_adapter.v_adapter": "self_attn.v_proj",
    "lora_dense_attention_adapter": "self_attn.o_proj",
    "lora_unfused_hto4h_adapter.gate_adapter": "mlp.gate_proj",
    "lora_unfused_hto4h_adapter.up_adapter": "mlp.up_proj",
    "lora_4htoh_adapter": "mlp.down_proj",
}
_PARTS: Final = {
    "lora_kqv_adapter": tuple(name for name in _SINGLE if "kqv" in name),
    "lora_hto4h_adapter": tuple(name for name in _SINGLE if "hto4h_adapter." in name),
}
_ROLES: Final = {"linear_in": "a", "linear_out": "b"}
_NAMES: Final = {role: name for name, role in _ROLES.items()}
_BLOCK: Final = re.compile(r"(?:.*\.)?layers\.(?P<index>\d+)\.(?:self_attn|mlp)\.(?P<leaf>\w+)")
_NEXT: Final = re.compile(r".*\.adapter(?:_[a-z]+)?\.linear_(?:in|out)\.weight")
Pairs = dict[tuple[int, str], dict[str, TensorEntry]]


@dataclass(frozen=True)
class _Plan:
    """What must be written, and the factors in terms of stored or written tensors by name."""

    moves: tuple[Arrangement, ...]
    parts: Mapping[str, tuple[TensorEntry, TensorEntry | str]]


class Nemo:
    """The row of NeMo in the table of producers."""

    name = "NeMo"

    def recognises(self, directory: Directory) -> bool:
        """Its config, or an archive that holds one."""
        return CONFIG in directory.names or any(name.endswith(".nemo") for name in directory.names)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter with fused outputs taken apart; the inputs of their parts are one tensor.

        Raises:
            RefusedError: `PICKLE_REFUSED`, `KEY_UNKNOWN`, `KEY_UNSUPPORTED`, `KEY_REPEATED`, `FACTOR_SHAPE`, the
                problems of `pair_problems`, and what `read_config` refuses.
        """
        archives = sorted(name for name in directory.names if name.endswith(".nemo"))
        refuse_all(_archive(name) for name in archives)
        settings, config, notes = read_config(directory)
        weights = single_tensor_file(directory)
        pairs = _pairs(file_header(directory, weights).tensors)
        refuse_all(_problems(pairs, settings))
        plan = _plan(pairs, settings)
        made = write_arranged(directory, scratch, plan.moves) if plan.moves else {}
        scale = make_scale(settings.alpha, "alpha_over_r", settings.rank)
        pieces = tuple(
            Piece(module, {"a": a, "b": made[b] if isinstance(b, str) else b}, scale, "lora", settings.rank)
            for module, (a, b) in plan.parts.items()
        )
        draft = Draft(
            producer=self.name,
            pieces=pieces,
            files=(config,),
            weights=(weights,),
            family="lora",
            made=(MADE,) if made else (),
            notes=notes | {"renamed": "nemo_to_hub", "rearranged": "nemo_unfused" if made else "none"},
            targets=_targets(settings),
        )
        return replace(draft, bind=lambda base: _bound(draft, base, settings))


def _bound(draft: Draft, base: BaseManifest, settings: NemoSettings) -> Draft:
    """The config's heads must be the base's, or rows would be taken from the wrong places."""
    heads = heads_of(base)
    said = Heads(settings.heads, settings.groups, settings.head_dim)
    if heads is None:
        hint = "Register the adapter on the hub's release of its base, where query, key and value are separate layers."
        expected = "a base with separate query, key and value layers"
        found = problem("ARCHITECTURE_MISMATCH", (CONFIG,), expected, base.architecture.model_type, hint)
        return replace(draft, problems=(*draft.problems, found))
    if heads != said:
        hint = "The adapter was trained on another model."
        found = problem("ARCHITECTURE_MISMATCH", (CONFIG,), shown(heads), shown(said), hint)
        return replace(draft, problems=(*draft.problems, found))
    return draft


def _pairs(entries: tuple[TensorEntry, ...]) -> Pairs:
    found: Pairs = {}
    problems = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name)
        if match is None or match["adapter"] not in _FUSED.keys() | _SINGLE.keys():
            problems.append(_unknown(entry, match["adapter"] if match else None))
            continue
        roles, role = found.setdefault((int(match["block"]), match["adapter"]), {}), _ROLES[match["role"]]
        if role in roles:
            hint = "Keep one of the two; they name the same layer."
            problems.append(problem("KEY_REPEATED", entry.place, "one tensor for a factor", "two", hint))
        roles[role] = entry
    refuse_all(problems)
    return found


def _unknown(entry: TensorEntry, adapter: str | None) -> Problem:
    if adapter is not None:
        hint = "Only LoRA on self-attention and dense feed-forward layers is read; train without it."
        return problem("KEY_UNSUPPORTED", entry.place, "a known LoRA adapter layer", adapter, hint)
    if _NEXT.fullmatch(entry.name):
        hint = "Export it in the hub's format: llm.export_ckpt with target hf-peft."
        return problem("KEY_UNSUPPORTED", entry.place, "keys with adapter_layer", "keys of NeMo 2", hint)
    expected = "model.decoder.layers.<n>.<part>.adapter_layer.<adapter>.linear_in.weight or linear_out.weight"
    hint = "A tensor that is not understood cannot be dropped."
    return problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint)


def _problems(pairs: Pairs, settings: NemoSettings) -> list[Problem]:
    found = []
    if settings.heads % settings.groups:
        expected = f"a divisor of {settings.heads} heads"
        hint = "Restore the file NeMo wrote."
        path = (CONFIG, "num_query_groups")
        found.append(problem("CONFIG_FIELD_VALUE", path, expected, str(settings.groups), hint))
    for (block, adapter), roles in pairs.items():
        unpaired = pair_problems(roles, _NAMES, set())
        found += unpaired
        if adapter in _FUSED and not unpaired:
            found += _fused_problems(adapter, roles["b"], settings)
            found += [_twice(roles["b"]) for other in _PARTS[adapter] if (block, other) in pairs]
    return found


def _twice(entry: TensorEntry) -> Problem:
    hint = "Keep the fused adapter or its parts; they name the same layers."
    return problem("KEY_REPEATED", entry.place, "one adapter for a layer", "a fused one and one of its parts", hint)


def _fused_problems(adapter: str, out: TensorEntry, settings: NemoSettings) -> list[Problem]:
    size = attention_size(settings)
    if len(out.shape) == 2 and (out.shape[0] == size if adapter == "lora_kqv_adapter" else out.shape[0] % 2 == 0):
        return []
    expected = f"{size} rows" if adapter == "lora_kqv_adapter" else "an even number of rows"
    hint = "Restore the config the adapter was trained with; its heads must be those of the tensors."
    return [problem("FACTOR_SHAPE", out.place, expected, shown(list(out.shape)), hint)]


def _plan(pairs: Pairs, settings: NemoSettings) -> _Plan:
    moves: list[Arrangement] = []
    parts: dict[str, tuple[TensorEntry, TensorEntry | str]] = {}
    for (block, adapter), roles in pairs.items():
        a, b = roles["a"], roles["b"]
        place = f"model.layers.{block}"
        if adapter in _SINGLE:
            parts[f"{place}.{_SINGLE[adapter]}"] = (a, b)
            continue
        split = attention_rows(settings) if adapter == "lora_kqv_adapter" else gated_rows(b.shape[0])
        for leaf, numbers in split.items():
            module = f"{place}.{_FUSED[adapter]}.{leaf}"
            moves.append(rows(f"{module}.b", b, numbers))
            parts[module] = (a, f"{module}.b")
    return _Plan(tuple(moves), parts)


def _targets(settings: NemoSettings) -> Targets:
    def targeted(module: str, kind: str, output: bool) -> bool:
        del kind, output
        match = _BLOCK.fullmatch(module)
        if match is None or match["leaf"] not in settings.leaves:
            return False
        return settings.blocks is None or int(match["index"]) in settings.blocks

    return targeted


def _archive(name: str) -> Problem:
    hint = "Unpack it with tar, and save model_weights.ckpt as safetensors beside model_config.yaml."
    return problem("PICKLE_REFUSED", (name,), "safetensors only", "an archive with pickled weights", hint)


NEMO: Final = Nemo()
