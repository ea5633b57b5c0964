"""Read diffusers' LoRA file of a text encoder.

Where the header has `lora_adapter_metadata` it is PEFT's config of each part, and decides like one. Without it the
scale is alpha / r by an alpha tensor beside the module (`network_alphas`), and 1 where there is none (diffusers 0.42,
`utils/peft_utils.py`, `get_peft_kwargs`); both at once are refused, as diffusers refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from registry.formats.diffusers.keys import DiffusersKeys, is_diffusers, read_keys
from registry.formats.directory import Directory, json_object
from registry.formats.draft import Draft, Piece
from registry.formats.pairs import pair_problems
from registry.formats.peft.config import LoraSettings, read_settings
from registry.formats.peft.fields import CONFIG, provenance
from registry.formats.peft.targets import rank_and_scale, targeted
from registry.formats.readings import Note
from registry.formats.report import located, problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scalars import read_scalar
from registry.formats.scan import file_header
from registry.formats.single import readable_header, single_tensor_file, tensor_files
from schemas.adapter import Scale, make_scale
from schemas.canonical import JsonObject
from schemas.errors import Problem

WEIGHTS: Final = "pytorch_lora_weights.safetensors"
METADATA: Final = "lora_adapter_metadata"
_NAMES: Final = {"a": "lora_A", "b": "lora_B", "magnitude": "lora_magnitude_vector", "bias": "lora_B.bias"}


class Diffusers:
    """The row of diffusers in the table of producers."""

    name = "diffusers"

    def recognises(self, directory: Directory) -> bool:
        """Its file name, or names of its grammar in a file without a config."""
        if WEIGHTS in directory.names:
            return True
        if CONFIG in directory.names:
            return False
        headers = (readable_header(directory, name) for name in tensor_files(directory))
        return any(header is not None and is_diffusers(entry.name for entry in header.tensors) for header in headers)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter of the one text encoder in the file.

        Raises:
            RefusedError: `LAYOUT_AMBIGUOUS`, `SCALE_AMBIGUOUS`, `SCALAR_INVALID`, `FACTOR_NOT_MATRIX`, the problems of
                `read_keys` and `pair_problems`, and what `read_settings` refuses of the metadata.
        """
        del scratch
        weights = WEIGHTS if WEIGHTS in directory.names else single_tensor_file(directory)
        header = file_header(directory, weights)
        keys = read_keys(header.tensors)
        refuse_all(keys.problems)
        document = _document(header.metadata, weights, keys.part)
        settings = _settings(document, weights)
        factors = {
            name: {role: entry for role, entry in roles.items() if role != "alpha"}
            for name, roles in keys.modules.items()
        }
        refuse_all(_problems(keys, factors, settings))
        problems: list[Problem] = []
        pieces = tuple(_piece(directory, name, roles, keys, settings, problems) for name, roles in factors.items())
        family = _family(factors, settings)
        return Draft(
            producer=self.name,
            pieces=tuple(Piece(piece.module, piece.tensors, piece.scale, family, piece.rank) for piece in pieces),
            files=(),
            weights=(weights,),
            family=family,
            initializer="none" if settings is None else settings.initializer.key,
            payload="portable" if settings is None else settings.initializer.payload,
            notes=_notes(document, keys.part),
            problems=tuple(problems),
            targets=None if settings is None else partial(targeted, settings),
        )


def _document(metadata: Mapping[str, str], weights: str, part: str) -> JsonObject:
    """The config of one part; empty where the header has none."""
    if METADATA not in metadata:
        return {}
    with located(weights, METADATA):
        whole = json_object(metadata[METADATA].encode())
    return {key.removeprefix(f"{part}."): value for key, value in whole.items() if key.startswith(f"{part}.")}


def _settings(document: JsonObject, weights: str) -> LoraSettings | None:
    if not document:
        return None
    with located(weights, METADATA):
        settings = read_settings(document)
    others = {
        "peft_type": settings.method != "LORA",
        "modules_to_save": bool(settings.saved),
        "trainable_token_indices": bool(settings.tokens),
        "target_parameters": bool(settings.parameters),
        "alora_invocation_tokens": bool(settings.invocation),
        "kasa_config": settings.kasa,
        "use_qalora": settings.group > 1,
        "bias": settings.bias != "none",
    }
    hint = "Save the text encoder's adapter with PEFT's save_pretrained; this file holds only factors."
    refuse_all(
        problem("FEATURE_UNSUPPORTED", (weights, METADATA, key), "factors only", shown(document.get(key)), hint)
        for key, there in others.items()
        if there
    )
    return settings


def _problems(
    keys: DiffusersKeys, factors: Mapping[str, Mapping[str, TensorEntry]], settings: LoraSettings | None
) -> list[Problem]:
    extras = (
        settings.extras if settings is not None else {role for roles in factors.values() for role in roles} - {"a", "b"}
    )
    lonely = [problem_of for name, roles in keys.modules.items() if not factors[name] for problem_of in _lonely(roles)]
    found = lonely or [item for roles in factors.values() for item in pair_problems(roles, _NAMES, extras)]
    for roles in keys.modules.values():
        if settings is not None and "alpha" in roles:
            hint = "Remove the alpha tensors or the metadata: each says a scale of its own."
            found.append(problem("SCALE_AMBIGUOUS", roles["alpha"].place, f"alpha or {METADATA}", "both", hint))
        a = roles.get("a")
        if a is not None and (len(a.shape) not in {2, 4} or 0 in a.shape):
            hint = "A factor of a Linear layer is a matrix, of a convolution a kernel; save the adapter again."
            found.append(problem("FACTOR_NOT_MATRIX", a.place, "2 or 4 dimensions", shown(list(a.shape)), hint))
    return found


def _lonely(roles: Mapping[str, TensorEntry]) -> list[Problem]:
    hint = "The file is incomplete: save the adapter again."
    return [problem("FACTOR_UNPAIRED", roles["alpha"].place, "lora_A and lora_B", "only alpha", hint)]


def _piece(
    directory: Directory,
    module: str,
    roles: Mapping[str, TensorEntry],
    keys: DiffusersKeys,
    settings: LoraSettings | None,
    problems: list[Problem],
) -> Piece:
    rows = roles["a"].shape[0]
    if settings is not None:
        rank, scale, found = rank_and_scale(settings, module, rows)
        problems += found
        return Piece(module, roles, scale, "lora", rank)
    return Piece(module, roles, _scale(directory, keys.modules[module].get("alpha"), rows), "lora")


def _scale(directory: Directory, alpha: TensorEntry | None, rank: int) -> Scale:
    return make_scale(float(rank) if alpha is None else read_scalar(directory, alpha), "alpha_over_r", rank)


def _family(factors: Mapping[str, Mapping[str, TensorEntry]], settings: LoraSettings | None) -> str:
    roles = {role for found in factors.values() for role in found}
    if "magnitude" in roles:
        return "dora"
    if "bias" in roles:
        return "lora_bias"
    if settings is not None and settings.initializer.payload == "native":
        return settings.initializer.key
    return "rslora" if settings is not None and settings.rule == "alpha_over_sqrt_r" else "lora"


def _notes(document: JsonObject, part: str) -> dict[str, Note]:
    return dict(provenance(document)) | {"part": part}


DIFFUSERS: Final = Diffusers()
