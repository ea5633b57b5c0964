"""Files that arrive over an object store: any machine goes on where another stopped; what was answered stays."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from registry.errors import ConflictError
from registry.storage.pieces import PIECE_BYTES, Pieces

NAME = "a" * 32
DATA = random.Random(4).randbytes(4096)


@dataclass
class Machines:
    """Two machines with a folder each, over one object store."""

    folder: Path
    remote: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        for number in (0, 1):
            (self.folder / str(number)).mkdir()

    def __getitem__(self, number: int) -> Pieces:
        return Pieces(self.folder / str(number), self.remote, "memory://")

    def read(self, number: int) -> bytes:
        """All that arrived, as one machine has it."""
        with self[number].open(NAME) as file:
            return b"".join(bytes(block) for block in file.blocks(0))

    def kept(self) -> list[str]:
        """What lies in the object store."""
        return [item["path"] for page in obstore.list(self.remote) for item in page]


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 300), st.booleans()), max_size=20))
def test_what_was_acknowledged_is_there_on_every_machine(requests: list[tuple[int, int, bool]]) -> None:
    """A request is answered, or its machine dies before; whoever comes next finds exactly what was answered."""
    with TemporaryDirectory() as folder:
        machines = Machines(Path(folder))
        reached = 0
        for number, length, answered in requests:
            with machines[number].open(NAME) as file:
                assert file.size == reached
                file.append(DATA[reached : reached + length])
                if answered:
                    file.sync()
                    reached += length
            assert machines[number].size(NAME) == reached
        assert [machines.read(number) for number in (0, 1)] == [DATA[:reached]] * 2


def test_the_second_of_two_machines_at_one_place_is_told_and_goes_on_after_the_first(machines: Machines) -> None:
    with machines[0].open(NAME) as slow, machines[1].open(NAME) as quick:
        slow.append(b"slow")
        quick.append(b"quick")
        quick.sync()
        with pytest.raises(ConflictError) as refused:
            slow.sync()
        slow.sync()
        assert (refused.value.code, slow.size) == ("UPLOAD_BUSY", 0)
    assert machines.read(0) == b"quick"


def test_a_piece_whose_answer_was_lost_is_put_again_in_peace(machines: Machines) -> None:
    with machines[0].open(NAME) as file:
        file.append(DATA)
        obstore.put(machines.remote, f"uploads/{NAME}/{0:016d}", DATA)
        file.sync()
    assert machines.read(1) == DATA


def test_a_long_request_is_put_while_it_arrives(machines: Machines) -> None:
    block = bytes(2**22)
    with machines[0].open(NAME) as file:
        while file.size < PIECE_BYTES + len(block):
            file.append(block)
        assert machines[1].size(NAME) == PIECE_BYTES


def test_nothing_is_left_when_the_file_is_given_up(machines: Machines) -> None:
    with machines[0].open(NAME) as file:
        file.append(DATA)
        file.sync()
    assert machines.kept() != []
    assert machines[1].drop(NAME)
    assert machines.kept() == []
    assert machines.read(0) == b""


@pytest.mark.parametrize(("known", "left"), [(False, 0), (True, 1)])
def test_a_sweep_removes_pieces_of_uploads_that_nobody_remembers(machines: Machines, known: bool, left: int) -> None:
    with machines[0].open(NAME) as file:
        file.append(DATA)
        file.sync()
    assert machines[1].sweep(3600, lambda _: known) == 0
    assert machines[1].sweep(-1, lambda _: known) == 1 - left
    assert len(machines.kept()) == left
