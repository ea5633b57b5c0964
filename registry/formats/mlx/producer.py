"""mlx-lm's tensors: ``<module>.lora_a [d_in, r]`` and ``lora_b [r, d_out]``, for DoRA with ``m [d_out]``.

``delta = scale (lora_a lora_b)^T`` for a Linear layer and ``scale lora_a lora_b`` for a table of rows (mlx-lm 0.32,
`tuner/lora.py`, `fuse`): both are ours after a transposition of each factor. Module names are the hub's, for GPT-2
behind one more `model.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece, Targets
from registry.formats.mlx.config import CONFIG, MlxSettings, is_config, read_config
from registry.formats.pairs import PAIR, pair_problems
from registry.formats.rearrange import MADE, Arrangement, transposed, write_arranged
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from schemas.adapter import make_scale
from schemas.errors import Problem

WEIGHTS: Final = "adapters.safetensors"
SNAPSHOT: Final = re.compile(r"\d{7}_adapters\.safetensors")
"""What the trainer saves on its way; the adapter is the file without a number."""
_KEY: Final = re.compile(r"(?P<module>.+)\.(?P<role>lora_a|lora_b|m)")
_BLOCK: Final = re.compile(r"(?:.*\.)?(?:layers|h)\.(?P<index>\d+)\.(?P<inside>.+)")
_ROLES: Final = {"lora_a": "a", "lora_b": "b", "m": "magnitude"}
_NAMES: Final = {role: name for name, role in _ROLES.items()}
_TABLES: Final = frozenset({"embed_tokens", "wte", "wpe"})
_GPT2: Final = re.compile(r"model\.(?=h\.\d+\.|wte$|wpe$)")

Modules = Mapping[str, Mapping[str, TensorEntry]]


class Mlx:
    """The row of mlx-lm in the table of producers."""

    name = "mlx-lm"

    def recognises(self, directory: Directory) -> bool:
        """Its config, or its weights under a config nobody else claims."""
        if CONFIG not in directory.names:
            return WEIGHTS in directory.names
        document, _ = directory.read_object(CONFIG)
        return is_config(document)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter with its factors turned.

        Raises:
            RefusedError: `KEY_UNKNOWN`, `KEY_UNSUPPORTED`, `FACTOR_NOT_MATRIX`, `MODULES_MISSING`, the problems of
                `pair_problems`, and what `read_config` refuses.
        """
        settings, config, notes = read_config(directory)
        modules = _modules(file_header(directory, WEIGHTS).tensors)
        refuse_all(_problems(modules, settings))
        made = write_arranged(directory, scratch, _plan(modules))
        snapshots = tuple(sorted(name for name in directory.names if SNAPSHOT.fullmatch(name)))
        return Draft(
            producer=self.name,
            pieces=tuple(_piece(module, roles, made, settings) for module, roles in modules.items()),
            files=(config,),
            weights=(WEIGHTS,),
            beside=snapshots,
            family="dora" if settings.dora else "lora",
            made=(MADE,),
            notes=notes | {"rearranged": "mlx_transposed", "snapshots": snapshots},
            targets=_targets(modules, settings),
        )


def _modules(entries: tuple[TensorEntry, ...]) -> dict[str, dict[str, TensorEntry]]:
    found: dict[str, dict[str, TensorEntry]] = {}
    unknown = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name)
        if match is None:
            hint = "Save the adapter with mlx-lm; a tensor that is not understood cannot be dropped."
            expected = "<module>.lora_a, lora_b or m"
            unknown.append(problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint))
        else:
            found.setdefault(match["module"], {})[_ROLES[match["role"]]] = entry
    refuse_all(unknown)
    return found


def _problems(modules: Modules, settings: MlxSettings) -> list[Problem]:
    extras = {"magnitude"} if settings.dora else set()
    found = [item for roles in modules.values() for item in pair_problems(roles, _NAMES, extras)]
    found = found or [item for module, roles in modules.items() for item in _form_problems(module, roles)]
    blocks = _blocks(modules)
    if settings.blocks is not None and blocks and len(blocks) != settings.blocks:
        hint = "The save was incomplete, or the config belongs to another adapter."
        expected = f"{settings.blocks} blocks, as num_layers says"
        found.append(problem("MODULES_MISSING", (CONFIG, "num_layers"), expected, f"{len(blocks)} in the file", hint))
    return found


def _form_problems(module: str, roles: Mapping[str, TensorEntry]) -> list[Problem]:
    """What cannot be turned: stacks of experts, and anything that is no matrix."""
    place = roles["a"].place
    shapes = [roles["a"].shape, roles["b"].shape]
    if all(len(shape) == 3 for shape in shapes):
        hint = "Train it on the experts one by one; which axis of a stack is an expert's input is not recorded."
        return [problem("KEY_UNSUPPORTED", place, "a Linear layer", "experts stacked in a SwitchLinear", hint)]
    if any(len(shape) != 2 for shape in shapes):
        hint = "A factor of a Linear layer is a matrix; save the adapter again."
        return [problem("FACTOR_NOT_MATRIX", place, "2 dimensions", shown(shapes), hint)]
    if "magnitude" in roles and module.rpartition(".")[2] in _TABLES:
        hint = "mlx-lm scales each row of a table, others each column; train it on Linear layers."
        return [problem("KEY_UNSUPPORTED", place, "a Linear layer", "DoRA on an embedding", hint)]
    return []


def _plan(modules: Modules) -> list[Arrangement]:
    return [transposed(f"{module}.{role}", roles[role]) for module, roles in modules.items() for role in sorted(PAIR)]


def _piece(
    module: str, roles: Mapping[str, TensorEntry], made: Mapping[str, TensorEntry], settings: MlxSettings
) -> Piece:
    return Piece(
        module=_hub_name(module),
        tensors={role: made.get(f"{module}.{role}", entry) for role, entry in roles.items()},
        scale=make_scale(settings.scale, "explicit", settings.rank),
        source="dora" if settings.dora else "lora",
        rank=settings.rank,
    )


def _hub_name(module: str) -> str:
    return _GPT2.sub("", module)


def _blocks(modules: Modules) -> set[int]:
    found = (_BLOCK.fullmatch(module) for module in modules)
    return {int(match["index"]) for match in found if match is not None}


def _targets(modules: Modules, settings: MlxSettings) -> Targets:
    """The last blocks of the model, each with the same modules; others by their full name.

    Without `keys` the modules inside a block are those any block of the file has: releases differ in what they adapt
    then. Every block from the first one on is expected, so a file of fewer or of other blocks is incomplete.
    """
    first = min(_blocks(modules), default=0) if settings.blocks is not None else 0
    stored = {match["inside"] for match in map(_BLOCK.fullmatch, modules) if match is not None}
    inside = settings.keys or stored
    whole = {_hub_name(key) for key in settings.keys or modules}

    def targeted(module: str, kind: str, output: bool) -> bool:
        del kind, output
        match = _BLOCK.fullmatch(module)
        if match is None:
            return module in whole
        return (int(match["index"]) >= first and match["inside"] in inside) or module in whole

    return targeted


MLX: Final = Mlx()
