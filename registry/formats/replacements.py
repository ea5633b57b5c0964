"""Full tensors an adapter brings, held against the base: shapes, rows, and tables the base ties to its output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from registry.formats.base.modules import Layer
from registry.formats.draft import Draft
from registry.formats.factors import FACTOR_DTYPES
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import TensorEntry
from schemas.adapter import ROWS, VALUES
from schemas.base import BaseManifest
from schemas.errors import Problem

_TIED_HINT: Final = "Untie the base's embeddings, save it so, and train the adapter on that base."


def replacement_problems(draft: Draft, names: Mapping[str, str], base: BaseManifest) -> list[Problem]:
    """What is wrong with replaced tensors, by the base's names of them.

    Problems: `FACTOR_DTYPE`, `REPLACEMENT_SHAPE` (a vocabulary of another length among them), `TOKEN_ROWS`.
    """
    problems = []
    for name, entry in draft.replacements.items():
        shape = _shape(base, names[name].partition("#")[0])
        if entry.dtype not in FACTOR_DTYPES and not name.endswith(ROWS):
            expected = f"one of {', '.join(FACTOR_DTYPES)}"
            problems.append(problem("FACTOR_DTYPE", entry.place, expected, entry.dtype, "Save it in one of these."))
        if shape is not None and not name.endswith(ROWS):
            problems += _shape_problems(name, entry, shape, draft.last_rows)
    return problems


def tied_factors(modules: Mapping[str, TensorEntry], known: Mapping[str, Layer]) -> list[Problem]:
    """`TIED_MODULE_ADAPTED` for factors on a table the base uses as input and output embedding at once.

    Live, such an adapter changes one side, merged, both: it has no one meaning.
    """
    shared = _shared(known)
    return [
        _tied(entry, module)
        for module, entry in modules.items()
        if module in known and known[module].kind != "parameter" and known[module].weights[0] in shared
    ]


def tied_replacements(names: Mapping[str, TensorEntry], known: Mapping[str, Layer]) -> list[Problem]:
    """The same for a table or head that is replaced whole."""
    shared = _shared(known)
    ties = {f"{name}.weight" for name, layer in known.items() if layer.weights[0] in shared} | shared
    return [_tied(entry, name) for name, entry in names.items() if name in ties]


def _shared(known: Mapping[str, Layer]) -> frozenset[str]:
    uses = Counter(layer.weights[0] for layer in known.values() if layer.kind in {"embedding", "linear"})
    return frozenset(weight for weight, times in uses.items() if times > 1)


def _shape(base: BaseManifest, name: str) -> tuple[int, ...] | None:
    weight = None if isinstance(base.weights, str) else base.weights.get(name)
    return None if weight is None else weight.shape


def _shape_problems(
    name: str, entry: TensorEntry, shape: tuple[int, ...], last_rows: Mapping[str, int]
) -> list[Problem]:
    if not name.endswith(VALUES):
        return [] if entry.shape == shape else [_other_shape(entry, shape)]
    last = last_rows.get(name.removesuffix(VALUES), -1)
    if entry.shape[1:] == shape[1:] and last < shape[0]:
        return []
    hint = "The tokenizer was extended: resize the base's table, save that base and register the adapter against it."
    observed = f"row {last} of {shown(list(entry.shape))}"
    return [problem("TOKEN_ROWS", entry.place, f"rows of a table {shown(list(shape))}", observed, hint)]


def _other_shape(entry: TensorEntry, shape: tuple[int, ...]) -> Problem:
    grown = len(shape) == 2 and entry.shape[1:] == shape[1:]
    hint = (
        "The vocabulary was resized: save the resized base, register it, and register the adapter against it."
        if grown
        else "This adapter was trained on a model of other dimensions."
    )
    observed = shown(list(entry.shape))
    return problem("REPLACEMENT_SHAPE", entry.place, f"{shown(list(shape))}, as in the base", observed, hint)


def _tied(entry: TensorEntry, name: str) -> Problem:
    expected, observed = "a layer with a weight of its own", f"{name} shares its weight with another layer"
    return problem("TIED_MODULE_ADAPTED", entry.place, expected, observed, _TIED_HINT)
