"""The resolver behind vLLM's published classes: a generation by name, as plain LoRA, and no other name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from registry.client.vllm_resolver import RESOLVER_NAME, RegistryResolver, register
from registry.settings import Settings
from tests.registry.client.conftest import Served, settings_in
from tests.support import tiny
from tests.support.house import BASE, House
from tests.support.plain_reader import read_plain

INTERFACE = Path(__file__).parents[2] / "data" / "vllm"
RESOLVER_SHA256 = "ed57a012465fd64a3a189dbc0fd7bcf1b78821ae494b989ada54dcf39e157aff"
SERVED = "served-base"


@dataclass(frozen=True)
class Vllm:
    """vLLM's classes, with our resolver registered in them."""

    resolver: Any
    request: Any
    house: House
    directory: Path

    def resolve(self, name: str) -> Any:
        """As vLLM's server asks for an adapter it does not hold."""
        found = self.resolver.LoRAResolverRegistry.get_resolver(RESOLVER_NAME)
        return asyncio.run(found.resolve_lora(SERVED, name))


@pytest.fixture
def house(tmp_path: Path, sqlite_template: Path) -> House:
    """A registry whose channel `bot` has two generations of rank-stabilised adapters."""
    made = House(tmp_path, f"sqlite:///{tmp_path / 'registry.db'}")
    copyfile(sqlite_template, tmp_path / "registry.db")
    made.furnish(0)
    with made.open() as registry:
        for seed, name in enumerate(("one", "two"), 1):
            registry.add_adapter(tiny.write_adapter(tmp_path / name, seed, rank=4, use_rslora=True), BASE, name)
            registry.publish("bot", [name])
    return made


@pytest.fixture
def vllm(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    """The interface on the path under vLLM's name, and the settings a server would have."""
    package = tmp_path / "site" / "vllm"
    (package / "lora").mkdir(parents=True)
    copyfile(INTERFACE / "logger.py.txt", package / "logger.py")
    for name in ("resolver", "request"):
        copyfile(INTERFACE / f"{name}.py.txt", package / "lora" / f"{name}.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name, value in house.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REGISTRY_VLLM_BASE", BASE)
    monkeypatch.setenv("REGISTRY_VLLM_DIRECTORY", str(tmp_path / "adapters"))
    register()
    yield Vllm(import_module("vllm.lora.resolver"), import_module("vllm.lora.request"), house, tmp_path / "adapters")
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def test_the_interface_is_the_published_file() -> None:
    assert hashlib.sha256((INTERFACE / "resolver.py.txt").read_bytes()).hexdigest() == RESOLVER_SHA256


def test_the_entry_point_leads_to_the_function_that_registers() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["project"]["entry-points"]["vllm.general_plugins"]["adapter_registry"]
    module, _, name = declared.partition(":")
    assert getattr(import_module(module), name) is register


def test_registering_twice_offers_one_resolver_of_the_published_class(vllm: Vllm) -> None:
    register()
    assert set(vllm.resolver.LoRAResolverRegistry.get_supported_resolvers()) == {RESOLVER_NAME}
    found = vllm.resolver.LoRAResolverRegistry.get_resolver(RESOLVER_NAME)
    assert isinstance(found, vllm.resolver.LoRAResolver)
    assert isinstance(found, RegistryResolver)


@pytest.mark.parametrize("missing", ["REGISTRY_VLLM_BASE", "REGISTRY_VLLM_DIRECTORY"])
def test_without_both_settings_nothing_is_offered(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_VLLM_BASE", BASE)
    monkeypatch.setenv("REGISTRY_VLLM_DIRECTORY", "/adapters")
    monkeypatch.delenv(missing)
    register()
    assert "vllm" not in sys.modules


def test_a_registry_behind_a_server_gives_the_same_generation_as_in_this_process(
    served: Served, tmp_path: Path
) -> None:
    with served.inside() as registry:
        registry.publish("bot", ["one"])
    found = []
    for name, settings in {
        "here": settings_in(served.folder),
        "there": Settings(url=served.url, token=SecretStr(served.token)),
    }.items():
        resolver = RegistryResolver(settings, "tiny", tmp_path / name, dict)
        request: Any = asyncio.run(resolver.resolve_lora(SERVED, "bot@g1"))
        files = {path.name: path.read_bytes() for path in sorted(Path(request["lora_path"]).iterdir())}
        found.append((request["lora_int_id"], Path(request["lora_path"]).name, files))
    assert found[0] == found[1]


def test_a_generation_is_served_as_plain_lora_with_its_own_delta(vllm: Vllm) -> None:
    request = vllm.resolve("bot@g2")
    assert isinstance(request, vllm.request.LoRARequest)
    assert (request.lora_name, request.lora_int_id > 0) == ("bot@g2", True)
    path = Path(request.lora_path)
    assert (path.parent, path.name.startswith("bot@g2-")) == (vllm.directory, True)
    config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == SERVED
    found = read_plain(path)
    for module in tiny.MODULES:
        expected = tiny.delta(vllm.house.folder / "two", module)
        assert np.linalg.norm(found[module] - expected) <= 1e-6 * np.linalg.norm(expected)


def test_every_generation_has_a_directory_and_a_number_of_its_own(vllm: Vllm) -> None:
    with vllm.house.open() as registry:
        registry.rollback("bot")
    old, new, again = (vllm.resolve(name) for name in ("bot@g1", "bot@g3", "bot@g3"))
    assert (again.lora_int_id, again.lora_path) == (new.lora_int_id, new.lora_path)
    assert old.lora_int_id != new.lora_int_id
    assert old.lora_path != new.lora_path
    # The rollback serves the old bytes under its new name.
    weights = [(Path(item.lora_path) / "adapter_model.safetensors").read_bytes() for item in (old, new)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("name", ["bot", "bot@g9", "nobody@g1", "bot@stable", "some/repository", "one@1", ""])
def test_no_other_name_is_answered(vllm: Vllm, name: str) -> None:
    assert vllm.resolve(name) is None


def test_an_adapter_of_another_base_is_not_answered(
    vllm: Vllm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with vllm.house.open() as registry:
        registry.add_base(tiny.write_base(tmp_path / "other", tiny.base_tensors(5)), "other")
        registry.add_adapter(tmp_path / "one", "other", "elsewhere")
        registry.publish("other-bot", ["elsewhere"])
    assert vllm.resolve("other-bot@g1") is None
    assert "BASE_NOT_SERVED" in caplog.text


def test_a_generation_of_several_is_not_one_adapter(vllm: Vllm, caplog: pytest.LogCaptureFixture) -> None:
    with vllm.house.open() as registry:
        registry.publish("bot", ["one", "two"])
    assert vllm.resolve("bot@g3") is None
    assert "REF_NOT_SINGLE" in caplog.text


def test_what_lies_under_a_generations_name_by_accident_is_not_served(vllm: Vllm) -> None:
    path = Path(vllm.resolve("bot@g1").lora_path)
    (path / "registry.json").write_text("{}", encoding="utf-8")
    assert vllm.resolve("bot@g1") is None
