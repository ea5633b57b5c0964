"""What one producer's grammar makes of a directory before any base is asked: the common form of every adapter.

A producer translates names, packings and scales; it never rebases, rescales or drops. What it cannot place it refuses
by name. The checks against a base, the reading of values and the manifest are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from registry.formats.directory import Directory
from registry.formats.readings import FileReading, Note
from registry.formats.safetensors_file import TensorEntry
from schemas.adapter import Scale
from schemas.base import BaseManifest
from schemas.errors import Problem

Payload = Literal["portable", "native", "resume"]
Targets = Callable[[str, str, bool], bool]
"""Whether a config adapts a module: its name as the file would name it, its layer kind (`linear`, `embedding`, ...),
and whether it is an output embedding."""


@dataclass(frozen=True)
class Piece:
    """The tensors of one factor as one producer stores them.

    Attributes:
        module: the module path as the file names it; wrapper rules translate it to the base's.
        tensors: entries by role. Every factor has `a` [r, d_in] and `b` [d_out, r] (convolutions with their kernel
            dimensions, embeddings with d_in = rows of the table); further roles are extras: magnitude, bias, E, ...
        scale: the multiplier of ``delta = s B A``.
        source: the catalogue row whose contract the factor follows.
        rank: what the config says; null where only the tensors say it.
        expert: index of one expert of several on this module.
        parameters: where parameters of the module are adapted as a whole, the names this factor can be of; which one
            it is the base's shapes tell.
        pooled: input features averaged into one before a (QA-LoRA), so that a has d_in / pooled columns.
        oriented: for a stacked parameter, b has the outputs and a the inputs also where both are as many.
    """

    module: str
    tensors: Mapping[str, TensorEntry]
    scale: Scale
    source: str
    rank: int | None = None
    expert: int | None = None
    map_head: int | None = None
    route_side: str | None = None
    parameters: tuple[str, ...] = ()
    pooled: int = 1
    oriented: bool = False


@dataclass(frozen=True, eq=False)
class Draft:
    """An adapter in the common form, not yet held against a base. Two are never equal, so that one can be a key.

    Attributes:
        producer: who wrote the directory, by the name of its row in the table of producers.
        pieces: the factors.
        files: the small files already read, with their digests; part of the packaging.
        weights: names of the safetensors files in the directory whose tensors the pieces name.
        made: names of safetensors files the producer wrote into the scratch folder: stored tensors in another
            arrangement, moved byte for byte.
        replacements: full tensors (heads, saved modules) by the name the file gives the base's tensor; rows of a table
            as two, the name with `#rows` and `#values` behind it.
        last_rows: the highest row replaced, by the table's name.
        targets: which modules the config means, for completeness; null where no config says.
        conditions: codes a reader should know.
        problems: what is wrong already; refused together with what the base shows.
        router_tensors: names of router tensors in the file, kept as bytes.
        beside: names of tensor files that are the run's and not the adapter's, such as earlier snapshots; not kept.
        bind: what the grammar can only say beside a base: flattened names, rows by head. Null where it needs none.
    """

    producer: str
    pieces: tuple[Piece, ...]
    files: tuple[FileReading, ...]
    weights: tuple[str, ...]
    family: str
    initializer: str = "none"
    payload: Payload = "portable"
    made: tuple[str, ...] = ()
    replacements: Mapping[str, TensorEntry] = field(default_factory=dict)
    last_rows: Mapping[str, int] = field(default_factory=dict)
    training: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Note] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    targets: Targets | None = None
    router_tensors: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    bind: Callable[[BaseManifest], Draft] | None = None

    def on(self, base: BaseManifest) -> Draft:
        """The draft beside a base, with what only a base can say.

        Raises:
            RefusedError: what the producer's grammar refuses beside it.
        """
        return self if self.bind is None else self.bind(base)


class Producer(Protocol):
    """A row of the table of producers."""

    @property
    def name(self) -> str:
        """The producer's name, as drafts and refusals call it."""
        ...

    def recognises(self, directory: Directory) -> bool:
        """Whether the directory is laid out as this producer does it; reads small files at most."""
        ...

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """The adapter in the common form.

        Args:
            directory: checked and without pickles.
            scratch: an empty folder for rearranged tensors (`Draft.made`); it outlives the reading.

        Raises:
            RefusedError: what this grammar refuses, by key, field or file.
        """
        ...
