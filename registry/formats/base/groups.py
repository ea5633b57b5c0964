"""GPTQ's and AWQ's packed Linear layers: integer codes in 32-bit words, a scale and a zero point for each group.

``<module>.qweight``, ``<module>.qzeros``, ``<module>.scales`` and, for GPTQ, ``<module>.g_idx``. GPTQ packs along the
input features, AWQ (its `gemm` layout) along the output features.
"""

from __future__ import annotations

import re
from typing import Final

from registry.errors import RefusedError
from registry.formats.base.stored import Stored
from registry.formats.fields import Fields
from registry.formats.report import problem, shown
from schemas.quantizers import GroupQuantizer

_CODES: Final = re.compile(r"(?P<module>.+)\.qweight")
_WORD: Final = 32
_IGNORABLE: Final = frozenset({
    "backend", "block_name_to_quantize", "cache_block_outputs", "damp_percent", "dataset", "exllama_config",
    "max_input_length", "meta", "model_file_base_name", "model_name_or_path", "model_seqlen",
    "modules_in_block_to_quantize", "modules_to_not_convert", "quantizer", "tokenizer", "true_sequential",
    "use_cuda_fp16", "use_exllama",
})  # fmt: skip
"""How the codes were found and which kernel reads them."""
_READ: Final = frozenset({
    "bits", "checkpoint_format", "desc_act", "group_size", "q_group_size", "quant_method", "sym", "version", "w_bit",
    "zero_point",
})  # fmt: skip
_LAYOUTS: Final = {"gptq": ("gptq", "gptq_v2"), "awq": ("gemm",)}


def read_groups(settings: Fields, stored: Stored) -> GroupQuantizer:
    """The layout of every packed module.

    Raises:
        RefusedError: `QUANT_STATE_INVALID`.
    """
    method = settings.text("quant_method")
    bits = settings.integer("w_bit" if "w_bit" in settings.document else "bits")
    group = settings.integer("group_size", settings.integer("q_group_size", 128))
    layout = settings.text("checkpoint_format" if method == "gptq" else "version", _LAYOUTS[method][0]).lower()
    if layout not in _LAYOUTS[method]:
        settings.refuse("CONFIG_FIELD_VALUE", "version", f"one of {', '.join(_LAYOUTS[method])}", layout)
    if bits not in {2, 3, 4, 8} or (method == "awq" and bits != 4):
        settings.refuse("CONFIG_FIELD_VALUE", "bits", "a number of bits that the layout packs", bits)
    if group != -1 and group < 1:
        settings.refuse("CONFIG_FIELD_VALUE", "group_size", "a number of input features, or -1 for all", group)
    for key in sorted(settings.document.keys() - _IGNORABLE - _READ):
        if settings.document[key]:
            hint = "This setting may change what the codes mean and is not understood; it cannot be dropped."
            settings.refuse("CONFIG_KEY_UNKNOWN", key, "a setting of this packing", settings.document[key], hint)
    if settings.problems:
        raise RefusedError(*settings.problems)
    modules = [match["module"] for name in sorted(stored.entries) if (match := _CODES.fullmatch(name))]
    packed = {module: _shape(module, stored, bits, group, by_rows=method == "gptq") for module in modules}
    if not packed:
        raise _invalid("config.json", "packed weights, as quantization_config says", "none")
    return GroupQuantizer(
        scheme="gptq" if method == "gptq" else "awq",
        bits=bits,
        group_size=None if group == -1 else group,
        symmetric=settings.boolean("sym", True) if method == "gptq" else not settings.boolean("zero_point", True),
        activation_order=settings.boolean("desc_act", False),
        layout=layout,
        packed=packed,
    )


def _shape(module: str, stored: Stored, bits: int, group: int, *, by_rows: bool) -> tuple[int, ...]:
    """The weight's shape [d_out, d_in], held against codes, scales and zero points."""
    codes = _matrix(module, "qweight", stored)
    d_in, d_out = (codes[0] * _WORD // bits, codes[1]) if by_rows else (codes[0], codes[1] * _WORD // bits)
    groups = 1 if group == -1 else -(-d_in // group)
    for leaf, shape in (("scales", (groups, d_out)), ("qzeros", (groups, d_out * bits // _WORD))):
        if _matrix(module, leaf, stored) != shape:
            raise _invalid(f"{module}.{leaf}", shown(list(shape)), list(stored.entries[f"{module}.{leaf}"].shape))
    return d_out, d_in


def _matrix(module: str, leaf: str, stored: Stored) -> tuple[int, int]:
    entry = stored.entries.get(f"{module}.{leaf}")
    if entry is None or len(entry.shape) != 2:
        raise _invalid(f"{module}.{leaf}", "a matrix", entry)
    return entry.shape[0], entry.shape[1]


def _invalid(name: str, expected: str, observed: object) -> RefusedError:
    hint = "Save the quantised model again with its producer."
    return RefusedError(problem("QUANT_STATE_INVALID", (name,), expected, shown(observed), hint))
