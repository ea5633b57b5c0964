"""Where a PEFT directory keeps its tensors: one file, or shards when transformers saved a large adapter."""

from __future__ import annotations

from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.peft.keys import WEIGHTS
from registry.formats.report import problem, refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from registry.formats.shards import Layout, agreement_problems, indexed_layout

INDEXES: Final = (f"{WEIGHTS}.index.json", "model.safetensors.index.json")
"""transformers names the index of an adapter's shards as a model's."""


def read_layout(directory: Directory) -> tuple[Layout, dict[str, TensorEntry]]:
    """The files with the adapter's tensors, and every tensor by name.

    Raises:
        RefusedError: `LAYOUT_AMBIGUOUS`, `FILE_MISSING`, `INDEX_INVALID`, `INDEX_MISMATCH`, and what `read_header`
            refuses.
    """
    indexes = [name for name in INDEXES if name in directory.names]
    if len(indexes) + (WEIGHTS in directory.names) > 1:
        hint = "Keep the one that holds the adapter you mean."
        raise RefusedError(problem("LAYOUT_AMBIGUOUS", (indexes[0],), f"{WEIGHTS} or one index", "both", hint))
    layout = indexed_layout(directory, indexes[0]) if indexes else Layout((WEIGHTS,), None, ())
    shards = {name: file_header(directory, name).tensors for name in layout.shards}
    refuse_all(agreement_problems(layout, shards))
    return layout, {entry.name: entry for tensors in shards.values() for entry in tensors}
