"""The table of oracles is complete, and each listed oracle keeps the rules of the room."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import oracles
from oracles.errors import UnknownOracleError
from oracles.mutation import close_mutations
from oracles.registry import ORACLES, load, names
from oracles.report import CLAIMS
from oracles.runner import run_all
from tests.oracles.ledger import report

TWENTY_NINE = {
    "oracles.variants": "nf4 adalora rslora lora_plus lora_fa pissa loftq dora variant_stacks variant_lifecycle",
    "oracles.conditional": "moa switchhead mod_training mod_causal mod_sparse_kv mode_composition multimodal_stage "
    "family_contracts sensitivity",
    "oracles.routed": "adapter_identity routed_operator method_training shared_factor composition_merge "
    "continual_state routing_granularity runtime_execution cross_contract evaluation_publication",
}


def test_exactly_the_twenty_nine_oracles_are_listed() -> None:
    expected = {f"{folder}.{name}" for folder, listed in TWENTY_NINE.items() for name in listed.split()}
    assert len(expected) == 29
    assert set(ORACLES.values()) == expected


def test_every_fixture_file_belongs_to_a_listed_oracle() -> None:
    root = Path(oracles.__file__).parent
    found = {f"oracles.{path.parent.name}.{path.stem}" for path in root.glob("*/*.json")}
    assert found == set(ORACLES.values())


def test_an_unlisted_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownOracleError) as caught:
        load("doora")
    assert caught.value.known == names()


@pytest.mark.parametrize("name", names())
def test_every_check_holds(name: str) -> None:
    assert [check.name for check in report(name).failed] == []
    assert report(name).passed


@pytest.mark.parametrize("name", names())
def test_check_names_are_unique(name: str) -> None:
    found = [check.name for check in report(name).checks]
    assert sorted(set(found)) == sorted(found)


@pytest.mark.parametrize("name", names())
def test_every_mutation_with_a_role_is_rejected(name: str) -> None:
    closure = close_mutations(load(name))
    assert (closure.survivors, closure.mislabelled) == ((), ())
    assert closure.by_check > 0
    assert closure.complete


@pytest.mark.parametrize("name", names())
def test_every_check_cites_the_oracles_own_document(name: str) -> None:
    letter = load(name).document
    assert [c.source for c in report(name).checks if not c.source.startswith(f"{letter} 0x0")] == []


@pytest.mark.parametrize("name", names())
def test_the_report_makes_none_of_the_closed_claims(name: str) -> None:
    assert json.loads(report(name).to_bytes())["claims"] == dict.fromkeys(CLAIMS, False)


def test_a_replay_of_all_stays_far_below_two_minutes() -> None:
    assert sum(one.seconds for one in run_all(names())) < 120


def test_oracles_load_neither_torch_nor_numpy_nor_other_rooms() -> None:
    program = (
        "import sys\n"
        "from oracles.registry import load, names\n"
        "[load(name) for name in names()]\n"
        "print(sorted({'torch', 'numpy', 'compose', 'validators', 'registry'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
