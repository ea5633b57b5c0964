"""What an adapter carries beside factors: trained heads, saved modules, biases, embedding tables, token rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from registry.formats.made import ROWS_FILE, MadeTensor, write_made
from registry.formats.peft.config import LoraSettings
from registry.formats.peft.fields import CONFIG
from registry.formats.peft.keys import Keys
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import TensorEntry
from schemas.adapter import ROWS, VALUES
from schemas.errors import Problem

TABLES: Final = frozenset({"embed_tokens", "lm_head", "wte", "word_embeddings", "decoder", "vocab_projector"})
"""Input and output embeddings that PEFT saves beside an adapter when it trained or resized them."""
AUTOMATIC: Final = frozenset({"classifier", "score", "qa_outputs"})
"""Heads PEFT adds to `modules_to_save` by task, whichever of them the model has."""


def whole_tensors(
    settings: LoraSettings, keys: Keys, entries: Mapping[str, TensorEntry]
) -> tuple[dict[str, TensorEntry], list[Problem]]:
    """Tensors that replace one of the base, by the base's name.

    Problems: `KEY_UNSUPPORTED` for a tensor nothing in the config announces, `SAVED_MODULE_MISSING` for a saved module
    without tensors.
    """
    found = {name: entries[key] for name, key in keys.whole.items()}
    adapted = {site.module for site in keys.factors}
    problems = [_unannounced(found[name]) for name in found if not _announced(settings, name, adapted)]
    lost = [name for name in settings.saved if not any(_within(tensor, name) for tensor in found)]
    if lost and (set(lost) == set(settings.saved) or not set(lost) <= AUTOMATIC):
        problems.append(_lost(lost))
    return found, problems


def token_rows(
    settings: LoraSettings, keys: Keys, entries: Mapping[str, TensorEntry], scratch: Path
) -> tuple[dict[str, TensorEntry], list[Problem]]:
    """Trained rows of a table as two tensors, their numbers written to `scratch` from the config.

    Problems: `TOKEN_ROWS` where rows and numbers do not belong together.
    """
    numbers = row_numbers(settings, keys)
    problems = [
        _rows_problem(entries[key], numbers.get(module))
        for module, key in keys.tokens.items()
        if not _belong(numbers.get(module), entries[key])
    ]
    if settings.tokens and not keys.tokens:
        expected, hint = "rows for the listed tokens", "The save was incomplete: save the adapter again."
        problems.append(problem("TOKEN_ROWS", (CONFIG, "trainable_token_indices"), expected, "none in the file", hint))
    if problems or not numbers:
        return {}, problems
    made = {
        f"{module}.weight{ROWS}": MadeTensor("I64", (len(rows),), np.asarray(rows, "<i8").tobytes())
        for module, rows in numbers.items()
    }
    found = {f"{module}.weight{VALUES}": entries[key] for module, key in keys.tokens.items()}
    return found | write_made(scratch, ROWS_FILE, made), []


def row_numbers(settings: LoraSettings, keys: Keys) -> dict[str, tuple[int, ...]]:
    """Which rows the config says were trained, by the table's name in the file."""
    found = {}
    for module in keys.tokens:
        for name, rows in settings.tokens.items():
            alone = not name and len(keys.tokens) == 1
            if alone or (name and (module == name or module.endswith(f".{name}"))):
                found[module] = rows
    return found


def _belong(rows: tuple[int, ...] | None, entry: TensorEntry) -> bool:
    return rows is not None and len(rows) == len(set(rows)) and len(entry.shape) == 2 and entry.shape[0] == len(rows)


def _announced(settings: LoraSettings, tensor: str, adapted: Iterable[str]) -> bool:
    module, _, leaf = tensor.rpartition(".")
    if leaf == "bias" and (settings.bias == "all" or (settings.bias == "lora_only" and module in adapted)):
        return True
    return module.rpartition(".")[2] in TABLES or any(_within(tensor, name) for name in settings.saved)


def _within(tensor: str, module: str) -> bool:
    """Whether a tensor lies in a module PEFT saves under this name: it takes every module whose path ends so."""
    steps = tensor.split(".")
    return any(".".join(steps[:count]).endswith(module) for count in range(1, len(steps)))


def _unannounced(entry: TensorEntry) -> Problem:
    hint = "Name the module in modules_to_save if it was trained; a tensor that is not understood cannot be dropped."
    return problem("KEY_UNSUPPORTED", entry.place, "factors and what modules_to_save names", "a whole tensor", hint)


def _lost(names: list[str]) -> Problem:
    hint = "The trained module was lost on the way (a conversion drops it): take the file from before."
    expected = "the tensors of each" if set(names) - AUTOMATIC else "the tensors of the head the model has"
    return problem("SAVED_MODULE_MISSING", (CONFIG, "modules_to_save"), expected, f"none of {', '.join(names)}", hint)


def _rows_problem(entry: TensorEntry, rows: tuple[int, ...] | None) -> Problem:
    observed = "no indices" if rows is None else f"{len(set(rows))} different indices of {len(rows)}"
    hint = "Restore the config the adapter was trained with; trainable_token_indices number the rows."
    return problem(
        "TOKEN_ROWS", entry.place, f"one index for each of the rows {shown(entry.shape[:1])}", observed, hint
    )
