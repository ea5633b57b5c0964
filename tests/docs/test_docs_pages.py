"""What the pages show is what the program does, and what they point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import reference
from tests.docs.page import Command, commands, fences, matches, tidy
from tests.docs.runner import PAGES, run_page, session
from tests.docs.session import ROOT
from tests.support.databases import PostgresServer

UNRUN = re.compile(r"(make|pip|git clone|python3 -m venv) ")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)")
WRITTEN = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_print_what_it_says(page: str, tmp_path: Path, postgres_server: PostgresServer) -> None:
    with session(tmp_path, postgres_server) as made:
        differences = run_page(ROOT / page, made)
    assert not differences, "\n\n".join(differences)


@pytest.mark.parametrize("path", reference.PAGES)
def test_a_generated_page_is_as_the_program_makes_it_now(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == reference.PAGES[path]()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, heading in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
        if heading:
            assert f"# {heading}" in (page.parent / target).read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_only_installation_commands_go_unrun(page: Path) -> None:
    for fence in fences(page.read_text(encoding="utf-8")):
        if fence.language != "sh":
            continue
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        for line in fence.body.splitlines():
            assert UNRUN.match(line), line
            if line.startswith("make "):
                assert line.split()[1] in targets


def test_a_continued_command_is_one_command() -> None:
    assert commands("$ a \\\n    b\nx\ny\n$ c\n") == [
        Command("a \\\n    b", "$ a \\\n    b", ["x", "y"]),
        Command("c", "$ c", []),
    ]


@pytest.mark.parametrize(
    ("expected", "observed", "same"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb", "a\nb\nc", False),
        ("a\n...\nc", "a\nc", True),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a\n...\nc", "a\nb\nd", False),
        ("at ... o'clock", "at 12 o'clock", True),
        ("at ... o'clock", "at 12\no'clock", False),
        ("a.c", "abc", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_dots_stand_for_what_is_left_out_and_nothing_else_does(expected: str, observed: str, same: bool) -> None:
    assert matches(expected.splitlines(), observed.splitlines()) is same


def test_spaces_at_line_ends_and_empty_edges_do_not_count() -> None:
    assert tidy("\n a  \n\nb\n\n") == [" a", "", "b"]
