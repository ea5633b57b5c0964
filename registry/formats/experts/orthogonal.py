"""O-LoRA (07117e1f): one pair a task, those of earlier tasks concatenated into ``lora_A``, ``lora_B``.

``delta = alpha / r (lora_B lora_A + loranew_B loranew_A)`` with the rank r of one task, whatever the rows of lora_A:
the fork scales by alpha / r also after it concatenated the new pair into the old one (`peft/utils/save_and_load.py`).
`r_sum` counts the rows of lora_A.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece
from registry.formats.experts.config import own_document, read_own, targets
from registry.formats.pairs import pair_problems
from registry.formats.peft.fields import CONFIG, provenance
from registry.formats.peft.keys import ROOT, WEIGHTS
from registry.formats.rearrange import MADE, Arrangement, joined, write_arranged
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from schemas.adapter import Scale, make_scale, scale_value
from schemas.errors import Problem

_KEY: Final = re.compile(r"(?P<module>.+)\.(?P<age>lora|loranew)_(?P<side>[AB])\.weight")
_OLD_NAMES: Final = {"a": "lora_A", "b": "lora_B"}
_NEW_NAMES: Final = {"a": "loranew_A", "b": "loranew_B"}
Roles = Mapping[str, TensorEntry]


class Orthogonal:
    """The row of O-LoRA in the table of producers."""

    name = "O-LoRA"

    def recognises(self, directory: Directory) -> bool:
        """The fork's own fields in the config."""
        document = own_document(directory)
        return WEIGHTS in directory.names and ("r_sum" in document or "save_loranew" in document)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """One factor a module: the pairs of all tasks beside each other.

        Raises:
            RefusedError: `KEY_UNKNOWN`, `RANK_MISMATCH`, `FACTOR_NOT_MATRIX`, `FACTOR_SHAPE`, and what
                `read_settings` and `pair_problems` refuse.
        """
        document, config = directory.read_object(CONFIG)
        settings, earlier = read_own({"r_sum": 0} | document, "r_sum")
        old, new = _modules(file_header(directory, WEIGHTS).tensors)
        refuse_all(_problems(old, new, settings.rank, earlier))
        plan = _plan(old, new) if earlier else []
        made = write_arranged(directory, scratch, plan) if plan else {}
        merged = {module: {role: made[f"{module}.{role}"] for role in ("a", "b")} for module in new} if plan else new
        scale = _scale(settings.alpha, settings.rank, earlier + (settings.rank if new else 0))
        return Draft(
            producer=self.name,
            pieces=tuple(Piece(module, roles, scale, "orthogonal_lora") for module, roles in (merged or old).items()),
            files=(config,),
            weights=(WEIGHTS,),
            family="orthogonal_lora",
            made=(MADE,) if made else (),
            notes=dict(provenance(document)) | {"task_rank": settings.rank, "earlier_rank": earlier},
            targets=targets(settings),
        )


def _plan(old: Mapping[str, Roles], new: Mapping[str, Roles]) -> list[Arrangement]:
    return [
        joined(f"{module}.{role}", (old[module][role], new[module][role]), axis)
        for module in new
        for role, axis in (("a", 0), ("b", 1))
    ]


def _scale(alpha: float, task_rank: int, rank: int) -> Scale:
    """alpha / r of one task; the plain rule where the factor holds one task only."""
    if rank == task_rank:
        return make_scale(alpha, "alpha_over_r", rank)
    return make_scale(scale_value(alpha, "alpha_over_r", task_rank), "explicit", rank)


def _modules(entries: tuple[TensorEntry, ...]) -> tuple[dict[str, dict[str, TensorEntry]], ...]:
    """Pairs of earlier tasks, and of the last one where it was saved apart."""
    ages: dict[str, dict[str, dict[str, TensorEntry]]] = {"lora": {}, "loranew": {}}
    problems = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name.removeprefix(ROOT)) if entry.name.startswith(ROOT) else None
        if match is None:
            hint = "Save the adapter again; a tensor that is not understood cannot be dropped."
            expected = f"{ROOT}<module>.lora_A or loranew_A"
            problems.append(problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint))
        else:
            ages[match["age"]].setdefault(match["module"], {})[match["side"].lower()] = entry
    refuse_all(problems)
    return ages["lora"], ages["loranew"]


def _problems(old: Mapping[str, Roles], new: Mapping[str, Roles], task_rank: int, earlier: int) -> list[Problem]:
    found = [item for roles in old.values() for item in pair_problems(roles, _OLD_NAMES, set())]
    found += [item for roles in new.values() for item in pair_problems(roles, _NEW_NAMES, set())]
    if not found and new and old.keys() != new.keys():
        place = next(iter(new.values()))["a"].place
        hint = "The file is incomplete: save the adapter again."
        found.append(problem("FACTOR_UNPAIRED", place, "a new pair beside every earlier one", "some alone", hint))
    ages = ((old, earlier, "r_sum"), (new, task_rank, "r"))
    found = found or [item for pairs, rank, key in ages for roles in pairs.values() for item in _rank(roles, rank, key)]
    return found or [item for module in new for item in _joint(old[module], new[module])]


def _rank(roles: Roles, rank: int, key: str) -> list[Problem]:
    a, b = roles["a"], roles["b"]
    if len(a.shape) != 2 or len(b.shape) != 2:
        hint = "A factor of a Linear layer is a matrix; save the adapter again."
        return [problem("FACTOR_NOT_MATRIX", a.place, "2 dimensions", shown([a.shape, b.shape]), hint)]
    if a.shape[0] == b.shape[1] == rank:
        return []
    observed = f"{a.shape[0]} rows, {b.shape[1]} columns"
    hint = "Restore config and tensors of one save."
    return [problem("RANK_MISMATCH", a.place, f"rank {rank}, as {key} says", observed, hint)]


def _joint(old: Roles, new: Roles) -> list[Problem]:
    """Pairs beside each other agree in everything but the rank."""
    hint = "Save all tensors of a module in one dtype, for one layer."
    return [
        problem(
            "FACTOR_SHAPE", new[role].place, f"{old[role].dtype} {shown(old[role].shape)} but the rank", observed, hint
        )
        for role, axis in (("a", 1), ("b", 0))
        if (old[role].dtype, old[role].shape[axis]) != (new[role].dtype, new[role].shape[axis])
        for observed in [f"{new[role].dtype} {shown(new[role].shape)}"]
    ]


ORTHOGONAL: Final = Orthogonal()
