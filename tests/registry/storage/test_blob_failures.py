"""Killed, crowded, full and read-only: nothing half visible, and the repeat succeeds."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from registry.storage import FolderStore
from tests.registry.storage.confined import PAGE, PAYLOAD, payload
from tests.registry.storage.contract import digest_of

REPOSITORY = Path(__file__).parents[3]
CONFINED = [sys.executable, "-m", "tests.registry.storage.confined"]


def start(what: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*CONFINED, what, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def confined(what: str, folder: Path, tmpfs: str) -> object:
    """Run in a mount namespace of its own, on a tmpfs with these options; also works for root, who ignores modes."""
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-ec", script, "sh", tmpfs, str(folder)]
    done = subprocess.run(
        [*namespace, *CONFINED, what, str(folder)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_put_leaves_only_whole_blobs_and_the_repeat_succeeds(tmp_path: Path, seed: int) -> None:
    with start("endless", tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"
        time.sleep(random.Random(seed).uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        last = int(["0", *child.stdout.read().split()][-1])
    store = FolderStore(tmp_path)
    visible = {entry.digest for entry in store.entries()}
    for digest in visible:
        store.verify(digest)
    whole = {digest_of(payload(number)) for number in range(last + 1)}
    assert whole - visible <= {digest_of(payload(last))}
    assert visible <= whole
    store.put_bytes(payload(last))
    assert store.verify(digest_of(payload(last))).size == len(payload(last))
    assert store.sweep_staging(0) <= 1
    assert list((tmp_path / "staging").iterdir()) == []


def test_processes_putting_the_same_blob_all_succeed(tmp_path: Path) -> None:
    children = [start("same", tmp_path) for _ in range(4)]
    digests = {json.loads(child.communicate()[0]) for child in children}
    assert digests == {digest_of(payload(0))}
    store = FolderStore(tmp_path)
    assert [entry.digest for entry in store.entries()] == list(digests)
    assert store.verify(digest_of(payload(0))).size == len(payload(0))
    assert store.sweep_staging(0) == 0


def test_a_full_disk_is_said_at_every_write_and_nothing_is_half_visible(tmp_path: Path) -> None:
    outcomes = confined("full_blocks", tmp_path, "size=1m")
    assert isinstance(outcomes, list)
    refused = ["STORE_FULL", "right=1", "staged=0", "done"]
    kept = ["done", "right=2", "staged=0", "done"]
    needed = -(-len(PAYLOAD) // PAGE)
    assert outcomes[:needed] == [refused] * needed
    assert outcomes[-1] == kept
    assert all(outcome in (refused, kept) for outcome in outcomes)


def test_a_disk_without_inodes_is_full_too(tmp_path: Path) -> None:
    refused = ["STORE_FULL", "right=1", "staged=0", "done"]
    kept = ["done", "right=2", "staged=0", "done"]
    assert confined("full_inodes", tmp_path, "size=4m,nr_inodes=40") == [refused, refused, kept]


def test_a_read_only_store_refuses_writes_and_still_reads(tmp_path: Path) -> None:
    assert confined("read_only", tmp_path, "size=4m") == {
        "open": "done",
        "create": "STORE_READ_ONLY",
        "read": "done",
        "put": "STORE_READ_ONLY",
        "repeat": "STORE_READ_ONLY",
        "delete": "STORE_READ_ONLY",
        "sweep": "STORE_READ_ONLY",
        "visible": "right=1 staged=0",
        "after": "done",
    }
