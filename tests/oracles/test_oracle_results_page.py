"""The committed results page is what the oracles say today."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracles.mutation import close_mutations
from oracles.page import render
from oracles.registry import load, names
from oracles.runner import run_all

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "oracles.md"
AGAIN = "write it again: python -m oracles.page > docs/reference/oracles.md"


def test_the_page_tells_every_check_as_it_is() -> None:
    fresh = render(list(run_all(names())), {})
    start = "\n## "
    assert PAGE.read_text(encoding="utf-8").partition(start)[2] == fresh.partition(start)[2], AGAIN


@pytest.mark.long
def test_the_page_tells_every_mutation_as_it_is() -> None:
    closures = {name: close_mutations(load(name)) for name in names()}
    assert PAGE.read_text(encoding="utf-8") == render(list(run_all(names())), closures), AGAIN
