"""An adapter or base directory in short texts: family, modules and scales in groups, parts, and lanes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Final

from registry.formats import BaseReading
from registry.formats.base.modules import layers
from registry.formats.draft import Draft, Piece
from registry.formats.look import Look
from registry.formats.safetensors_file import TensorEntry
from registry.service.inspected import Group
from schemas.adapter import ROWS, VALUES
from schemas.base import BaseManifest
from schemas.catalogue.methods import method

_NUMBER: Final = re.compile(r"(?<![^.])\d+(?![^.])")
_TOLD: Final = (
    "peft_version", "base_model_name_or_path", "task_type", "init_lora_weights", "init_r", "target_r", "target_modules",
    "lora_dropout",
)  # fmt: skip
_PAYLOADS: Final = {
    "portable": "portable: meant for the base as it is",
    "native": "native: right only on the base its initializer changed",
    "resume": "resume: holds the state to train on",
}
_FORMS: Final = {
    "additive": "adds s B A to the weight",
    "triplets": "adds s B (E A) to the weight",
    "normalized": "not additive: every output gets the norm its magnitude vector says",
    "residual": "adds s B A to a residual of the weight",
    "coupled": "adds s B A to a quantised residual of the weight",
    "activated": "adds s B A from the invocation tokens on, so it is no one matrix",
    "pooled_input": "adds s B A of inputs averaged in groups",
    "block_diagonal": "adds s B A with blocks on a diagonal",
    "diagonal": "adds s B diag A to a truncated weight",
    "routed": "adds a routed mixture of experts, no one matrix",
}


def adapter_facts(look: Look, base: BaseManifest | None) -> dict[str, str]:
    """Single facts in the order they are told."""
    draft = look.draft
    assert draft is not None
    row = method(draft.family)
    facts = {
        "producer": draft.producer,
        "family": draft.family if row is None else f"{draft.family} ({row.name})",
        "initializer": draft.initializer,
        "payload": _PAYLOADS[draft.payload],
        "effect": "not known" if row is None or row.contract is None else _FORMS[row.contract.form],
        "tensors": _tensors(draft),
        "base": _base_fact(look, base),
        **_weights_fact(look),
        "completeness": _completeness(look),
    }
    facts |= {f"training {key}": value for key, value in draft.training.items()}
    return facts | {key: _note(draft.notes[key]) for key in _TOLD if draft.notes.get(key) not in (None, ())}


def groups_of(look: Look) -> tuple[Group, ...]:
    """Factors that differ by their layer alone, once each."""
    draft = look.draft
    assert draft is not None
    orders = {} if look.found is None else {id(placed.piece): placed.order for placed in look.found.placed}
    found: defaultdict[Group, list[str]] = defaultdict(list)
    for piece in draft.pieces:
        found[_group(piece, orders.get(id(piece)))].append(piece.module)
    return tuple(
        group.model_copy(update={"count": len(modules), "layers": _layers(modules)})
        for group, modules in sorted(found.items(), key=lambda item: (item[0].module, item[0].rank))
    )


def parts_of(look: Look) -> dict[str, str]:
    """Tensors that replace something of the base, or are a copy of it, with their shapes."""
    draft = look.draft
    assert draft is not None
    parts = {}
    for name, entry in sorted(draft.replacements.items()):
        if name.endswith(ROWS):
            continue
        kind = "trained rows" if name.endswith(VALUES) else "whole tensor"
        parts[name.removesuffix(VALUES)] = f"{kind} {list(entry.shape)} {entry.dtype}"
    return parts


def lanes_of(look: Look) -> tuple[str, ...]:
    """The lanes it may enter as it is: its family's own, and a static sum for portable plain factors."""
    draft = look.draft
    assert draft is not None
    row = method(draft.family)
    own = () if row is None or row.lane is None else (row.lane,)
    additive = row is not None and row.contract is not None and row.contract.form == "additive"
    plain = all(piece.tensors.keys() == {"a", "b"} for piece in draft.pieces)
    straight = look.found is None or all(placed.order == "B@A" for placed in look.found.placed)
    lasting = draft.payload == "portable" and not look.remarks.conditions
    return (*own, "static_fusion") if additive and plain and straight and lasting else own


def base_facts(reading: BaseReading) -> dict[str, str]:
    """What headers and configuration say of a base."""
    base = reading.manifest
    kinds = Counter[str](layer.kind for layer in layers(base).values())
    weights = {} if isinstance(base.weights, str) else base.weights
    dtypes = Counter(weight.dtype for weight in weights.values())
    return {
        "model_type": base.architecture.model_type,
        "weights": f"{len(weights)} tensors, {_counted(dtypes)}",
        "layers": _counted(kinds),
        "tokenizer": "none" if base.tokenizer == "none" else f"{base.tokenizer.length} ids",
        "quantizer": "none" if base.quantizer == "none" else "quantised",
        "files": ", ".join(file.path for file in reading.files),
    }


def _entries(draft: Draft) -> Iterable[TensorEntry]:
    return chain(chain.from_iterable(piece.tensors.values() for piece in draft.pieces), draft.replacements.values())


def _tensors(draft: Draft) -> str:
    entries = list(_entries(draft))
    dtypes = Counter(entry.dtype for entry in entries)
    size = sum(entry.length for entry in entries)
    return f"{len(entries)} ({_counted(dtypes)}), {size} bytes; {len(draft.pieces)} modules"


def _weights_fact(look: Look) -> dict[str, str]:
    """Whether plain factors were compared with the weights they are for; others repeat them on purpose."""
    draft = look.draft
    if draft is None or look.found is None or (draft.payload, draft.initializer) != ("portable", "none"):
        return {}
    found = look.remarks.notes.get("base_correlation")
    told = "not verified: none of them can be read" if found is None else f"correlation {found} with the factors"
    return {"base weights": told}


def _base_fact(look: Look, base: BaseManifest | None) -> str:
    if base is None or look.draft is None:
        return "not given: names, shapes and completeness are not checked"
    if look.found is None:
        return "given, not reached"
    witnessed = f", witnessed by {look.copies} of its tensors" if look.copies else ""
    rule = look.found.naming.wrapper.rule
    return f"{len(look.found.placed)} of {len(look.draft.pieces)} modules fit, name rule {rule}{witnessed}"


def _completeness(look: Look) -> str:
    if look.found is None:
        return "not checked"
    if look.draft is not None and look.draft.targets is None:
        return "no configuration says what is complete"
    missing = sum(item.code == "MODULES_MISSING" for item in look.problems)
    return f"{missing} targeted modules are missing" if missing else "every targeted module has its factors"


def _group(piece: Piece, order: str | None) -> Group:
    a, b = piece.tensors["a"], piece.tensors["b"]
    return Group(
        module=_NUMBER.sub("*", piece.module) + ("" if not piece.parameters else f" ({', '.join(piece.parameters)})"),
        count=1,
        layers="",
        rank=piece.rank if piece.rank is not None else (a.shape[0] if a.shape else 0),
        alpha=piece.scale.alpha,
        scale=piece.scale.value,
        rule=piece.scale.rule,
        order=order,
        extra=tuple(sorted(piece.tensors.keys() - {"a", "b"})),
        shapes=f"{list(a.shape)} {list(b.shape)}",
        dtype=a.dtype,
    )


def _layers(modules: list[str]) -> str:
    """The first numbers of module names as ranges: `0-5`, `0, 2-4`."""
    numbers = sorted({int(match[0]) for name in modules for match in [_NUMBER.search(name)] if match})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _note(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
