"""Tensor shapes by name; checked in tests only.

Legend: d_out, d_in sides of the module; rank of one pair; R the sum of the members' ranks; J members; m, n, k, l
other widths.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

Matrix = Float[Tensor, "m n"]
BasisB = Float[Tensor, "d_out m"]
BasisA = Float[Tensor, "d_in n"]
Dense = Float[Tensor, "d_out d_in"]
FactorA = Float[Tensor, "rank d_in"]
FactorB = Float[Tensor, "d_out rank"]
OtherA = Float[Tensor, "other d_in"]
OtherB = Float[Tensor, "d_out other"]
StackA = Float[Tensor, "R d_in"]
StackB = Float[Tensor, "d_out R"]
PerRow = Float[Tensor, " R"]
Owners = Float[Tensor, "J R"]
TriangleB = Float[Tensor, "m R"]
TriangleA = Float[Tensor, "n R"]
Columns = Float[Tensor, "d k"]
Triangle = Float[Tensor, "m k"]
Gram = Float[Tensor, "k k"]
GramR = Float[Tensor, "R R"]
GramRank = Float[Tensor, "rank rank"]
Products = Float[Tensor, "J J"]
RitzLeft = Float[Tensor, "ritz d_out"]
RitzRight = Float[Tensor, "ritz d_in"]
RitzValues = Float[Tensor, " ritz"]
Values = Float[Tensor, " n"]
Mask = Bool[Tensor, "..."]
