"""One BLAS thread a worker, so that the order of additions, and every byte with it, is the same at any core count."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

import torch

_lock = Lock()
_users = 0
_before = 1

_RAISES_THRESHOLD: Final = 31 << 20
"""Bytes; of larger blocks the allocator learns nothing."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold torch to one thread while any composition of this process runs; the last one out restores what was set."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                torch.set_num_threads(_before)


def start_worker() -> None:
    """Run first in every worker thread: OpenMP keeps its thread count per thread.

    The GNU allocator returns free memory above a threshold at once and faults it in again for the next tile, which
    costs more than the arithmetic on it; freeing one mapped block raises that threshold to twice the block's size.
    """
    torch.set_num_threads(1)
    torch.empty(_RAISES_THRESHOLD, dtype=torch.uint8)


def give_back() -> None:
    """Return to the system what the allocator keeps of threads that have ended; only the GNU one has to be told."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
