"""The arithmetic of composition: torch operators over factor streams, error ledger and planner. No database, no HTTP.

Notation: module target ``W [d_out, d_in]``; member i has ``A_i [r_i, d_in]``, ``B_i [d_out, r_i]``, scale ``s_i`` and
request coefficient ``lambda_i``; ``c_i = lambda_i s_i``, ``D_i = s_i B_i A_i``, ``D = sum c_i B_i A_i`` and ``R = sum
r_i`` (R 0x05A).
"""

from compose.engine import compose
from compose.errors import ComposeCancelledError, ComposeRefusedError, MemoryLimitError
from compose.packed import Forms, PackedFactors
from compose.plan import Plan, plan
from compose.request import (
    ComposeRequest,
    ComposeResult,
    FactorSource,
    Member,
    Options,
    Progress,
    ReplacementSource,
    TensorSource,
    WrittenTensor,
)

__all__ = [
    "ComposeCancelledError",
    "ComposeRefusedError",
    "ComposeRequest",
    "ComposeResult",
    "FactorSource",
    "Forms",
    "Member",
    "MemoryLimitError",
    "Options",
    "PackedFactors",
    "Plan",
    "Progress",
    "ReplacementSource",
    "TensorSource",
    "WrittenTensor",
    "compose",
    "plan",
]
