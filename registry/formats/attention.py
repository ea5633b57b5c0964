"""How many heads the attention of a base has, for producers that lay the rows of its projections their own way."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.architectures import Decoder, Phi3Architecture
from schemas.base import BaseManifest


@dataclass(frozen=True)
class Heads:
    """Attention heads, key and value heads, and the rows of one head in a projection's output."""

    heads: int
    groups: int
    head_dim: int


def heads_of(base: BaseManifest) -> Heads | None:
    """The heads of a decoder whose query, key and value are separate layers; null for every other base."""
    found = base.architecture
    if not isinstance(found, Decoder) or isinstance(found, Phi3Architecture):
        return None
    return Heads(found.num_attention_heads, found.num_key_value_heads, found.head_dim)
