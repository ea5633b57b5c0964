"""A registry with a tiny base for pairs of inputs that fit every shape and differ in what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from registry.db import Database
from registry.service import add, admit, specs
from registry.service.context import Context
from registry.service.results import Admitted
from registry.storage import open_store
from registry.wiring import LazyComposer
from schemas.adapter import AdapterManifest
from schemas.canonical import JsonObject, JsonValue
from tests.support import stored, tiny
from tests.support.stored import Factor

QUERY = tiny.MODULES[0]


@pytest.fixture
def context(sqlite_template: Path, tiny_base: Path, tmp_path: Path) -> Iterator[Context]:
    """A fresh registry that holds the tiny base."""
    copyfile(sqlite_template, tmp_path / "registry.db")
    with Database(f"sqlite:///{tmp_path / 'registry.db'}") as database:
        made = Context(database, open_store(str(tmp_path / "store")), LazyComposer(1, 2**30), "tester")
        add.add_base(made, tiny_base, "tiny")
        yield made


def ask(context: Context, members: Mapping[str, float], base: str = "tiny", **fields: Any) -> Admitted:
    """Admit a spec named `merged`, by default the plain sum."""
    listed: list[JsonValue] = [{"ref": ref, "weight": weight} for ref, weight in members.items()]
    document: JsonObject = {"name": "merged", "base": base, "method": "cat", "space": "delta", "members": listed}
    return admit.admit(context, specs.spec_from(document | fields))


def alone(context: Context, name: str, **fields: Any) -> Admitted:
    """Admit one member by itself."""
    return ask(context, {name: 1.0}, **fields)


def refusals(answer: Admitted) -> set[str]:
    """The codes that refuse."""
    return {finding.code for finding in answer.decision.refusals}


def put(context: Context, name: str, factor: Factor, **fields: Any) -> AdapterManifest:
    """Store one factor on `QUERY` as an adapter of a family."""
    source = {"source": fields.get("family", "lora")} | dict(factor.fields)
    return stored.put(
        context, "tiny", name, {QUERY: Factor(factor.a, factor.b, factor.scale, factor.extra, source)}, **fields
    )


def shapes(context: Context, adapter: AdapterManifest) -> dict[str, list[tuple[int, ...]]]:
    """What a loader looks at: every module with the shapes of its tensors, read back from the store."""
    return {
        module: [array.shape for array in (factor.a, factor.b, *factor.extra.values())]
        for module, factor in stored.arrays_of(context, adapter).items()
    }
