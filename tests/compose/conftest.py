"""Shapes are checked here, and only here: the kernels are wrapped before they are first imported."""

import sys
from typing import Final

from jaxtyping import install_import_hook

KERNELS: Final = ["fields", "gauge", "krylov", "lowrank", "masks", "merge", "module", "operators", "select"]

if not any(name.partition(".")[0] == "compose" for name in sys.modules):
    install_import_hook([f"compose.{kernel}" for kernel in KERNELS], "beartype.beartype")
