"""`convert`, `export` and `sync`: data on stdout, reasons on stderr, and exit codes that say which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from registry.cli.main import cli
from tests.support import tiny


@pytest.fixture
def home(where: str, tmp_path: Path) -> Path:
    """A folder with a registry that holds two bases and a rank-stabilised adapter, as the working directory."""
    assert where in ("embedded", "remote")
    for seed, name in enumerate(("tiny", "other")):
        run("add", "base", str(tiny.write_base(tmp_path / name, tiny.base_tensors(seed))), "--name", name)
    directory = tiny.write_adapter(tmp_path / "one", rank=4, use_rslora=True)
    run("add", "adapter", str(directory), "--base", "tiny", "--name", "one")
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    """`registry …` with its exit code checked."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def data(*arguments: str) -> dict[str, Any]:
    """The JSON a command gives."""
    found: dict[str, Any] = json.loads(run(*arguments, "-o", "json").stdout)
    return found


@pytest.mark.usefixtures("home")
def test_a_conversion_says_what_it_made_and_that_it_was_made_before() -> None:
    first = run("convert", "one", "--to", "bfloat16", "--name", "half").stdout.splitlines()
    assert first[0].startswith("converted: half@1  blake3:")
    assert first[2].startswith("norm ")
    assert run("convert", "one", "--to", "bfloat16", "--name", "half").stdout.startswith("already converted: half@1")
    assert run("convert", "half", "--to", "bfloat16").stdout.startswith("in that form already: blake3:")
    made = data("convert", "one", "--to", "plain-lora", "--name", "plain")
    assert (made["rule"], made["name"], made["version"], made["created"]) == ("plain_lora", "plain", 1, True)
    shown = run("ls", "conversions").stdout
    assert "half@1" in shown
    assert "plain@1" in shown


@pytest.mark.usefixtures("home")
def test_a_rebase_waits_for_its_acknowledgement() -> None:
    told = run("convert", "one", "--to", "rebase", "--base", "other", code=9)
    assert (told.stdout, told.stderr.splitlines()[0]) == ("", "BASE_REPLACED at /base")
    made = data("convert", "one", "--to", "rebase", "--base", "other", "--acknowledge", "BASE_REPLACED")
    assert made["acknowledged"] == ["BASE_REPLACED"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("one", "--to", "portable"), 2, "CONVERSION_OPTION"),
        (("one", "--to", "compact"), 3, "NOT_TRIPLETS"),
        (("nobody", "--to", "compact"), 4, "NAME_UNKNOWN"),
        (("one", "--to", "float16", "--name", "tiny"), 5, "NAME_"),
    ],
)
def test_a_conversion_that_is_not_possible_says_why(arguments: tuple[str, ...], code: int, said: str) -> None:
    assert said in run("convert", *arguments, code=code).stderr


def test_an_export_checks_the_engine_first_and_names_what_it_wrote(home: Path) -> None:
    told = run("export", "one", "out", "--base-name", "tiny", "--engine", "sglang", code=3)
    assert "ENGINE_UNSUPPORTED at /scale" in told.stderr
    assert "plain-lora" in told.stderr
    assert not (home / "out").exists()
    arguments = ("--base-name", "tiny", "--engine", "vllm", "--max-lora-rank", "8", "--profile", "plain-lora")
    made = data("export", "one", "out", *arguments, "--named")
    assert made["directory"].startswith("out/one@1-")
    assert {entry["path"] for entry in made["files"]} == {"adapter_config.json", "adapter_model.safetensors"}
    assert run("export", "one", "out", *arguments, "--named", code=5).stderr.startswith("TARGET_EXISTS")
    rank = run("export", "one", "far", "--base-name", "tiny", "--engine", "vllm", "--max-lora-rank", "1", code=3)
    assert "ENGINE_RANK at /rank" in rank.stderr


def test_a_sync_switches_once_and_says_so(home: Path) -> None:
    run("publish", "bot", "one")
    arguments = ("sync", "bot", "served", "--base-name", "tiny", "--profile", "plain-lora")
    assert run(*arguments).stdout.startswith("served/live switched to bot@g1\n")
    assert run(*arguments).stdout.startswith("served/live is at bot@g1\n")
    assert (home / "served" / "live" / "adapter_config.json").is_file()
    assert "CHANNEL_UNKNOWN" in run("sync", "nobody", "served", "--base-name", "tiny", code=4).stderr
