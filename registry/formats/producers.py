"""The table of producers: who wrote a directory is decided by its own files, in this order."""

from __future__ import annotations

from typing import Final

from registry.errors import RefusedError
from registry.formats.diffusers.producer import DIFFUSERS
from registry.formats.directory import Directory
from registry.formats.draft import Producer
from registry.formats.experts.orthogonal import ORTHOGONAL
from registry.formats.experts.routed import ROUTED
from registry.formats.kohya.producer import KOHYA
from registry.formats.mlx.producer import MLX
from registry.formats.nemo.producer import NEMO
from registry.formats.peft.producer import PEFT
from registry.formats.refused import REFUSED
from registry.formats.report import problem
from registry.formats.torchtune.producer import TORCHTUNE

PRODUCERS: Final[tuple[Producer, ...]] = (*REFUSED, ROUTED, ORTHOGONAL, MLX, TORCHTUNE, NEMO, DIFFUSERS, KOHYA, PEFT)
"""The first row that recognises a directory reads it, so a narrower layout stands before a wider one."""


def find_producer(directory: Directory) -> Producer:
    """Who wrote a directory.

    Raises:
        RefusedError: `FILE_MISSING` when it is no layout of the table.
    """
    for producer in PRODUCERS:
        if producer.recognises(directory):
            return producer
    known = ", ".join(producer.name for producer in PRODUCERS)
    hint = "Save the adapter with PEFT's save_pretrained: adapter_config.json and adapter_model.safetensors."
    names = ", ".join(sorted(directory.names)[:8]) or "an empty directory"
    raise RefusedError(problem("FILE_MISSING", ("adapter_config.json",), f"an adapter of {known}", names, hint))
