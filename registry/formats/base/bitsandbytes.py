"""bitsandbytes' packed Linear layers (bitsandbytes 0.40 to 0.50, `QuantState.as_dict` and `Linear8bitLt`).

Four bits: ``<module>.weight`` holds two codes a byte; beside it lie ``.absmax``, ``.quant_map`` (the codebook), the
same two again as ``.nested_*`` when scales are quantised themselves, and ``.quant_state.bitsandbytes__<type>``, a JSON
object. Eight bits: ``<module>.weight`` holds int8 codes, ``<module>.SCB`` the largest magnitude of each row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, isfinite, prod
from typing import Final

from registry.errors import RefusedError
from registry.formats.base.stored import Stored
from registry.formats.directory import json_object
from registry.formats.fields import Fields
from registry.formats.report import located, problem, refuse_all, shown
from schemas.canonical import SAFE_INTEGER
from schemas.digests import Digest
from schemas.quantizers import BitsAndBytes4Quantizer, BitsAndBytes8Quantizer, ScaleLevel

COMPANIONS: Final = re.compile(
    r"(?P<module>.+)\.(?:weight\.(?:(?:nested_)?(?:absmax|quant_map)|quant_state\.bitsandbytes__(?:nf4|fp4))|SCB)"
)
_STATE: Final = re.compile(r"(?P<module>.+)\.weight\.quant_state\.bitsandbytes__(?P<kind>nf4|fp4)")
_SCB: Final = re.compile(r"(?P<module>.+)\.SCB")
_IGNORABLE: Final = frozenset({
    "_load_in_4bit", "_load_in_8bit", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant", "llm_int8_enable_fp32_cpu_offload", "llm_int8_skip_modules", "llm_int8_threshold",
    "load_in_4bit", "load_in_8bit", "quant_method",
})  # fmt: skip
"""The compute dtype is chosen anew at every load; the others are read, or said again by the tensors."""
_DTYPES: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_STATE_KEYS: Final = frozenset({"blocksize", "dtype", "quant_type", "shape"})
_NESTED_KEYS: Final = frozenset({"nested_blocksize", "nested_dtype", "nested_offset"})
_CODES: Final = 16
_SCALE_CODES: Final = 256
_REPAIR: Final = "Save the quantised model again with transformers."


@dataclass(frozen=True)
class _Layout:
    """What every packed module of a base has in common."""

    quant_type: str
    codebook: Digest
    scales: tuple[ScaleLevel, ...]
    dtype: str


def read_four_bit(settings: Fields, stored: Stored) -> BitsAndBytes4Quantizer:
    """The four-bit layout of every packed module, which must be one.

    Raises:
        RefusedError: `QUANT_STATE_INVALID`, `QUANT_STATE_MIXED`, `CONFIG_KEY_UNKNOWN`, `CONFIG_FIELD_CONFLICT`.
    """
    _refuse_settings(settings)
    states = {match["module"]: match for name in sorted(stored.entries) if (match := _STATE.fullmatch(name))}
    _refuse_strays(stored, states.keys())
    packed, layouts = {}, {}
    for module, match in states.items():
        packed[module], layouts[module] = _module(module, match[0], stored)
    layout = _one(layouts)
    for key, value in (
        ("bnb_4bit_quant_type", layout.quant_type),
        ("bnb_4bit_use_double_quant", len(layout.scales) > 1),
    ):
        if settings.document.get(key, value) != value:
            settings.refuse("CONFIG_FIELD_CONFLICT", key, f"{value}, as the tensors say", settings.document[key])
    return BitsAndBytes4Quantizer(
        scheme="bitsandbytes_4bit",
        quant_type="nf4" if layout.quant_type == "nf4" else "fp4",
        codebook=layout.codebook,
        scales=layout.scales,
        dtype=layout.dtype,
        packed=packed,
    )


def read_int8(settings: Fields, stored: Stored) -> BitsAndBytes8Quantizer:
    """The row-wise int8 layout.

    Raises:
        RefusedError: `QUANT_STATE_INVALID`, `CONFIG_KEY_UNKNOWN`.
    """
    _refuse_settings(settings)
    modules = [match["module"] for name in sorted(stored.entries) if (match := _SCB.fullmatch(name))]
    _refuse_strays(stored, modules)
    packed: dict[str, tuple[int, ...]] = {}
    for module in modules:
        weight = stored.entries.get(f"{module}.weight")
        rows = stored.entries[f"{module}.SCB"].shape
        if weight is None or weight.dtype != "I8" or len(weight.shape) != 2 or rows != weight.shape[:1]:
            raise _invalid(f"{module}.weight", "int8 codes with a scale for each row", weight)
        layout = f"{module}.weight_format"
        if layout in stored.entries and any(stored.small(layout)[0]):
            raise _invalid(layout, "0, the row layout", stored.small(layout)[0])
        packed[module] = weight.shape
    if not packed:
        raise _nothing_packed()
    threshold = settings.number("llm_int8_threshold", 6.0)
    return BitsAndBytes8Quantizer(scheme="bitsandbytes_8bit", threshold=threshold, packed=packed)


def _refuse_settings(settings: Fields) -> None:
    for key, value in settings.document.items():
        if key not in _IGNORABLE and value:
            hint = "This setting may change what the codes mean and is not understood; it cannot be dropped."
            settings.refuse("CONFIG_KEY_UNKNOWN", key, "a setting known for this packing", value, hint)


def _refuse_strays(stored: Stored, modules: Collection[str]) -> None:
    """Scales and codebooks of a module that has no state: its codes cannot be read."""
    refuse_all(
        problem("QUANT_STATE_INVALID", (name,), "the state of its module beside it", "none", _REPAIR)
        for name in sorted(stored.entries)
        if (match := COMPANIONS.fullmatch(name)) and match["module"] not in modules
    )


def _module(module: str, state_name: str, stored: Stored) -> tuple[tuple[int, ...], _Layout]:
    """One module's shape in elements and its layout, held against the tensors beside it."""
    weight = f"{module}.weight"
    state = _state(state_name, stored)
    shape = _shape(state, state_name)
    _expect(stored, weight, None, (prod(shape) + 1) // 2, "two codes a byte")
    count = ceil(prod(shape) / state.integer("blocksize"))
    nested = "nested_blocksize" in state.document
    _expect(stored, f"{weight}.absmax", "U8" if nested else "F32", count, "a scale for each block")
    codebook = _codebook(stored, f"{weight}.quant_map", _CODES)
    scales = [_level(state.integer("blocksize"), stored.entries[f"{weight}.absmax"].dtype)]
    if nested:
        inner = ceil(count / state.integer("nested_blocksize"))
        _expect(stored, f"{weight}.nested_absmax", "F32", inner, "a scale for each block of scales")
        table = _codebook(stored, f"{weight}.nested_quant_map", _SCALE_CODES)
        scales[0] = ScaleLevel(block=scales[0].block, dtype="U8", codebook=table, centred=True)
        scales.append(_level(state.integer("nested_blocksize"), "F32"))
    return shape, _Layout(state.text("quant_type"), codebook, tuple(scales), _DTYPES[state.text("dtype")])


def _level(block: int, dtype: str) -> ScaleLevel:
    return ScaleLevel(block=block, dtype=dtype, codebook="none", centred=False)


def _state(name: str, stored: Stored) -> Fields:
    """The JSON object of a module, every field of it understood."""
    with located(name):
        document = json_object(stored.small(name)[0])
    state = Fields(document, name)
    nested = _NESTED_KEYS if _NESTED_KEYS & document.keys() else frozenset()
    for key in sorted(document.keys() ^ (_STATE_KEYS | nested)):
        state.refuse("QUANT_STATE_INVALID", key, "exactly the fields bitsandbytes writes", document.get(key), _REPAIR)
    kind = name.rpartition("__")[2]
    if state.text("quant_type", kind) != kind:
        state.refuse("QUANT_STATE_INVALID", "quant_type", kind, document["quant_type"], _REPAIR)
    if state.text("dtype", "float32") not in _DTYPES:
        state.refuse("QUANT_STATE_INVALID", "dtype", f"one of {', '.join(_DTYPES)}", document["dtype"], _REPAIR)
    for key in sorted({"blocksize", "nested_blocksize"} & document.keys()):
        if state.integer(key) < 1:
            state.refuse("QUANT_STATE_INVALID", key, "a number of values", document[key], _REPAIR)
    if nested and (
        state.text("nested_dtype", "float32") != "float32" or not isfinite(state.number("nested_offset", 0.0))
    ):
        state.refuse("QUANT_STATE_INVALID", "nested_dtype", "float32 scales with a finite mean", document, _REPAIR)
    refuse_all(state.problems)
    return state


def _shape(state: Fields, name: str) -> tuple[int, ...]:
    value = state.document.get("shape")
    shape = tuple(item for item in value if type(item) is int and item > 0) if isinstance(value, list) else ()
    if not isinstance(value, list) or len(shape) != len(value) or len(shape) != 2 or prod(shape) > SAFE_INTEGER:
        raise _invalid(name, "two dimensions", value)
    return shape


def _expect(stored: Stored, name: str, dtype: str | None, size: int, what: str) -> None:
    """A tensor beside a packed weight: there, of this dtype and of this size, in elements or (no dtype) in bytes."""
    entry = stored.entries.get(name)
    found = None if entry is None else entry.length if dtype is None else prod(entry.shape)
    if entry is None or found != size or dtype not in {None, entry.dtype}:
        observed = None if entry is None else (entry.dtype, list(entry.shape))
        raise _invalid(name, f"{what}: {size} of {dtype or 'any dtype, in bytes'}", observed)


def _codebook(stored: Stored, name: str, count: int) -> Digest:
    _expect(stored, name, "F32", count, "a codebook")
    return stored.small(name)[1]


def _one(layouts: Mapping[str, _Layout]) -> _Layout:
    if not layouts:
        raise _nothing_packed()
    first = next(iter(layouts))
    other = next((module for module in layouts if layouts[module] != layouts[first]), None)
    if other is None:
        return layouts[first]
    hint = "Save the model again with one packing for all its layers."
    expected, observed = shown(layouts[first]), shown(layouts[other])
    raise RefusedError(problem("QUANT_STATE_MIXED", (other,), expected, observed, hint))


def _nothing_packed() -> RefusedError:
    return _invalid("config.json", "packed weights, as quantization_config says", "none")


def _invalid(name: str, expected: str, observed: object) -> RefusedError:
    return RefusedError(problem("QUANT_STATE_INVALID", (name,), expected, shown(observed), _REPAIR))
