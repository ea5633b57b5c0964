"""`registry oracle`: replays anyone can run, and drift that is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import oracles
from oracles.replay import LOCK_FILE, read_lock
from registry.app import cli


def test_the_list_names_each_oracle_with_its_source() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["oracle", "list", "-o", "json"]).stdout)
    assert {row["name"] for row in rows} == set(read_lock())
    assert all(row["source"] in ("R", "V", "C") and row["sections"] and row["proves"] for row in rows)


def test_a_run_tells_checks_error_mutations_and_digest() -> None:
    result = CliRunner().invoke(cli, ["oracle", "run", "composition_merge", "--mutations", "-o", "json"])
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    assert row["failed"] == []
    assert row["checks"] > 30
    assert row["rejected"] == row["mutations"] > 100
    assert row["semantic"] == read_lock()["composition_merge"].semantic


def test_an_unknown_oracle_is_not_found() -> None:
    result = CliRunner().invoke(cli, ["oracle", "run", "nothing"])
    assert (result.exit_code, "ORACLE_UNKNOWN" in result.stderr) == (4, True)


def test_a_changed_fixture_is_drift_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = json.loads((Path(oracles.__file__).parent / LOCK_FILE).read_text(encoding="utf-8"))
    lock["composition_merge"]["fixture"] = "blake3:" + "0" * 64
    changed = tmp_path / LOCK_FILE
    changed.write_text(json.dumps(lock), encoding="utf-8")
    monkeypatch.setattr("oracles.replay.files", lambda _package: tmp_path)
    result = CliRunner().invoke(cli, ["oracle", "run", "composition_merge", "-o", "json"])
    assert result.exit_code == 7
    (problem,) = json.loads(result.stderr)["errors"]
    assert (problem["code"], problem["observed"]) == ("ORACLE_DRIFT", "another fixture")


def test_a_kept_report_is_checked_and_a_changed_one_named(tmp_path: Path) -> None:
    kept = tmp_path / "report.json"
    kept.write_bytes(CliRunner().invoke(cli, ["oracle", "report", "composition_merge"]).stdout_bytes)
    assert CliRunner().invoke(cli, ["oracle", "check", "composition_merge", str(kept)]).exit_code == 0
    kept.write_bytes(kept.read_bytes().replace(b"true", b"false", 1))
    result = CliRunner().invoke(cli, ["oracle", "check", "composition_merge", str(kept), "-o", "json"])
    assert result.exit_code == 7
    assert json.loads(result.stderr)["errors"][0]["observed"] == "another report"
