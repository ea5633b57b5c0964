"""torchtune's tensors: ``lora_a.weight [r, d_in]``, ``lora_b.weight [d_out, r]``, for DoRA ``magnitude [d_out]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from registry.formats.attention import heads_of
from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece, Targets
from registry.formats.fields import Fields
from registry.formats.pairs import pair_problems
from registry.formats.readings import FileReading, Note
from registry.formats.rearrange import MADE, Arrangement, rows, write_arranged
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from registry.formats.single import readable_header
from registry.formats.torchtune.names import INTERLEAVED, KEPT, LEAVES, halves, hub_name, rotated_heads
from schemas.adapter import make_scale
from schemas.base import BaseManifest

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
LARGEST_RANK: Final = 2**31
_FIELDS: Final = frozenset({"base_model_name_or_path", "lora_alpha", "peft_type", "r", "target_modules"})
_KEY: Final = re.compile(r"(?P<module>.+)\.(?:(?P<factor>lora_[ab])\.weight|(?P<extra>magnitude))")
_ROLES: Final = {"lora_a": "a", "lora_b": "b", "magnitude": "magnitude"}
_NAMES: Final = {role: name for name, role in _ROLES.items()}


@dataclass(frozen=True)
class _Settings:
    rank: int
    alpha: float
    leaves: frozenset[str]


class Torchtune:
    """The row of torchtune in the table of producers."""

    name = "torchtune"

    def recognises(self, directory: Directory) -> bool:
        """torchtune's five-field config over its own keys; under the hub's keys the directory is PEFT's."""
        if not {CONFIG, WEIGHTS} <= directory.names:
            return False
        document, _ = directory.read_object(CONFIG)
        if not document.keys() <= _FIELDS:
            return False
        header = readable_header(directory, WEIGHTS)
        return header is not None and any(_is_own(entry.name) for entry in header.tensors)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter under the hub's names; rows of query and key move once the base is known.

        Raises:
            RefusedError: `KEY_UNKNOWN`, `KEY_REPEATED`, `CONFIG_FIELD_*`, `METHOD_UNSUPPORTED`, and the problems of
                `pair_problems`.
        """
        settings, config, notes = _read_config(directory)
        modules = _modules(file_header(directory, WEIGHTS).tensors)
        dora = any("magnitude" in roles for roles in modules.values())
        extras = {"magnitude"} if dora else set()
        refuse_all(found for roles in modules.values() for found in pair_problems(roles, _NAMES, extras))
        family = "dora" if dora else "lora"
        scale = make_scale(settings.alpha, "alpha_over_r", settings.rank)
        draft = Draft(
            producer=self.name,
            pieces=tuple(Piece(module, roles, scale, family, settings.rank) for module, roles in modules.items()),
            files=(config,),
            weights=(WEIGHTS,),
            family=family,
            notes=notes | {"renamed": "torchtune_to_hub"},
            targets=_targets(settings),
        )
        return replace(draft, bind=lambda base: _bound(draft, base, directory, scratch))


def _bound(draft: Draft, base: BaseManifest, directory: Directory, scratch: Path) -> Draft:
    model_type = base.architecture.model_type
    if model_type in KEPT:
        return draft
    heads = heads_of(base)
    if model_type not in INTERLEAVED or heads is None:
        hint = "Merge it in torchtune, or export it in the hub's names, and register the result."
        expected = f"a base of {', '.join(sorted(INTERLEAVED | KEPT))}"
        found = problem("ARCHITECTURE_MISMATCH", (WEIGHTS,), expected, model_type, hint)
        return replace(draft, problems=(*draft.problems, found))
    plan: list[Arrangement] = []
    for piece in draft.pieces:
        count = rotated_heads(piece.module, heads)
        if count is None:
            continue
        for role in ("b", "magnitude"):
            entry = piece.tensors.get(role)
            # Any other number of rows is refused beside the layer, unmoved.
            if entry is not None and entry.shape[:1] == (count * heads.head_dim,):
                plan.append(rows(f"{piece.module}.{role}", entry, halves(count, heads.head_dim)))
    if not plan:
        return draft
    made = write_arranged(directory, scratch, plan)
    pieces = tuple(
        replace(piece, tensors={role: made.get(f"{piece.module}.{role}", old) for role, old in piece.tensors.items()})
        for piece in draft.pieces
    )
    notes = dict(draft.notes) | {"rearranged": "torchtune_rotary_halves"}
    return replace(draft, pieces=pieces, made=(MADE,), notes=notes)


def _read_config(directory: Directory) -> tuple[_Settings, FileReading, dict[str, Note]]:
    document, reading = directory.read_object(CONFIG)
    fields = Fields(document, CONFIG)
    if fields.text("peft_type", "LORA") != "LORA":
        fields.refuse("METHOD_UNSUPPORTED", "peft_type", "LORA", document["peft_type"])
    rank = fields.integer("r")
    if not 1 <= rank <= LARGEST_RANK:
        fields.refuse("CONFIG_FIELD_VALUE", "r", f"a rank of 1 to {LARGEST_RANK}", rank)
    alpha = fields.number("lora_alpha")
    names = fields.texts("target_modules") or ()
    chosen = {names} if isinstance(names, str) else set(names)
    unknown = chosen - LEAVES.keys() - set(LEAVES.values())
    if unknown or not chosen:
        fields.refuse("CONFIG_FIELD_VALUE", "target_modules", f"some of {', '.join(LEAVES)}", sorted(unknown))
    refuse_all(fields.problems)
    notes: dict[str, Note] = {"target_modules": tuple(sorted(chosen))}
    base = fields.text("base_model_name_or_path", "")
    if base:
        notes["base_model_name_or_path"] = base
    return _Settings(rank, alpha, frozenset(LEAVES.get(name, name) for name in chosen)), reading, notes


def _is_own(name: str) -> bool:
    match = _KEY.fullmatch(name)
    return match is not None and hub_name(match["module"]) is not None


def _modules(entries: tuple[TensorEntry, ...]) -> dict[str, dict[str, TensorEntry]]:
    found: dict[str, dict[str, TensorEntry]] = {}
    problems = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name)
        module = hub_name(match["module"]) if match is not None else None
        if match is None or module is None:
            hint = "Save the adapter with torchtune; a tensor that is not understood cannot be dropped."
            expected = "layers.<n>.attn.<name>.lora_a.weight and the like"
            problems.append(problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint))
            continue
        roles, role = found.setdefault(module, {}), _ROLES[match["factor"] or match["extra"]]
        if role in roles:
            hint = "Keep one of the two; they name the same layer."
            problems.append(problem("KEY_REPEATED", entry.place, "one tensor for a factor", "two", hint))
        roles[role] = entry
    refuse_all(problems)
    return found


def _targets(settings: _Settings) -> Targets:
    def targeted(module: str, kind: str, output: bool) -> bool:
        del kind, output
        return module.rpartition(".")[2] in settings.leaves

    return targeted


TORCHTUNE: Final = Torchtune()
