"""The commands as people type them, in one process: output, exit codes, and what is left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from registry.app import cli
from tests.support import tiny

Run = Callable[..., Result]
MODULE = tiny.MODULES[0]
A = f"base_model.model.{MODULE}.lora_A.weight"
B = f"base_model.model.{MODULE}.lora_B.weight"


@pytest.fixture
def run(where: str, tmp_path: Path) -> Run:
    """`registry …` against a fresh registry with a base `tiny` and adapters `one` and `two`."""

    def invoke(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(item) for item in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    assert where in ("embedded", "remote")
    invoke("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    for seed, name in enumerate(("one", "two"), 1):
        invoke("add", "adapter", tiny.write_adapter(tmp_path / name, seed), "--base", "tiny", "--name", name)
    return invoke


def document(result: Result) -> dict[str, Any]:
    """The JSON document on stdout."""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def spec(tmp_path: Path, text: str = "", weight: str = "1.0") -> Path:
    """A spec file of a cat of `one` and `two`, or the given text."""
    path = tmp_path / "spec.yaml"
    members = f"members: [{{ref: one, weight: {weight}}}, {{ref: two, weight: -0.5}}]"
    path.write_text(text or f"name: merged\nbase: tiny\nmethod: cat\nspace: delta\n{members}\n", encoding="utf-8")
    return path


def test_admit_prints_vector_findings_and_ledger(run: Run, tmp_path: Path) -> None:
    shown = run("admit", spec(tmp_path)).stdout
    assert "outcome  admitted" in shown
    assert "algebra     pass" in shown
    assert "total of 4 modules" in shown
    assert "composed: merged@1" in shown


def test_json_is_one_document_and_errors_are_json_too(run: Run, tmp_path: Path) -> None:
    admitted = document(run("admit", spec(tmp_path), "-o", "json"))
    assert admitted["outcome"] == "admitted"
    missing = run("show", "nobody", "-o", "json", code=4)
    assert json.loads(missing.stderr)["code"] == "NAME_UNKNOWN"
    assert missing.stdout == ""


def test_jsonl_writes_a_document_a_line(run: Run) -> None:
    rows = [json.loads(line) for line in run("ls", "adapters", "-o", "jsonl").stdout.splitlines()]
    assert {row["refs"][0] for row in rows} == {"one@1", "two@1"}


def test_a_plan_costs_the_work_and_stores_nothing(run: Run, tmp_path: Path) -> None:
    plan = document(run("admit", spec(tmp_path), "--plan", "-o", "json"))["plan"]
    assert plan["bytes_read"] == 2 * 4 * 2 * 2 * tiny.HIDDEN * 4
    run("show", "merged", code=4)


@pytest.mark.parametrize("weight", ["nan", ".nan", ".inf", "'1'", "true"])
def test_a_weight_that_is_no_finite_number_is_a_usage_error(run: Run, tmp_path: Path, weight: str) -> None:
    assert "SPEC_INVALID" in run("admit", spec(tmp_path, weight=weight), code=2).stderr


@pytest.mark.parametrize(
    "text",
    [
        "name: m\nbase: tiny\nmethod: cat\nspace: delta\nmembers: []\n",
        "name: BAD NAME\nbase: tiny\nmethod: cat\nspace: delta\nmembers: [{ref: one, weight: 1}]\n",
        "name: m\nbase: tiny\nmethod: blend\nspace: delta\nmembers: [{ref: one, weight: 1}]\n",
        "name: m\nname: n\nbase: tiny\nmethod: cat\nspace: delta\nmembers: [{ref: one, weight: 1}]\n",
        "name: m\nbase: tiny\nmethod: cat\nspace: delta\nmembers: [{ref: one, weight: 1}]\nextra: 1\n",
        "just text",
        "a: &x 1\nb: *x\n",
    ],
)
def test_a_spec_that_cannot_be_read_is_a_usage_error(run: Run, tmp_path: Path, text: str) -> None:
    run("admit", spec(tmp_path, text), code=2)


def test_a_name_outside_the_grammar_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    directory = tiny.write_adapter(tmp_path / "three", 3)
    assert "NAME_INVALID" in run("add", "adapter", directory, "--base", "tiny", "--name", "Über", code=2).stderr


def damaged(tmp_path: Path, what: str) -> Path:
    """An adapter directory with one fault."""
    tensors = tiny.factors(7)
    config: dict[str, Any] = {}
    if what == "module":
        config = {"target_modules": ["query", "value", "gate"]}
        tensors["base_model.model.encoder.layer.0.gate.lora_A.weight"] = tensors[A]
        tensors["base_model.model.encoder.layer.0.gate.lora_B.weight"] = tensors[B]
    elif what == "transposed":
        tensors[A] = np.ascontiguousarray(tensors[A].T)
    elif what == "rank":
        config = {"rank_pattern": {MODULE: 3}}
    elif what == "nan":
        tensors[B][1, 1] = np.nan
    elif what == "key":
        tensors["base_model.model.encoder.layer.0.mystery.lora_C.weight"] = tensors[A]
    elif what == "unpaired":
        del tensors[B]
    directory = tiny.write_adapter(tmp_path / what, tensors=tensors, **config)
    file = directory / "adapter_model.safetensors"
    if what == "truncated":
        file.write_bytes(file.read_bytes()[:-5])
    elif what == "pickle":
        file.rename(directory / "adapter_model.bin")
    elif what == "symlink":
        shutil.move(file, tmp_path / "elsewhere.safetensors")
        file.symlink_to(tmp_path / "elsewhere.safetensors")
    return directory


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("module", "TARGET_MODULE_MISSING"),
        ("transposed", "FACTOR_TRANSPOSED"),
        ("rank", "RANK_MISMATCH"),
        ("nan", "NON_FINITE"),
        ("truncated", "FILE_TRUNCATED"),
        ("pickle", "PICKLE_REFUSED"),
        ("symlink", "SYMLINK_REFUSED"),
        ("key", "KEY_UNKNOWN"),
        ("unpaired", "FACTOR_UNPAIRED"),
    ],
)
def test_a_damaged_adapter_is_refused_by_name_and_leaves_an_audit_row_where_it_was_read(
    run: Run, tmp_path: Path, what: str, code: str, where: str
) -> None:
    before = document(run("verify", "-o", "json"))
    told = run("add", "adapter", damaged(tmp_path, what), "--base", "tiny", "--name", "x", "-o", "json", code=3)
    errors = json.loads(told.stderr)["errors"]
    found = next(item for item in errors if item["code"] == code)
    assert all(found[field] for field in ("path", "expected", "observed", "hint"))
    after = document(run("verify", "-o", "json"))
    assert (after["manifests"], after["blobs"]) == (before["manifests"], before["blobs"])
    assert after["audit_events"] == before["audit_events"] + (where == "embedded"), "nothing is sent to be refused"


def test_a_stale_head_exits_5_and_names_the_head(run: Run) -> None:
    run("publish", "bot", "one", "--expect", "g0")
    told = run("publish", "bot", "two", "--expect", "g0", "-o", "json", code=5)
    assert json.loads(told.stderr)["head"] == "g1"


def test_a_conditional_decision_waits_for_its_codes_to_be_named(run: Run, tmp_path: Path) -> None:
    run("add", "base", tmp_path / "base", "--name", "shapes", "--evidence", "structural")
    run("add", "adapter", tmp_path / "one", "--base", "shapes", "--name", "s1")
    run("add", "adapter", tmp_path / "two", "--base", "shapes", "--name", "s2")
    text = (
        "name: m\nbase: shapes\nmethod: cat\nspace: delta\nmembers: [{ref: s1, weight: 1.0}, {ref: s2, weight: 1.0}]\n"
    )
    told = json.loads(run("admit", spec(tmp_path, text), "-o", "json", code=9).stderr)
    codes = sorted({item["code"] for item in told["errors"]})
    run("admit", spec(tmp_path, text + f"acknowledge: {json.dumps(codes)}\n"))


def test_yanked_members_are_not_admitted_and_a_purged_version_is_gone(run: Run, tmp_path: Path) -> None:
    run("yank", "two@1", "--reason", "bad data")
    assert "YANKED" in run("admit", spec(tmp_path), code=3).stderr
    run("yank", "two@1", "--reason", "checked", "--undo")
    run("admit", spec(tmp_path))
    run("publish", "bot", "merged")
    assert "STILL_LIVE" in run("purge", "two@1", "--reason", "asked to", "--yes", code=5).stderr
    run("publish", "bot", "one")
    run("purge", "two@1", "--reason", "asked to", "--yes")
    run("show", "two@1", code=4)
    run("add", "adapter", tmp_path / "two", "--base", "tiny", "--name", "two", code=4)
    run("verify", "--deep")


def test_labels_filter_lists_and_aliases_name_versions(run: Run) -> None:
    run("label", "one", "team=search")
    rows = json.loads(run("ls", "--label", "team=search", "-o", "json").stdout)
    assert [row["refs"] for row in rows] == [["one@1"]]
    run("alias", "one@1", "stable")
    assert document(run("show", "one@stable", "-o", "json"))["refs"] == ["one@1"]


def test_what_a_file_says_of_a_thing_is_shown_with_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tested.yaml"
    file.write_text("tested_by: red team\nruns: 3\nsets: [toxic, secret]\n", encoding="utf-8")
    assert run("attest", "one@1", file).stdout.startswith("said of blake3:")
    statements = document(run("show", "one@1", "-o", "json"))["statements"]
    (said,) = (item["body"] for item in statements if item["topic"] == "note")
    assert said == {"tested_by": "red team", "runs": 3, "sets": ["toxic", "secret"]}
    file.write_text("nested: {an: object}\n", encoding="utf-8")
    assert "STATEMENT_INVALID" in run("attest", "one@1", file, code=3).stderr


def test_gc_removes_what_nothing_names_after_its_grace(run: Run, tmp_path: Path) -> None:
    stray = tmp_path / "home" / "store" / "blobs" / "ab"
    stray.mkdir(exist_ok=True)
    (stray / ("ab" + "0" * 62)).write_bytes(b"left by a crash")
    assert "0 blobs removed" in run("gc").stdout
    assert "1 blobs removed, 15 bytes" in run("gc", "--grace", "0").stdout
    run("verify", "--deep")


def test_a_flipped_byte_is_named_and_nothing_else_is_blamed(run: Run, tmp_path: Path) -> None:
    file = document(run("show", "one", "-o", "json"))["files"]
    blob = next(entry["blob"] for entry in file if entry["path"].endswith(".safetensors"))
    digits = blob.removeprefix("blake3:")
    path = tmp_path / "home" / "store" / "blobs" / digits[:2] / digits
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    run("verify")
    told = json.loads(run("verify", "--deep", "-o", "json", code=7).stderr)
    assert [(item["code"], item["path"]) for item in told["errors"]] == [("BLOB_DIGEST_MISMATCH", "/" + blob)]
    run("publish", "bot", "one", code=7)
    run("add", "adapter", tmp_path / "one", "--base", "tiny", "--name", "one")


def test_a_registry_that_was_not_initialised_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_HOME", str(tmp_path / "nothing"))
    result = CliRunner().invoke(cli, ["ls"])
    assert result.exit_code == 8
    assert "registry init" in result.stderr
