"""What `inspect` says of real adapters is what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from registry.cli.main import cli
from registry.formats import read_base
from registry.service.inspect import inspect_against, inspect_directory
from registry.service.inspected import Inspected
from tests.registry.formats.builders import ADAPTERS, MINILM, TARGETS, factors, write_adapter, write_base
from tests.support.house import BASE, House


def of(name: str) -> Inspected:
    return inspect_directory(ADAPTERS / name, MINILM)


def ranks(found: Inspected, leaf: str) -> dict[str, tuple[int, float]]:
    return {group.layers: (group.rank, group.scale) for group in found.groups if group.module.endswith(leaf)}


def test_the_rank_pattern_adapter_shows_its_ranks_scales_and_head() -> None:
    found = of("minilm-lora-rankpattern")
    assert ranks(found, "query") == {"0": (4, 16 / 4), "1-5": (8, 16 / 8)}
    assert ranks(found, "value") == {"0-5": (8, 32 / 8)}
    assert found.parts.keys() == {"classifier.bias", "classifier.weight"}
    assert found.facts["base"] == "12 of 12 modules fit, name rule remove_bert_prefix"
    assert (found.surprises, found.problems, found.lanes) == ((), (), ("independent", "static_fusion"))


def test_the_dora_adapter_has_magnitudes_and_is_not_additive() -> None:
    found = of("minilm-dora-rslora")
    assert {(group.extra, group.rule, group.rank) for group in found.groups} == {
        (("magnitude",), "alpha_over_sqrt_r", 8)
    }
    assert found.facts["effect"].startswith("not additive")
    assert found.lanes == ("independent",)


def test_the_three_states_of_pissa_are_told_apart() -> None:
    initial, native, converted = (of(f"minilm-pissa-{state}") for state in ("init", "raw", "converted"))
    assert (initial.facts["family"], initial.facts["init_lora_weights"]) == ("lora (LoRA)", "True")
    (surprise,) = initial.surprises
    assert surprise.code == "BASE_REPEATED"
    # NumPy over all twelve modules of the snapshot: a median of 0.383, between 0.316 and 0.414.
    assert surprise.figure == pytest.approx(0.383, abs=0.03)
    assert initial.lanes == ("independent",)
    assert (native.facts["initializer"], native.facts["payload"][:6]) == ("pissa", "native")
    assert {problem.code for problem in converted.problems} == {"SAVED_MODULE_MISSING"}
    assert {group.rank for group in converted.groups} == {16}
    assert converted.lanes == ()


def test_the_adalora_adapter_shows_initial_and_allocated_ranks() -> None:
    found = of("minilm-adalora")
    assert (found.facts["init_r"], found.facts["target_r"]) == ("8", "4")
    allocated = [group.rank for group in found.groups for _ in range(group.count)]
    assert (sum(allocated), len(allocated)) == (4 * 12, 12)
    assert {group.scale for group in found.groups} == {16 / (8 + 1e-5)}


def test_without_a_base_what_needs_one_is_said_to_be_open() -> None:
    found = inspect_directory(ADAPTERS / "qa-lora")
    assert found.facts["completeness"] == "not checked"
    assert sum(group.count for group in found.groups) == 12
    assert found.problems == ()


def test_factors_of_zeros_and_missing_modules_are_told_together(tmp_path: Path) -> None:
    zero = {name: value * (0 if "lora_B" in name else 1) for name, value in factors(TARGETS[1:]).items()}
    found = inspect_directory(write_adapter(tmp_path / "a", zero), write_base(tmp_path / "base"))
    assert [item.code for item in found.surprises] == ["B_ALL_ZERO"]
    assert [item.code for item in found.problems] == ["MODULES_MISSING"]
    assert found.facts["completeness"] == "1 targeted modules are missing"


def test_a_directory_of_another_method_is_told_by_its_name(tmp_path: Path) -> None:
    found = inspect_directory(write_adapter(tmp_path, peft_type="LOHA"))
    assert (found.kind, [item.code for item in found.problems]) == ("unknown", ["METHOD_UNSUPPORTED"])
    assert "LoHa" in found.problems[0].repair


def test_a_base_is_told_by_its_headers() -> None:
    found = inspect_directory(MINILM)
    assert (found.kind, found.facts["model_type"], found.facts["tokenizer"]) == ("base", "bert", "30522 ids")


def test_the_command_tells_one_screen_and_the_same_as_json() -> None:
    command = ["inspect", str(ADAPTERS / "minilm-pissa-init"), "--base", str(MINILM)]
    table = CliRunner().invoke(cli, command)
    assert table.exit_code == 0, table.output
    assert len(table.output.splitlines()) <= 40
    assert "BASE_REPEATED 0.38" in table.output
    document = json.loads(CliRunner().invoke(cli, [*command, "-o", "json"]).output)
    assert document == json.loads(json.dumps(of("minilm-pissa-init").document()))


def test_a_registered_base_serves_as_well(tmp_path: Path) -> None:
    house = House(tmp_path, f"sqlite:///{tmp_path / 'registry.db'}").furnish(1)
    with house.open() as registry:
        found = registry.inspect(tmp_path / "one", BASE)
    assert found.problems == ()
    assert found.facts["base"] == "4 of 4 modules fit, name rule none"
    assert found.facts["base weights"].startswith("correlation ")


def test_factors_that_were_compared_with_nothing_are_said_to_be_not_verified() -> None:
    found = inspect_against(ADAPTERS / "qa-lora", read_base(MINILM, evidence="structural").manifest, lambda _: None)
    assert found.facts["base weights"] == "not verified: none of them can be read"
