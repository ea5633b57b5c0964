"""Reading many directories: other processes answer what this one would, and one that is killed is named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from registry.errors import UnavailableError
from registry.formats import AdapterReading, Refusal, read_base, read_many
from registry.formats.ahead import CHUNK
from schemas.digests import Digest
from tests.support import tiny

JOBS = 2
PATIENCE_S = 60.0
ADAPTERS = 2 * CHUNK


@dataclass
class Watched:
    """No base weights; says which processes it came to, and which of them asked it for one."""

    folder: Path
    away: bool = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, away=True)
        (self.folder / f"came-{os.getpid()}").touch()

    def __call__(self, name: str) -> None:
        """Not at hand; found out slowly here, so that something is left for the others."""
        time.sleep(0.0 if self.away else 0.05)
        (self.folder / f"asked-{os.getpid()}").write_text(name, encoding="utf-8")

    def who(self, what: str) -> set[int]:
        """The processes that left a mark."""
        return {int(path.name.partition("-")[2]) for path in self.folder.glob(f"{what}-*")}


@dataclass
class Shelves:
    """Keeps what is put there, and by which process it was settled."""

    folder: Path

    def put(self, digest: Digest, data: bytes) -> None:
        """Under its digest."""
        (self.folder / digest).write_bytes(data)

    def settle(self) -> None:
        """Say who asks."""
        (self.folder / f"settled-{os.getpid()}").touch()


@dataclass
class Reading:
    """Directories, the second to last of which is refused, and what reading them ahead gives."""

    directories: list[Path]
    weight: Watched
    ahead: Iterator[AdapterReading | Refusal]
    here: list[AdapterReading | Refusal]
    shelf: Shelves

    def until_others_read(self) -> list[AdapterReading | Refusal]:
        """Take what this process reads until the others have started."""
        first, deadline = [next(self.ahead)], time.monotonic() + PATIENCE_S
        while len(self.weight.who("came")) < JOBS:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return first


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Before anything was read ahead."""
    base = read_base(tiny.write_base(tmp_path / "base")).manifest
    given = [tiny.write_adapter(tmp_path / f"n{number}", number) for number in range(ADAPTERS)]
    (given[-2] / "adapter_config.json").write_text("{}", encoding="utf-8")
    here = list(read_many(given, base, lambda _: None))
    (tmp_path / "marks").mkdir()
    weight = Watched(tmp_path / "marks")
    (tmp_path / "shelf").mkdir()
    shelf = Shelves(tmp_path / "shelf")
    return Reading(given, weight, read_many(given, base, weight, JOBS, shelf), here, shelf)


def test_other_processes_read_what_this_one_would(reading: Reading) -> None:
    found = [*reading.until_others_read(), *reading.ahead]
    assert found[:-2] == reading.here[:-2]
    assert found[-1] == reading.here[-1]
    refused, expected = found[-2], reading.here[-2]
    assert isinstance(refused, Refusal)
    assert isinstance(expected, Refusal)
    assert refused.problems == expected.problems
    others = reading.weight.who("asked") - {os.getpid()}
    assert others
    assert others <= reading.weight.who("came")


def test_the_files_of_what_was_read_are_on_the_shelf_when_it_is_given(reading: Reading) -> None:
    def there(given: AdapterReading | Refusal) -> bool:
        files = () if isinstance(given, Refusal) else given.files
        return all(
            f"blake3:{blake3((reading.shelf.folder / file.digests.digest).read_bytes()).hexdigest()}"
            == file.digests.digest
            for file in files
        )

    assert all(map(there, reading.until_others_read()))
    assert all(map(there, reading.ahead))
    read = [given for given in reading.here if not isinstance(given, Refusal)]
    wanted = {file.digests.digest for given in read for file in given.files}
    settled = {f"settled-{process}" for process in reading.weight.who("asked")}
    assert {path.name for path in reading.shelf.folder.iterdir()} == wanted | settled


def test_a_killed_process_is_named(reading: Reading) -> None:
    reading.until_others_read()
    for process in reading.weight.who("came"):
        os.kill(process, signal.SIGKILL)
    with pytest.raises(UnavailableError) as caught:
        list(reading.ahead)
    assert caught.value.code == "READER_ENDED"
