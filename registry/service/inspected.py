"""What `inspect` returns: a directory in fields, for people and programs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.model import Record


class Group(Record):
    """Modules alike in everything but their layer: their name with `*` for numbers, and what they share.

    `scale` is null where the config gives none before the base is known; `shapes` is ``a`` and ``b``.
    """

    module: str
    count: int
    layers: str
    rank: int
    alpha: float
    scale: float
    rule: str
    order: str | None
    extra: tuple[str, ...]
    shapes: str
    dtype: str


class Remark(Record):
    """A code with what it means and, where there is one, a figure."""

    code: str
    means: str
    figure: float | None = None


class Fault(Record):
    """One thing that registration refuses."""

    code: str
    where: str
    expected: str
    observed: str
    repair: str


class Inspected(Record):
    """An adapter or base directory, not registered.

    Attributes:
        kind: what the directory is, `unknown` where nothing recognises it.
        facts: single facts in the order they are told, each a short text.
        groups: the factors.
        parts: what is beside factors: heads, token rows, biases, with their shapes.
        surprises: conditions.
        problems: what registration would refuse, all of it.
        lanes: which lanes the adapter may enter as it is.
    """

    kind: Literal["adapter", "base", "unknown"]
    directory: str
    facts: dict[str, str]
    groups: tuple[Group, ...] = ()
    parts: dict[str, str] = Field(default_factory=dict)
    surprises: tuple[Remark, ...] = ()
    problems: tuple[Fault, ...] = ()
    lanes: tuple[str, ...] = ()
