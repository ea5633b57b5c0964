"""`registry method`: the catalogue for people and for programs, without a registry."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from registry.app import cli
from registry.cli.methods import composed
from schemas.catalogue.methods import method_keys, methods


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_the_list_has_every_row_and_says_of_each_family_whether_it_is_composed() -> None:
    rows = json.loads(run("method", "ls", "-o", "json").stdout)
    assert [row["key"] for row in rows] == list(method_keys())
    told = {row["key"]: row["composed"] for row in rows}
    assert {told[key] for key in ("lora", "rslora", "qlora", "lora_plus", "lora_fa")} == {"yes"}
    assert told["dora"] == "DORA_NOT_ADDITIVE"
    assert told["pissa"] == "INITIALIZER_MUTATES_BASE"
    assert told["lora_bias"] == "LORA_BIAS_NOT_COMPOSED"
    assert told["ties"] is None


@pytest.mark.parametrize("key", method_keys())
def test_a_row_is_shown_whole_as_text_and_as_json(key: str) -> None:
    row = methods()[key]
    text = run("method", "show", key).stdout
    assert text.startswith(f"{key}  {row.name}\n")
    for part in (row.paper.says, *row.state, *row.confused, *(claim.claim for claim in row.claims)):
        assert part in text
    assert (row.code is None) or row.code.says in text
    assert (composed(row) or "none") in text or row.contract is None
    assert json.loads(run("method", "show", key, "-o", "json").stdout) == row.document()


def test_an_unknown_key_is_not_found() -> None:
    result = run("method", "show", "vera")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "METHOD_KEY_UNKNOWN" in result.stderr
