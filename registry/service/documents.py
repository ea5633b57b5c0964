"""Registering what people write by hand: a YAML or JSON document becomes a judged, stored and named manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from registry.db import Change, Reader, manifests, names
from registry.errors import RefusedError
from registry.service import resolve
from registry.service.context import Context
from registry.service.results import Added
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import Finding
from schemas.linked import LinkedManifest
from schemas.model import validate
from schemas.names import check_name
from validators import problem_of

M = TypeVar("M", bound=LinkedManifest)
WORDS = frozenset({"none", "not_verified"})
"""What stands where a coordinate is not owned or not known; never a reference."""


def add_document(
    context: Context,
    document: JsonObject,
    name: str,
    model: type[M],
    judge: Callable[[Reader, M], Iterable[Finding]],
    keep: Callable[[Change, M], None] | None = None,
) -> Added:
    """Validate a document whose references are digests, judge it, and store it under a name.

    `keep` writes rows that belong to the manifest, in the same transaction.

    Raises:
        RefusedError: a field or rule refuses; nothing but an audit line is kept.
    """
    check_name(name)
    context.require("register", name)
    with context.audited(f"{model.KIND}.add", {"name": name}):
        manifest = validate(model, document)
        with context.database.reading() as reader:
            findings = list(judge(reader, manifest))
        _refuse(findings)
    conditions: list[JsonValue] = [*sorted({item.code for item in findings})]
    notes: JsonObject = {"conditions": conditions} if conditions else {}

    def work(change: Change) -> Added:
        created = manifests.put(change, manifest)
        if keep is not None:
            keep(change, manifest)
        assigned = names.assign(change, name, model.KIND, manifest.digest)
        return Added(
            digest=manifest.digest,
            kind=model.KIND,
            name=name,
            version=assigned.version,
            created=created,
            notes=notes,
        )

    return context.database.change(f"{model.KIND}.add", context.principal, work)


def resolved(context: Context, document: JsonObject, references: frozenset[str]) -> JsonObject:
    """The document with each reference under one of these keys replaced by the digest it means now."""
    with context.database.reading() as reader:
        found = with_digests(reader, document, references)
    assert isinstance(found, dict)
    return found


def with_digests(reader: Reader, value: JsonValue, references: frozenset[str], *, here: bool = False) -> JsonValue:
    """The value with every reference under one of these keys resolved; lists of references too."""
    if isinstance(value, Mapping):
        return {key: with_digests(reader, item, references, here=key in references) for key, item in value.items()}
    if isinstance(value, list):
        return [with_digests(reader, item, references, here=here) for item in value]
    if here and isinstance(value, str) and value not in WORDS:
        return resolve.digest_of(reader, value)
    return value


def _refuse(findings: list[Finding]) -> None:
    refusals = [problem_of(item) for item in findings if item.severity == "refuse"]
    if refusals:
        raise RefusedError(*refusals)
