"""Where the factors of many members lie, in a few bytes each: the rest is said once for all that say the same.

As objects the 28,672 tensors of 64 members on 224 modules would take 9 MiB, several times what a module in work does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, overload

from compose.request import FactorSource, TensorSource

Form = tuple[str, int, TensorSource, TensorSource, tuple[int, ...], int | None]
"""A factor without its scale and the places of its tensors: module, rank, a, b, kernel, experts."""
Forms = dict[Form, Form]
_NOWHERE: Final = Path()


class PackedFactors(Sequence[FactorSource]):
    """One member's factors, made when they are asked for; `forms` are shared with those of other members."""

    def __init__(self, factors: Iterable[FactorSource], forms: Forms) -> None:
        self._forms: list[Form] = []
        self._scales, self._places = array("d"), array("Q")
        files: dict[Path, int] = {}
        for factor in factors:
            form = (factor.module, factor.rank, _form(factor.a), _form(factor.b), factor.kernel, factor.experts)
            self._forms.append(forms.setdefault(form, form))
            self._scales.append(factor.scale)
            for tensor in (factor.a, factor.b):
                self._places.extend((files.setdefault(tensor.path, len(files)), tensor.offset))
        self._files = tuple(files)

    def __len__(self) -> int:
        return len(self._forms)

    def __iter__(self) -> Iterator[FactorSource]:
        return map(self._at, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> FactorSource: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FactorSource]: ...
    def __getitem__(self, index: int | slice) -> FactorSource | Sequence[FactorSource]:
        positions = range(len(self))[index]
        return self._at(positions) if isinstance(positions, int) else [self._at(one) for one in positions]

    def _at(self, index: int) -> FactorSource:
        module, rank, a, b, kernel, experts = self._forms[index]
        return FactorSource(
            module,
            rank,
            self._scales[index],
            self._placed(a, 4 * index),
            self._placed(b, 4 * index + 2),
            kernel,
            experts,
        )

    def _placed(self, form: TensorSource, at: int) -> TensorSource:
        file, offset = self._places[at], self._places[at + 1]
        return TensorSource(self._files[file], offset, form.length, form.dtype, form.shape)


def _form(tensor: TensorSource) -> TensorSource:
    return TensorSource(_NOWHERE, 0, tensor.length, tensor.dtype, tensor.shape)
