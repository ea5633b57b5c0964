"""Damaged directories of every producer: refused with a type, or read as the reference reader reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.registry.formats.fuzz.campaign import outcome, run
from tests.registry.formats.fuzz.seeds import seeds

CASES = 20_000
BATCHES = 8
SAMPLE = 300
MOST_MEMORY = 300 * 2**20
NO_PAIRS = {"kohya-bert-loha", "kohya-bert-lokr"}
_MEASURED = """
import sys
from pathlib import Path
from tests.registry.formats.fuzz.campaign import run
print(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
status = Path("/proc/self/status").read_text()  # the peak of getrusage starts with the parent's
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.mark.parametrize("name", sorted(seeds()))
def test_the_reference_reader_confirms_every_sound_directory(name: str, tmp_path: Path) -> None:
    model_type, files = seeds()[name]
    assert outcome(files, model_type, tmp_path) == ("refused" if name in NO_PAIRS else "confirmed")


def test_a_sample_of_damaged_directories_is_refused_or_confirmed(tmp_path: Path) -> None:
    outcomes = run(0, SAMPLE, tmp_path)
    assert outcomes["refused"] > outcomes["confirmed"] > 0
    assert outcomes["beyond"] < SAMPLE / 20


@pytest.mark.long
@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_directories_are_refused_or_confirmed_in_bounded_memory(batch: int, tmp_path: Path) -> None:
    count = CASES // BATCHES
    command = [sys.executable, "-c", _MEASURED, str(SAMPLE + batch * count), str(count), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes, memory = done.stdout.splitlines()
    print(outcomes, memory)
    assert int(memory) < MOST_MEMORY
