"""PEFT's save_pretrained: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece
from registry.formats.made import ROWS_FILE
from registry.formats.pairs import PAIR, pair_problems
from registry.formats.peft.config import LoraSettings, read_settings
from registry.formats.peft.fields import CONFIG, provenance
from registry.formats.peft.keys import ROLE_NAMES, WEIGHTS, Keys, Site, read_keys
from registry.formats.peft.parts import row_numbers, token_rows, whole_tensors
from registry.formats.peft.targets import rank_and_scale, targeted
from registry.formats.peft.weights import read_layout
from registry.formats.readings import FileReading
from registry.formats.remembered import Remembered
from registry.formats.report import refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.shards import Layout
from schemas.canonical import JsonObject
from schemas.errors import Problem

_Key: TypeAlias = tuple[FileReading, tuple[FileReading, ...], tuple[str, ...], tuple[TensorEntry, ...]]
_SETTINGS: Final = Remembered[FileReading, LoraSettings]()
"""By the config's bytes, which its digest stands for."""
_DRAFTS: Final = Remembered[_Key, Draft]()
"""By all that a draft is made of: the config's bytes and what the headers say."""


@dataclass(frozen=True)
class Sources:
    """What a draft is made of: the config, parsed and as a file, the layout, and the tensors by name."""

    document: JsonObject
    config: FileReading
    layout: Layout
    entries: Mapping[str, TensorEntry]


@dataclass(frozen=True)
class PeftProducer:
    """The row of the table of producers."""

    name: str = "peft"

    def recognises(self, directory: Directory) -> bool:
        """PEFT's config, or its weights without one."""
        return CONFIG in directory.names or WEIGHTS in directory.names

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter in the common form.

        Raises:
            RefusedError: what `read_settings` and `read_keys` refuse.
        """
        document, config = directory.read_object(CONFIG)
        settings = _SETTINGS.get(config) or _SETTINGS.put(config, read_settings(document))
        layout, entries = read_layout(directory)
        key = (config, layout.files, layout.shards, tuple(entries.values()))
        known = _DRAFTS.get(key)
        if known is not None:
            return known
        draft = self._drafted(settings, Sources(document, config, layout, entries), scratch)
        # what a draft made lies in the scratch folder of its own reading
        return draft if draft.made else _DRAFTS.put(key, draft)

    def _drafted(self, settings: LoraSettings, sources: Sources, scratch: Path) -> Draft:
        entries = sources.entries
        keys = read_keys(entries, bare=settings.method == "ADALORA")
        refuse_all((*keys.problems, *_unpaired(keys, entries)))
        family = _family(settings)
        problems: list[Problem] = []
        pieces = [_piece(settings, site, keys.factors[site], entries, family, problems) for site in keys.factors]
        whole, found = whole_tensors(settings, keys, entries)
        rows, wrong = token_rows(settings, keys, entries, scratch)
        return Draft(
            producer=self.name,
            pieces=tuple(pieces),
            files=(sources.config, *sources.layout.files),
            weights=sources.layout.shards,
            made=(ROWS_FILE,) if any(entry.file == ROWS_FILE for entry in rows.values()) else (),
            family=family,
            initializer="kasa" if settings.kasa else settings.initializer.key,
            payload="native" if settings.kasa else settings.initializer.payload,
            replacements=whole | rows,
            last_rows={f"{name}.weight": max(row, default=-1) for name, row in row_numbers(settings, keys).items()},
            training=_training(settings),
            notes=dict(provenance(sources.document))
            | {"slot": keys.slot}
            | ({"training_state": len(keys.state)} if keys.state else {}),
            problems=(*problems, *found, *wrong),
            targets=partial(targeted, settings),
        )


PEFT: Final = PeftProducer()


def _family(settings: LoraSettings) -> str:
    """The catalogue row: the first that changes the formula, then the initializer, then the scale."""
    rows = (
        ("adalora", settings.method == "ADALORA"),
        ("dora", settings.dora),
        ("kasa", settings.kasa),
        ("alora", bool(settings.invocation)),
        ("qa_lora", settings.group > 1),
        ("lora_bias", settings.lora_bias),
        (settings.initializer.key, settings.initializer.payload == "native"),
        ("rslora", settings.rule == "alpha_over_sqrt_r"),
    )
    return next((key for key, there in rows if there), "lora")


def _piece(
    settings: LoraSettings,
    site: Site,
    names: Mapping[str, str],
    entries: Mapping[str, TensorEntry],
    family: str,
    problems: list[Problem],
) -> Piece:
    tensors = {role: entries[name] for role, name in names.items()}
    rank, scale, wrong = rank_and_scale(settings, site.module, tensors["a"].shape[0] if tensors["a"].shape else 0)
    problems += wrong
    problems += pair_problems(
        {role: tensors[role] for role in tensors if role != "ranknum"}, ROLE_NAMES, settings.extras
    )
    return Piece(
        module=site.module,
        tensors=tensors,
        scale=scale,
        source=family,
        rank=rank,
        parameters=tuple(name for name in settings.parameters if _holds(site.module, name)),
        pooled=settings.group,
        oriented=settings.oriented,
    )


def _unpaired(keys: Keys, entries: Mapping[str, TensorEntry]) -> list[Problem]:
    """Sites without both factors, which no later check can look at."""
    alone = [roles for roles in keys.factors.values() if not roles.keys() >= PAIR]
    return [
        found
        for roles in alone
        for found in pair_problems({role: entries[name] for role, name in roles.items()}, ROLE_NAMES, frozenset())
    ]


def _holds(module: str, parameter: str) -> bool:
    """Whether a parameter's name, full or an ending, can be of this module."""
    owner, _, _ = parameter.rpartition(".")
    return not owner or module == owner or module.endswith(f".{owner}")


def _training(settings: LoraSettings) -> dict[str, str]:
    """What the method's contract names beside tensors: the tokens that switch an activated LoRA on, a pooling width."""
    training = {}
    if settings.invocation:
        training["invocation_tokens"] = ",".join(map(str, settings.invocation))
    if settings.group > 1:
        training["group_size"] = str(settings.group)
    return training
