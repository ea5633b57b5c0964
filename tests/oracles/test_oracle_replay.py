"""Replays are bound by four digests; a difference names what changed."""

import json
from pathlib import Path

import pytest

from oracles.errors import OracleDriftError
from oracles.lock import updated, write_lock
from oracles.registry import names
from oracles.replay import LOCK, Binding, bind, read_lock, replay
from oracles.runner import run
from oracles.source import program_modules

OTHER = "blake3:" + "0" * 64


def lock_with(**digests: str) -> dict[str, Binding]:
    return {"dora": bind(run("dora")).model_copy(update=digests)}


@pytest.mark.parametrize("name", names())
def test_every_listed_oracle_replays_as_locked(name: str) -> None:
    assert replay(name).report.passed


def test_two_runs_write_the_same_report_bytes() -> None:
    assert run("dora").to_bytes() == run("dora").to_bytes()


@pytest.mark.parametrize("part", ["fixture", "program", "semantic"])
def test_a_changed_part_is_named(part: str) -> None:
    with pytest.raises(OracleDriftError) as caught:
        replay("dora", lock=lock_with(**{part: OTHER}))
    assert caught.value.changed == (part,)


def test_other_report_bytes_of_another_machine_are_no_drift() -> None:
    assert not replay("dora", lock=lock_with(report=OTHER)).same_bytes
    assert replay("dora", lock=lock_with()).same_bytes


def test_an_edited_report_file_is_named_and_the_true_one_accepted() -> None:
    genuine = run("dora").to_bytes()
    forged = json.loads(genuine)
    forged["claims"]["quality"] = True
    assert replay("dora", lock=lock_with(), report_file=genuine).same_bytes
    with pytest.raises(OracleDriftError) as caught:
        replay("dora", lock=lock_with(), report_file=json.dumps(forged).encode())
    assert caught.value.changed == ("report",)


def test_an_oracle_that_was_never_locked_is_drift() -> None:
    with pytest.raises(OracleDriftError) as caught:
        replay("dora", lock={})
    assert caught.value.changed == ("lock",)


def test_the_program_covers_the_module_and_the_core_it_imports() -> None:
    covered = program_modules("oracles.routed.composition_merge")
    assert {"oracles.routed.composition_merge", "oracles.linalg", "oracles.matrix", "oracles.report"} <= set(covered)
    assert "oracles.variants.dora" not in covered


def test_locking_one_oracle_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "replays.json"
    lock = updated({**read_lock(), "gone": next(iter(read_lock().values()))}, [run("dora")])
    write_lock(lock, path)
    assert LOCK.validate_json(path.read_bytes()) == lock
    assert set(lock) == set(read_lock())
