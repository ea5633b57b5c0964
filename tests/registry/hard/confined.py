"""Commands where the disk is full or read-only, with arguments ``FOLDER STRIDE [URL]``.

The process moves into a mount namespace of its own, in which ``FOLDER/home`` is a small tmpfs, and prints one JSON
document. Database and store lie there, or the store alone where a URL names a database elsewhere. Each command starts
with the same registry, a copy, so that none of them outgrows the disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from registry.cli.main import cli
from tests.registry.hard.test_hard_kills import PREPARE, Step
from tests.registry.storage.confined import fill, mount
from tests.support.house import House, assert_whole

MOST_PAGES = 400
NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
"""What `unshare` makes new: CLONE_NEWNS, CLONE_NEWUSER."""


def attempt(house: House, arguments: tuple[str, ...]) -> str:
    """``0`` or exit code and error code of a command, such as ``8 STORE_FULL``."""
    ended = CliRunner().invoke(cli, [*arguments, "-o", "json"], env=house.environment)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return "0" if ended.exit_code == 0 else f"{ended.exit_code} {json.loads(ended.stderr)['code']}"


def settled(house: House, step: Step, told: str) -> None:
    """What was refused is not there, what was done is, all of it; and the same command succeeds now."""
    with house.open() as registry:
        assert_whole(registry)
        assert step.arrived(registry) == (told == "0"), told
        repeated = attempt(house, step.arguments)
        assert repeated == "0", f"{step.arguments[0]} told {told}, and repeated with space {repeated}"
        assert step.arrived(registry)


@dataclass(frozen=True)
class Copies:
    """The registry that each command starts with; a database elsewhere stays and only grows."""

    house: House
    kept: Path

    @classmethod
    def of(cls, house: House) -> Copies:
        """Remember a registry as it is now."""
        return cls(house, Path(shutil.copytree(house.folder / "home", house.folder / "kept")))

    def restore(self) -> None:
        """Put it back; folders stay, since file systems are mounted on some."""
        home = self.house.folder / "home"
        if not self.house.database_url.startswith("sqlite"):
            return
        for path in [path for path in home.rglob("*") if not path.is_dir()]:
            path.unlink()
        shutil.copytree(self.kept, home, dirs_exist_ok=True)


def full(copies: Copies, command: str, place: Path, numbers: Callable[[], int], stride: int) -> list[str]:
    """The command with 0, `stride`, 2 `stride` … free pages in a tmpfs until it succeeds."""
    house, outcomes = copies.house, []
    for pages in range(0, MOST_PAGES, stride):
        copies.restore()
        step = PREPARE[command](house, numbers())
        filler = place / "filler"
        fill(filler, leaving=pages)
        outcomes.append(attempt(house, step.arguments))
        filler.unlink()
        settled(house, step, outcomes[-1])
        if outcomes[-1] == "0":
            with house.open() as registry:
                assert_whole(registry)
            return outcomes
    raise AssertionError(f"{command} still refused with {MOST_PAGES} free pages")


def read_only(copies: Copies, place: Path, numbers: Callable[[], int]) -> dict[str, str]:
    """Every command with a folder mounted read-only, each repeated when it is writable again."""
    house, outcomes = copies.house, {}
    mount("--bind", str(place), str(place))
    for command in ("add", "admit", "publish", "rollback"):
        copies.restore()
        step = PREPARE[command](house, numbers())
        mount("-o", "remount,ro,bind", str(place))
        outcomes[command] = attempt(house, step.arguments)
        mount("-o", "remount,rw,bind", str(place))
        settled(house, step, outcomes[command])
    subprocess.run(["umount", str(place)], check=True)
    return outcomes


def main() -> None:
    """What the arguments ask for."""
    folder, stride, *url = sys.argv[1:]
    namespace()
    print(json.dumps(everything(Path(folder), int(stride), *url)))


def namespace() -> None:
    """From here on mounts are this process's own; also works for root, who ignores modes."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USERS | NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")
    mount("--make-rprivate", "/")


def everything(folder: Path, stride: int, url: str | None = None) -> dict[str, object]:
    """Every command on a full disk, page by page, and on one that is read-only."""
    home = folder / "home"
    home.mkdir()
    mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(home))
    store = home / "store"
    house = House(folder, url or f"sqlite:///{home / 'registry.db'}").furnish()
    numbers = iter(range(1, 10**6)).__next__
    with house.open() as registry:
        registry.publish("bot", ["one"])
    copies = Copies.of(house)
    outcomes: dict[str, object] = {"store read-only": read_only(copies, store, numbers)}
    if url is None:
        for command in ("add", "admit", "publish"):
            outcomes[f"{command}, home full"] = full(copies, command, home, numbers, stride)
        outcomes["home read-only"] = read_only(copies, home, numbers)
    separate(store)
    for command in ("add", "admit"):
        outcomes[f"{command}, store full"] = full(copies, command, store, numbers, 1)
    return outcomes


def separate(store: Path) -> None:
    """From here on the store is a file system of its own."""
    moved = store.with_name("moved")
    shutil.copytree(store, moved)
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(store))
    shutil.copytree(moved, store, dirs_exist_ok=True)
    shutil.rmtree(moved)
