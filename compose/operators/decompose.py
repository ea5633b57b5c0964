"""Singular triplets as a factor pair, with a fixed sign."""

from __future__ import annotations

import torch
from torch import Tensor

from compose.shapes import FactorA, FactorB, Values
from schemas.methods import Choices, SvdChoices


def svd_choices(choices: Choices) -> SvdChoices:
    """The choices made, or the defaults."""
    return choices.svd or SvdChoices()


def pair(u: FactorB, s: Values, vh: FactorA, choices: SvdChoices) -> tuple[Tensor, Tensor]:
    """``B = U S, A = V^T`` (split `b`), or ``B = U sqrt S, A = sqrt S V^T`` (split `sqrt`); ``B A`` is the same (R
    0x05C).

    Signs are fixed so that the entry of largest magnitude in each row of A, the first of equals, is positive.
    """
    signs = _row_signs(vh)
    if choices.split == "sqrt":
        root = s.sqrt() * signs
        return u * root, vh * root[:, None]
    return u * (s * signs), vh * signs[:, None]


def _row_signs(rows: FactorA) -> Values:
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True)).squeeze(1)
    return torch.where(largest < 0, -1.0, 1.0).to(rows.dtype)
