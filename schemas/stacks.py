"""Experts of a mixture that newer releases hold as one stacked parameter and checkpoints store one by one.

A stacked parameter is ``[experts, d_out, d_in]`` in every model type listed here, which is what tells the axes of a
square one apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Stack:
    """How a model type names its experts.

    `stored` is the path of the stored experts behind a layer's, before the number; `loaded` gives the stacked
    parameter's path, for each the leaves whose rows follow each other in it.
    """

    stored: str
    loaded: Mapping[str, tuple[str, ...]]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The name of one expert's matrix, with groups `before`, `expert` and `leaf`."""
        leaves = "|".join(leaf for leaves in self.loaded.values() for leaf in leaves)
        path = re.escape(self.stored)
        return re.compile(rf"(?P<before>.*){path}\.(?P<expert>\d+)\.(?P<leaf>{leaves})\.weight")

    def parts(self, module: str) -> tuple[str, tuple[str, ...]] | None:
        """A stacked parameter's path before the experts and its leaves; null for another module."""
        for loaded, leaves in self.loaded.items():
            if module == loaded or module.endswith(f".{loaded}"):
                return module.removesuffix(loaded), leaves
        return None

    def shape(self, module: str, stored: Callable[[str], Shape | None]) -> Shape | None:
        """The shape of a stacked parameter whose experts are stored one by one, each leaf in one shape; else null.

        `stored` gives the shape of a weight by name, null for none.
        """
        found = self.parts(module)
        if found is None:
            return None
        before, leaves = found
        experts: list[tuple[Shape, ...]] = []
        while None not in (each := [stored(self.name(before, len(experts), leaf)) for leaf in leaves]):
            experts.append(tuple(shape for shape in each if shape is not None))
        if len(set(experts)) != 1:
            return None
        return (len(experts), sum(shape[0] for shape in experts[0]), *experts[0][0][1:])

    def name(self, before: str, expert: int, leaf: str) -> str:
        """The stored name of one expert's matrix."""
        return f"{before}{self.stored}.{expert}.{leaf}.weight"


_MIXTRAL: Final = Stack(
    "block_sparse_moe.experts", {"mlp.experts.gate_up_proj": ("w1", "w3"), "mlp.experts.down_proj": ("w2",)}
)
_QWEN: Final = Stack(
    "mlp.experts",
    {"mlp.experts.gate_up_proj": ("gate_proj", "up_proj"), "mlp.experts.down_proj": ("down_proj",)},
)
STACKS: Final[Mapping[str, Stack]] = MappingProxyType({"mixtral": _MIXTRAL, "qwen2_moe": _QWEN, "qwen3_moe": _QWEN})
"""By model type."""
