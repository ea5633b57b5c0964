"""How a base's weights are packed: the ABI under which stored codes become numbers (V 0x02, 0x0AF).

A packed base is the same base only under the same codebook, block size and scales. The bytes of codes, scales and
codebooks are weights with digests of their own; a record here says how they combine. The dtype that a matrix product
runs in is chosen when a base is loaded, so it is no part of these records (V 0x02 keeps the four settings apart).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.digests import Digest
from schemas.model import Count, Finite, Identifier, ModuleName, Record

Shape = tuple[Count, ...]


class ScaleLevel(Record):
    """One level of scales: each covers `block` consecutive values of the level below.

    `codebook` is the table that decodes the scales themselves, `none` where they are plain numbers. `centred` scales
    were stored less their mean, which is added back after decoding.
    """

    block: Count
    dtype: Identifier
    codebook: Digest | Literal["none"]
    centred: bool


class PackedWeights(Record):
    """Modules whose weight is stored packed, with the weight's own shape in elements."""

    packed: dict[ModuleName, Shape]


class BitsAndBytes4Quantizer(PackedWeights):
    """bitsandbytes' four-bit layout: two codes a byte, the first in the high nibble, in row-major order.

    A value is ``codebook[code] * scale``; `scales` begins with the level that covers codes, and each further level
    scales the one before it. `dtype` is that of the decoded weight.
    """

    scheme: Literal["bitsandbytes_4bit"]
    quant_type: Literal["nf4", "fp4"]
    codebook: Digest
    scales: Annotated[tuple[ScaleLevel, ...], Field(min_length=1)]
    dtype: Identifier


class BitsAndBytes8Quantizer(PackedWeights):
    """bitsandbytes' row-wise int8 layout: ``code * SCB[row] / 127``.

    Input columns with a value above `threshold` are multiplied in half precision, so the threshold changes results.
    """

    scheme: Literal["bitsandbytes_8bit"]
    threshold: Finite


class GroupQuantizer(PackedWeights):
    """GPTQ and AWQ: integer codes with a scale and a zero point for each group of input features.

    `group_size` null is one group for all. `layout` is how codes lie in 32-bit words, by the producer's own name.
    """

    scheme: Literal["awq", "gptq"]
    bits: Count
    group_size: Count | None
    symmetric: bool
    activation_order: bool
    layout: Identifier


class BlockLayout(Record):
    """A block type of GGUF: so many elements in so many bytes; codes and scales inside are fixed by its name."""

    elements: Count
    size: Count


class GgufQuantizer(Record):
    """GGUF: `blocks` are the types in use, each weight names its own as dtype.

    Names are translated to those of transformers by the rule of `architecture`. `rotary_rows` is the order of the rows
    of query and key weights: `interleaved` pairs rows that are rotated together, `halves` is transformers' order.
    """

    scheme: Literal["gguf"]
    architecture: Identifier
    rotary_rows: Literal["halves", "interleaved"]
    blocks: dict[Identifier, BlockLayout]


Quantizer = Annotated[
    BitsAndBytes4Quantizer | BitsAndBytes8Quantizer | GgufQuantizer | GroupQuantizer, Field(discriminator="scheme")
]
