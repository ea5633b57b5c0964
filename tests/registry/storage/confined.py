"""What is run in a process of its own: puts to be killed, and puts where the disk is full or read-only.

``python -m tests.registry.storage.confined WHAT FOLDER`` prints one JSON document (`endless` prints a line a put).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from registry.errors import UnavailableError
from registry.storage import FolderStore

PAYLOAD = bytes(range(256)) * 1_200
PAGE = 4096


def attempt(act: Callable[[], object]) -> str:
    """The error's code, or ``done``."""
    try:
        act()
    except UnavailableError as error:
        return error.code
    return "done"


def payload(number: int) -> bytes:
    """Five blocks and a bit, different for each number."""
    return number.to_bytes(4, "big") * (5 * 2**20 + 7)


def endless(folder: Path) -> None:
    """Put one blob after another until killed."""
    store = FolderStore(folder)
    for number in range(1_000_000):
        data = payload(number)
        print(number, flush=True)
        store.put_bytes(data)


def same(folder: Path) -> str:
    """Put the same blob as every other process."""
    return FolderStore(folder).put_bytes(payload(0)).digest


def full_blocks(folder: Path) -> list[list[str]]:
    """Put with 0, 1, 2 … free pages, each time asking what is visible, then once more with space."""
    store = FolderStore(folder / "store")
    kept = store.put_bytes(b"kept").digest
    outcomes = []
    for pages in range(len(PAYLOAD) // PAGE + 4):
        filler = folder / "filler"
        fill(filler, leaving=pages)
        refused = attempt(lambda: store.put_bytes(PAYLOAD))
        outcomes.append([refused, *seen(store, kept), *again(store, filler)])
    return outcomes


def full_inodes(folder: Path) -> list[list[str]]:
    """Put with no, one and two free inodes: the staging file and the folder of the blob each need one."""
    store = FolderStore(folder / "store")
    kept = store.put_bytes(b"kept").digest
    outcomes = []
    for free in range(3):
        filler = folder / "filler"
        filler.mkdir()
        while os.statvfs(folder).f_ffree > free:
            (filler / str(os.statvfs(folder).f_ffree)).touch()
        refused = attempt(lambda: store.put_bytes(PAYLOAD))
        outcomes.append([refused, *seen(store, kept), *again(store, filler)])
    return outcomes


def read_only(folder: Path) -> dict[str, str]:
    """Every write on a read-only mount, then the same put after it became writable."""
    root = folder / "store"
    store = FolderStore(root)
    kept = store.put_bytes(b"kept").digest
    (root / "staging" / "left").write_bytes(b"of an unfinished put")
    mount("--bind", str(root), str(root))
    mount("-o", "remount,ro,bind", str(root))
    outcomes = {
        "open": attempt(lambda: FolderStore(root)),
        "create": attempt(lambda: FolderStore(root / "inner")),
        "read": attempt(lambda: store.verify(kept)),
        "put": attempt(lambda: store.put_bytes(PAYLOAD)),
        "repeat": attempt(lambda: store.put_bytes(b"kept")),
        "delete": attempt(lambda: store.delete(kept)),
        "sweep": attempt(lambda: store.sweep_staging(0)),
        "visible": " ".join(seen(store, kept)),
    }
    mount("-o", "remount,rw,bind", str(root))
    outcomes["after"] = attempt(lambda: store.put_bytes(PAYLOAD))
    return outcomes


def mount(*arguments: str) -> None:
    """Call mount, loudly."""
    subprocess.run(["mount", *arguments], check=True)


def fill(filler: Path, leaving: int) -> None:
    """Use up every page but `leaving` of them."""
    with filler.open("wb", buffering=0) as file:
        free = os.statvfs(filler).f_bavail * os.statvfs(filler).f_bsize // PAGE
        for _ in range(free - leaving):
            file.write(bytes(PAGE))


def seen(store: FolderStore, kept: str) -> list[str]:
    """How many blobs a reader sees, all of them right, and how many files of this run are in staging."""
    right = [store.verify(entry.digest).digest for entry in store.entries()]
    staged = [file.name for file in (store.root / "staging").iterdir() if file.name != "left"]
    assert kept in right
    return [f"right={len(right)}", f"staged={len(staged)}"]


def again(store: FolderStore, filler: Path) -> list[str]:
    """Free the space, put, and leave the store as it was, the folder of the blob included."""
    subprocess.run(["rm", "-r", str(filler)], check=True)
    repeated = attempt(lambda: store.put_bytes(PAYLOAD))
    digest = "blake3:" + blake3(PAYLOAD).hexdigest()
    store.verify(digest)
    path = store.local_path(digest)
    store.delete(digest)
    path.parent.rmdir()
    return [repeated]


if __name__ == "__main__":
    doors: dict[str, Callable[[Path], object]] = {
        "endless": endless,
        "same": same,
        "full_blocks": full_blocks,
        "full_inodes": full_inodes,
        "read_only": read_only,
    }
    print(json.dumps(doors[sys.argv[1]](Path(sys.argv[2]))))
