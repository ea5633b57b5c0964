"""What worker threads leave behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from compose.threads import give_back, start_worker

BLOCK = 1 << 20


def test_blocks_that_workers_freed_do_not_stay_in_memory() -> None:
    before = _resident()
    with ThreadPoolExecutor(1, initializer=start_worker) as pool:
        pool.submit(_use_and_free, 64).result()
    give_back()
    assert _resident() - before < 32 * BLOCK


def _use_and_free(blocks: int) -> None:
    kept = [torch.ones(BLOCK, dtype=torch.uint8) for _ in range(blocks)]
    del kept[:]


def _resident() -> int:
    """Bytes of this process in memory that are of no file."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024
