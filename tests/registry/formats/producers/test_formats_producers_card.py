"""Licence, data and training base of an adapter's model card are notes; what nobody says is `not_verified`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.registry.formats.producers import grammars
from tests.registry.formats.producers.described import read

ASKED = ("data", "licence", "training_base", "training")
CARD = """---
license: apache-2.0
base_model: unsloth/llama-bnb-4bit
datasets:
- second
- first
---
# An adapter
"""


def asked(tmp_path: Path, card: bytes | None) -> list[object]:
    directory = tmp_path / "adapter"
    directory.mkdir()
    grammars.unsloth(directory)
    if card is not None:
        (directory / "README.md").write_bytes(card)
    notes = read(directory, "llama", tmp_path).notes
    return [notes[key] for key in ASKED]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_card_says_licence_data_and_training_base(ending: str, tmp_path: Path) -> None:
    found = asked(tmp_path, CARD.replace("\n", ending).encode())
    assert found == [("first", "second"), "apache-2.0", "unsloth/llama-bnb-4bit", "not_verified"]


@pytest.mark.parametrize(
    "card",
    [None, b"", b"# Title only", b"---\nlicense: mit\n", b"---\n- a\n---\n", b"---\na: &x 1\nb: *x\n---\n",
     b"\xff\xfe---", b"---\nlicense: 3\ndatasets: []\n---\n", b"---\nlicense: [[[[\n---\n"],
)  # fmt: skip
def test_what_no_card_says_is_not_verified(card: bytes | None, tmp_path: Path) -> None:
    assert asked(tmp_path, card) == ["not_verified"] * 4


def test_what_the_producer_says_stands_before_the_card(tmp_path: Path) -> None:
    directory = tmp_path / "adapter"
    directory.mkdir()
    grammars.kohya_gemma(directory)
    (directory / "README.md").write_text(CARD)
    notes = read(directory, "gemma", tmp_path).notes
    assert (notes["training"], notes["licence"]) == ("lora_fa", "apache-2.0")
