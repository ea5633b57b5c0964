"""Read a kohya or LyCORIS file: ``delta = alpha / r * lora_up lora_down``, r being the rows of lora_down.

No alpha means alpha = r. An alpha of zero means r to the trainer (`networks/lora.py`) and zero to the merge script
(`networks/merge_lora.py`), so it is refused. LyCORIS folds its rank-stabilised scale and its scalar into what it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from registry.formats.base.modules import layers
from registry.formats.base.naming import MODEL_TYPES
from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece
from registry.formats.kohya.keys import is_kohya, piece_tensors, read_keys
from registry.formats.kohya.names import resolve
from registry.formats.kohya.statements import statements
from registry.formats.rearrange import MADE, reshaped, write_arranged
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scalars import read_scalar
from registry.formats.scan import file_header
from registry.formats.single import readable_header, single_tensor_file, tensor_files
from schemas.adapter import Scale, make_scale
from schemas.base import BaseManifest
from schemas.errors import Problem

CONFIG: Final = "adapter_config.json"


class Kohya:
    """The row of kohya's scripts and LyCORIS in the table of producers."""

    name = "kohya"

    def recognises(self, directory: Directory) -> bool:
        """No config, and a safetensors file with names of this grammar."""
        if CONFIG in directory.names:
            return False
        headers = (readable_header(directory, name) for name in tensor_files(directory))
        return any(header is not None and is_kohya(entry.name for entry in header.tensors) for header in headers)

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter under its flattened names; they become the base's once that is known.

        Raises:
            RefusedError: `LAYOUT_AMBIGUOUS`, `SCALAR_INVALID`, `SCALE_AMBIGUOUS`, `FACTOR_NOT_MATRIX`, and the problems
                of `read_keys`.
        """
        weights = single_tensor_file(directory)
        header = file_header(directory, weights)
        keys = read_keys(header.tensors)
        refuse_all(keys.problems)
        refuse_all(found for roles in keys.modules.values() for found in _form_problems(roles))
        scales = {flat: _scale(directory, roles) for flat, roles in keys.modules.items()}
        refuse_all(scale for scale in scales.values() if isinstance(scale, Problem))
        columns = [
            reshaped(f"{flat}.magnitude", roles["magnitude"], roles["magnitude"].shape[:1])
            for flat, roles in keys.modules.items()
            if "magnitude" in roles
        ]
        made = write_arranged(directory, scratch, columns) if columns else {}
        pieces = tuple(
            _piece(flat, roles, scale, made)
            for flat, roles in keys.modules.items()
            if isinstance(scale := scales[flat], Scale)
        )
        draft = Draft(
            producer=self.name,
            pieces=pieces,
            files=(),
            weights=(weights,),
            family="dora" if columns else "lora",
            made=(MADE,) if made else (),
            notes={"part": keys.part, **statements(header.metadata)},
        )
        return replace(draft, bind=lambda base: _bound(draft, base))


def _bound(draft: Draft, base: BaseManifest) -> Draft:
    places = {piece.module: piece.tensors["a"].place for piece in draft.pieces}
    names, problems = resolve(places, layers(base).keys(), MODEL_TYPES[base.architecture.model_type].prefix)
    refuse_all(problems)
    pieces = tuple(replace(piece, module=names[piece.module]) for piece in draft.pieces)
    return replace(draft, pieces=pieces, notes=dict(draft.notes) | {"renamed": "kohya_flattened"})


def _form_problems(roles: Mapping[str, TensorEntry]) -> list[Problem]:
    """Shapes that must hold before a rank can be read off: factors with rows, a magnitude per output."""
    a = roles["a"]
    if len(a.shape) not in {2, 4} or 0 in a.shape:
        hint = "A factor of a Linear layer is a matrix, of a convolution a kernel; save the adapter again."
        return [problem("FACTOR_NOT_MATRIX", a.place, "2 or 4 dimensions", shown(list(a.shape)), hint)]
    magnitude = roles.get("magnitude")
    if magnitude is not None and (not magnitude.shape or any(size != 1 for size in magnitude.shape[1:])):
        hint = "Train with wd_on_out=True, or merge it in LyCORIS; a magnitude per input is another operator."
        observed = f"dora_scale {shown(list(magnitude.shape))}: one per input"
        return [problem("KEY_UNSUPPORTED", magnitude.place, "a magnitude per output, [d_out, 1]", observed, hint)]
    return []


def _scale(directory: Directory, roles: Mapping[str, TensorEntry]) -> Scale | Problem:
    rank = roles["a"].shape[0]
    if "alpha" not in roles:
        return make_scale(float(rank), "alpha_over_r", rank)
    alpha = read_scalar(directory, roles["alpha"])
    if alpha == 0:
        hint = "Write the alpha the adapter was trained with; the trainer reads 0 as the rank, its merge script as 0."
        return problem("SCALE_AMBIGUOUS", roles["alpha"].place, "an alpha other than 0", "0", hint)
    return make_scale(alpha, "alpha_over_r", rank)


def _piece(flat: str, roles: Mapping[str, TensorEntry], scale: Scale, made: Mapping[str, TensorEntry]) -> Piece:
    tensors = piece_tensors(roles)
    if "magnitude" in tensors:
        tensors["magnitude"] = made[f"{flat}.magnitude"]
    return Piece(flat, tensors, scale, "dora" if "magnitude" in tensors else "lora")


KOHYA: Final = Kohya()
