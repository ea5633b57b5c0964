"""Continual states: registering one, and telling what it costs and how its tasks fared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.db import Reader, manifests
from registry.service import documents, resolve
from registry.service.context import Context
from registry.service.results import Added, StateReport
from schemas.adapter import AdapterManifest
from schemas.canonical import JsonObject, JsonValue
from schemas.continual import ContinualStateManifest
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.router import RouterManifest
from validators.continual import judge_state
from validators.growth import ledgers, transfer

REFERENCES: Final = frozenset({"base", "adapter", "parent", "parents", "selector"})


def add_state(context: Context, document: JsonObject, name: str) -> Added:
    """Register the state after a task. `parent` names the state before it, whose own parents come along."""
    found = documents.resolved(context, document, REFERENCES)
    with context.database.reading() as reader:
        found = _with_lineage(reader, found)
    return documents.add_document(context, found, name, ContinualStateManifest, _judge)


def report(context: Context, ref: str) -> StateReport:
    """Ledgers of a state, and what its matrix says where it has one."""
    with context.database.reading() as reader:
        state = manifests.load(reader, resolve.digest_of(reader, ref), ContinualStateManifest)
        counted = ledgers(state, adapters_of(reader, state), selector_of(reader, state))
    matrix = state.evaluation
    return StateReport(
        state=state.digest,
        tasks=tuple(task.task for task in state.tasks),
        ledgers=counted,
        transfer=None if isinstance(matrix, str) else transfer(matrix),
    )


def adapters_of(reader: Reader, state: ContinualStateManifest) -> dict[Digest, AdapterManifest]:
    """The adapters of a state's tasks by digest."""
    return {task.adapter: manifests.load(reader, task.adapter, AdapterManifest) for task in state.tasks}


def selector_of(reader: Reader, state: ContinualStateManifest) -> RouterManifest | None:
    """The selector of a state that has one."""
    return None if state.selector == "none" else manifests.load(reader, state.selector, RouterManifest)


def _judge(reader: Reader, state: ContinualStateManifest) -> Iterable[Finding]:
    parents = [manifests.load(reader, parent, ContinualStateManifest) for parent in state.parents]
    return list(judge_state(state, adapters_of(reader, state), parents, selector_of(reader, state)))


def _with_lineage(reader: Reader, document: JsonObject) -> JsonObject:
    """The document with `parents` written out where it names one `parent`."""
    parent = document.get("parent")
    if not isinstance(parent, str):
        return document
    rest = {key: value for key, value in document.items() if key != "parent"}
    before = manifests.load(reader, parent, ContinualStateManifest)
    lineage: list[JsonValue] = [*before.parents, parent]
    return {"parents": lineage, **rest}
