"""Where tests keep their files: in memory where there is room, so that nothing waits for a disk to have them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

ROOM: Final = 2**31
"""Bytes; what the tests keep at a time is a fraction of it."""


def _in_memory() -> str | None:
    memory = Path("/dev/shm")
    fits = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
    return str(memory) if fits and not os.statvfs(memory).f_flag & os.ST_NOEXEC else None


IN_MEMORY: Final = _in_memory()
"""A folder in memory, or none."""
