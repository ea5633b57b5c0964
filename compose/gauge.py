"""The balanced gauge: one pair for each delta, whatever pair it was trained as."""

from __future__ import annotations

import torch

from compose.shapes import FactorA, FactorB, OtherA, OtherB


def balanced(b: FactorB, a: FactorA) -> tuple[FactorB, FactorA]:
    """``B = U sqrt(S), A = sqrt(S) V^T`` of the same delta, rank kept: ``B^T B = A A^T = S``.

    From thin QR of both sides and the SVD of the r x r core. The largest entry of each row of A is positive, so that
    pairs that differ by any invertible ``(B M^-1, M A)`` give one answer up to rounding. In the dtype of the inputs.
    """
    left, right = torch.linalg.qr(b), torch.linalg.qr(a.T)
    u, s, vt = torch.linalg.svd(left.R @ right.R.T)
    kept = s.sqrt()
    count = len(kept)
    b_new = left.Q @ (u[:, :count] * kept)
    a_new = (right.Q @ (vt[:count].T * kept)).T
    sign = torch.sign(a_new.gather(1, a_new.abs().argmax(dim=1, keepdim=True)))
    sign = torch.where(sign == 0, torch.ones_like(sign), sign)
    return _padded(b_new * sign.T, a_new * sign, a.shape[0])


def _padded(b: OtherB, a: OtherA, rank: int) -> tuple[FactorB, FactorA]:
    """A core smaller than the rank (a side shorter than r) leaves zero directions."""
    missing = rank - a.shape[0]
    return torch.nn.functional.pad(b, (0, missing)), torch.nn.functional.pad(a, (0, 0, 0, missing))
