"""What a person reads when something is refused, listed or piped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from registry.cli.main import cli
from tests.support import tiny


@pytest.fixture
def home(where: str, tmp_path: Path) -> Path:
    """A folder with a registry that holds a base and two adapters, as the working directory."""
    assert where in ("embedded", "remote")
    run("add", "base", str(tiny.write_base(tmp_path / "base")), "--name", "tiny")
    for seed, name in enumerate(("one", "two"), 1):
        run("add", "adapter", str(tiny.write_adapter(tmp_path / name, seed)), "--base", "tiny", "--name", name)
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    """`registry …` with its exit code checked."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def spec(folder: Path, text: str) -> str:
    """A spec file."""
    path = folder / "spec.yaml"
    path.write_text(f"name: m\nbase: tiny\nmethod: cat\n{text}\n", encoding="utf-8")
    return str(path)


def test_an_unknown_code_is_not_found() -> None:
    assert "CODE_UNKNOWN" in run("explain", "NO_SUCH_CODE", code=4).stderr


def test_a_refusal_names_each_code_once_and_says_its_findings_once(home: Path) -> None:
    told = run("admit", spec(home, "members: [{ref: one, weight: 1}, {ref: one, weight: 2}]"), code=3)
    assert told.stdout.count("repair (spec): Write space: delta or space: factor.") == 1
    assert "refuse MEMBER_TWICE: A member appears once with its whole coefficient." in told.stdout
    assert "  one@1 at /members: expected once, with weight 3.0, found 2 times" in told.stdout
    assert told.stderr.splitlines()[0] == "refused: MEMBER_TWICE, SPACE_UNDECLARED"
    assert "  admission: blake3:" in told.stderr


def test_a_code_with_many_places_is_said_once_with_the_first_of_them_and_before_every_note(home: Path) -> None:
    run("add", "adapter", str(tiny.write_adapter(home / "wide", 3, rank=4)), "--base", "tiny", "--name", "wide")
    text = "members: [{ref: one, weight: 1}, {ref: wide, weight: 0}]"
    path = Path(spec(home, f"space: factor\n{text}"))
    path.write_text(path.read_text(encoding="utf-8").replace("method: cat", "method: factor_linear"), encoding="utf-8")
    lines = run("admit", str(path), code=3).stdout.splitlines()
    said = [line for line in lines if line.split()[0] in ("refuse", "note")]
    assert [line.split(":")[0] for line in said] == [
        "refuse RANKS_UNEQUAL",
        "note FACTOR_METHOD_GAUGE",
        "note WEIGHT_ZERO",
    ]
    assert sum("expected one rank, found 2, 4" in line for line in lines) == 3
    assert "  … 1 more: -o json" in lines
    assert "  wide@1 at /members/weight: expected not 0, found 0" in lines


def test_what_waits_for_an_acknowledgement_says_what_to_write(home: Path) -> None:
    run("add", "base", "base", "--name", "shapes", "--evidence", "structural")
    run("add", "adapter", "one", "--base", "shapes", "--name", "s1")
    path = home / "spec.yaml"
    path.write_text("{name: m, base: shapes, method: cat, space: delta, members: [{ref: s1, weight: 1}]}")
    told = run("admit", str(path), code=9).stderr
    assert told.splitlines()[0] == "not acknowledged: BASE_EVIDENCE_STRUCTURAL"
    assert "write acknowledge: [BASE_EVIDENCE_STRUCTURAL] into the spec" in told


@pytest.mark.usefixtures("home")
def test_a_table_in_a_pipe_is_not_cut() -> None:
    told = run("diff", "one", "tiny").stdout
    assert "…" not in told
    assert all(
        len(digest) == 64 for digest in (line.partition('"blake3:')[2][:64] for line in told.splitlines()) if digest
    )


def test_a_list_marks_what_has_no_name(home: Path) -> None:
    run("admit", spec(home, "space: delta\nmembers: [{ref: one, weight: 1}, {ref: two, weight: 1}]"))
    admission = run("ls", "admissions").stdout.splitlines()[1]
    assert admission.split()[:2] == ["admission", "-"]


@pytest.mark.usefixtures("home")
def test_tokens_are_listed_by_the_id_that_revokes_them() -> None:
    made = run("token", "create", "ci", "--allow", "read", "--allow", "register")
    secret, identity = made.stdout.strip(), made.stderr.split()[1].rstrip(":")
    listed = run("token", "ls").stdout
    assert identity in listed
    assert secret not in listed
    run("token", "revoke", identity)
    assert "yes" in run("token", "ls").stdout


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("principal", ["", " ci", "a\nb"])
def test_a_token_needs_a_name(principal: str) -> None:
    assert "PRINCIPAL_INVALID" in run("token", "create", principal, "--allow", "read", code=2).stderr


@pytest.mark.usefixtures("home")
def test_a_reason_is_a_code() -> None:
    told = run("publish", "bot", "one", "--reason", "Looks good", code=2).stderr
    assert "REASON_INVALID" in told
    assert "hotfix" in told


@pytest.mark.usefixtures("home")
def test_a_head_that_is_not_in_the_chain_says_where_a_head_comes_from() -> None:
    told = run("verify", "--expect-head", "abc", code=7).stderr
    assert "HEAD_MISSING at /audit head" in told
    assert "Give the whole head that `registry verify` printed" in told


@pytest.mark.parametrize("flag", [("--workers", "4"), ("--memory-limit", str(2**30))])
def test_how_a_server_composes_is_not_for_the_caller_to_say(flag: tuple[str, str], tmp_path: Path) -> None:
    text = "space: delta\nmembers: [{ref: one, weight: 1}]"
    told = run("--url", "http://127.0.0.1:9", "admit", spec(tmp_path, text), *flag, code=2).stderr
    assert "PLACE_AMBIGUOUS" in told
    assert f"a server's address and {flag[0]}" in told


@pytest.mark.usefixtures("where")
def test_what_is_unknown_or_unreadable_is_told_by_its_code_and_what_helps(tmp_path: Path) -> None:
    told = run("contract", "diff", "mod_training", "nobody", code=4).stderr
    assert "NAME_UNKNOWN" in told
    assert "Built-in contracts are " in told
    assert "mod_training" in told
    assert "LEASE_UNKNOWN" in run("lease", "release", "nothing", code=4).stderr
    broken = tmp_path / "router.yaml"
    broken.write_text("pool: [1\n", encoding="utf-8")
    told = run("add", "router", str(broken), "--name", "r", code=2).stderr
    assert "SPEC_UNPARSABLE" in told
    assert "Write one mapping in YAML or JSON" in told
    for command in (["add", "router", "--name", "r"], ["admit"]):
        told = run(*command, "-o", "json", str(tmp_path / "none.yaml"), code=2).stderr
        assert json.loads(told)["code"] == "FILE_UNREADABLE"
