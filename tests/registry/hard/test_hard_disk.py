"""A disk that is full or read-only: a clear error, nothing half visible, and the repeat succeeds afterwards.

The checks between the commands are in `confined`, which fails when one does not hold.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.support.forks import REPOSITORY, forks

FULL = {"8 STORE_FULL", "8 DATABASE_FULL"}


def confined(folder: Path, stride: int, *url: str) -> dict[str, Any]:
    """Run in a process of its own, which alone sees the small disk."""
    out, err = folder / "out", folder / "err"
    arguments = [str(folder), str(stride), *url]
    with out.open("wb") as told, err.open("wb") as failed:
        streams = {"stdout": told.fileno(), "stderr": failed.fileno()}
        command = forks().start(arguments, {}, REPOSITORY, **streams, program="tests.registry.hard.confined")
        code = command.wait()
    assert code == 0, err.read_text(encoding="utf-8")
    outcomes: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return outcomes


@pytest.mark.parametrize(
    "stride", [pytest.param(32, id="sample"), pytest.param(1, id="campaign", marks=pytest.mark.long)]
)
def test_a_full_or_read_only_disk_is_told_at_every_write_and_nothing_is_half_visible(
    tmp_path: Path, stride: int
) -> None:
    outcomes = confined(tmp_path, stride)
    for command in ("add", "admit", "publish"):
        *refused, done = outcomes[f"{command}, home full"]
        assert done == "0"
        assert "8 DATABASE_FULL" in refused
        assert set(refused) <= FULL, refused
        print(f"\n{command}: refused with {len(refused)} amounts of free space")
    assert_store_refuses(outcomes)
    assert set(outcomes["home read-only"].values()) == {"8 DATABASE_READ_ONLY"}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_full_or_read_only_store_beside_postgresql_is_told_at_every_write(tmp_path: Path, database_url: str) -> None:
    # the server's user is none in the namespace, so that root there has no right on its folder but everybody's
    Path(str(make_url(database_url).query["host"])).chmod(0o711)
    assert_store_refuses(confined(tmp_path, 1, database_url))


def assert_store_refuses(outcomes: dict[str, Any]) -> None:
    """What writes blobs is refused as long as there is no room or right, what only points at them never."""
    for command in ("add", "admit"):
        *refused, done = outcomes[f"{command}, store full"]
        assert (set(refused), done) == ({"8 STORE_FULL"}, "0")
    writes_blobs, only_points = "8 STORE_READ_ONLY", "0"
    assert outcomes["store read-only"] == {
        "add": writes_blobs,
        "admit": writes_blobs,
        "publish": only_points,
        "rollback": only_points,
    }
