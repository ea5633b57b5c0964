"""Layouts known by their files that are no pair of factors, refused by name with the way out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.draft import Draft, Producer
from registry.formats.report import problem


@dataclass(frozen=True)
class RefusedLayout:
    """A row of the table of producers that only refuses.

    Attributes:
        name: the method or format.
        mark: a file name that only this layout has.
        unless: a file name beside which the mark means nothing.
        expected: what could be read instead.
        hint: how to get there.
    """

    name: str
    mark: re.Pattern[str]
    expected: str
    hint: str
    unless: str = ""

    def recognises(self, directory: Directory) -> bool:
        """Whether the mark is there."""
        return self.unless not in directory.names and any(map(self.mark.fullmatch, directory.names))

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """Refuse.

        Raises:
            RefusedError: `LAYOUT_UNSUPPORTED`, always.
        """
        del scratch
        name = min(filter(self.mark.fullmatch, directory.names))
        raise RefusedError(problem("LAYOUT_UNSUPPORTED", (name,), self.expected, self.name, self.hint))


REFUSED: Final[tuple[Producer, ...]] = (
    RefusedLayout(
        name="X-LoRA: a classifier over a pool of adapters",
        mark=re.compile(r"xlora_(?:config\.json|classifier\.(?:safetensors|pt))"),
        expected="one adapter",
        hint="Register each adapter of the pool from its own folder; the classifier is a router over them.",
    ),
    RefusedLayout(
        name="a GGUF adapter of llama.cpp",
        mark=re.compile(r".+\.gguf"),
        expected="an adapter as safetensors",
        hint="Register the directory it was converted from; the conversion reorders rows and drops the base's names.",
        unless="adapter_config.json",
    ),
    RefusedLayout(
        name="a distributed checkpoint",
        mark=re.compile(r".+\.distcp"),
        expected="an adapter as safetensors",
        hint="Export it in the hub's format, in NeMo 2 with llm.export_ckpt and target hf-peft.",
    ),
)
