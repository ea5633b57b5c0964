"""Packed weights in safetensors: what config.json says of them, held against the tensors that lie beside each weight.

bitsandbytes keeps a small JSON object beside each four-bit weight; GPTQ and AWQ keep codes, scales and zero points
under names of their own. A method, a setting or a tensor that is not understood is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from registry.errors import RefusedError
from registry.formats.base.bitsandbytes import COMPANIONS, read_four_bit, read_int8
from registry.formats.base.groups import read_groups
from registry.formats.base.keys import CONFIG, QUANTIZATION
from registry.formats.base.stored import Stored
from registry.formats.fields import Fields
from registry.formats.report import problem, refuse_all
from schemas.canonical import JsonObject
from schemas.errors import Problem
from schemas.quantizers import Quantizer

_READERS: Final[Mapping[str, Callable[[Fields, Stored], Quantizer]]] = {
    "awq": read_groups,
    "bitsandbytes_4bit": read_four_bit,
    "bitsandbytes_8bit": read_int8,
    "gptq": read_groups,
}


def quantization_method(config: JsonObject) -> str | None:
    """How the weights are packed, null when they are not.

    Raises:
        RefusedError: `BASE_QUANTIZED` for a method that is not understood.
    """
    fields = Fields(config, CONFIG)
    settings = fields.table(QUANTIZATION)
    refuse_all(fields.problems)
    if not settings:
        return None
    method = settings.get("quant_method")
    if method in (None, "bitsandbytes"):
        bits = [number for number in (4, 8) if settings.get(f"load_in_{number}bit")]
        method = f"bitsandbytes_{bits[0]}bit" if len(bits) == 1 else method
    if isinstance(method, str) and method in _READERS:
        return method
    hint = "Register the unquantised weights, or a packing that is listed."
    fields.refuse("BASE_QUANTIZED", QUANTIZATION, f"one of {', '.join(_READERS)}", method, hint)
    raise RefusedError(*fields.problems)


def unread_quantizer(config: JsonObject) -> Literal["none", "not_verified"]:
    """What is known of the packing when no tensor is read: only whether there is one."""
    return "none" if quantization_method(config) is None else "not_verified"


def read_quantizer(config: JsonObject, stored: Stored) -> Quantizer | Literal["none"]:
    """How the stored tensors decode to weights; `none` for plain numbers.

    Raises:
        RefusedError: `BASE_QUANTIZED`, `CONFIG_FIELD_*`, `CONFIG_KEY_UNKNOWN`, `QUANT_STATE_INVALID`,
            `QUANT_STATE_MIXED`.
    """
    method = quantization_method(config)
    if method is None:
        refuse_all(_undeclared(name) for name in sorted(stored.entries) if COMPANIONS.fullmatch(name))
        return "none"
    fields = Fields(Fields(config, CONFIG).table(QUANTIZATION), CONFIG, QUANTIZATION)
    quantizer = _READERS[method](fields, stored)
    refuse_all(fields.problems)
    return quantizer


def _undeclared(name: str) -> Problem:
    hint = "Restore the quantization_config the model was saved with; without it the codes are read as numbers."
    return problem("QUANT_STATE_INVALID", (name,), f"a {QUANTIZATION} in {CONFIG}", "none", hint)
