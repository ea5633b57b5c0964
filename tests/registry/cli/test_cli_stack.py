"""`registry stack check` and `registry explain`: data on stdout, and an exit code that says what follows."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from registry.app import cli
from schemas.decision import COORDINATES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    ("name", "outcome", "exit_code"),
    [
        (("qlora+dora",), "admitted", 0),
        (("lora+", "with", "dora"), "conditional", 9),
        (("adalora+rslora",), "conditional", 9),
        (("pissa+rslora(patterned)",), "refused", 3),
    ],
)
def test_the_outcome_is_the_exit_code_and_the_vector_is_always_there(
    name: tuple[str, ...], outcome: str, exit_code: int
) -> None:
    result = run("stack", "check", *name, "-o", "json")
    document = json.loads(result.stdout)
    assert (document["outcome"], result.exit_code) == (outcome, exit_code)
    assert tuple(document["vector"]) == COORDINATES
    assert {cell["reason"] for cell in document["vector"].values()} == set(document["reasons"])


def test_the_table_shows_axes_every_coordinate_with_its_reason_and_what_follows() -> None:
    result = run("stack", "check", "lora+", "with", "lora-fa")
    lines = result.stdout.splitlines()
    assert "optimizers lora_plus and lora_fa" in lines[0]
    assert [line.split()[0] for line in lines[2:10]] == list(COORDINATES)
    assert all("(V 0x0" in line for line in lines[2:10])
    assert lines[-1].startswith("refused: ")
    assert "ompatible" not in result.stdout


def test_an_unknown_word_is_a_usage_error_that_lists_the_known_ones() -> None:
    result = run("stack", "check", "vera")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "STACK_WORD_UNKNOWN" in result.stderr
    assert "adalora" in result.stderr


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("MEMBER_TWICE", "failure      member_counted_twice"),
        ("SCHEMA_OLDER", "recovery     Run `registry db upgrade`."),
        ("moa_denominator_differentiated", 'inject       field "/router_row/denominator", value "differentiated"'),
        ("tokenizer_differs", "documented   none"),
    ],
)
def test_explain_speaks_of_findings_other_codes_and_failures(name: str, shown: str) -> None:
    result = run("explain", name)
    assert result.exit_code == 0
    assert shown in result.stdout.splitlines()


def test_explain_gives_programs_the_whole_record() -> None:
    record = json.loads(run("explain", "nf4_codes_trained", "-o", "json").stdout)
    assert record["inject"] == {"field": "/optimizer/owns/0", "value": "codes"}
    assert record["documented"] == ["invariant", "fault"]


def test_explaining_an_unknown_name_is_not_found() -> None:
    result = run("explain", "NO_SUCH_CODE")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "CODE_UNKNOWN" in result.stderr
