"""Recording a base by what its owner says of it: the bytes stay where they are, and were read by the caller alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from registry.db import Change, evidence, manifests, names, statements
from registry.service.add import with_contracts
from registry.service.context import Context
from registry.service.results import Added
from schemas.base import BaseManifest
from schemas.canonical import JsonObject
from schemas.digests import Digest, Sha256
from schemas.model import Count, Record, validate
from schemas.names import check_name
from schemas.publication import StatementManifest


class DeclaredFile(Record):
    """A file as whoever has it hashed it; `size` in bytes."""

    blake3: Digest
    sha256: Sha256
    size: Count


def declare_base(
    context: Context,
    name: str,
    document: JsonObject,
    files: Mapping[str, DeclaredFile],
    contracts: Sequence[str] = (),
) -> Added:
    """Register a base manifest that the caller made of bytes which the registry did not see.

    A base that was read here keeps its evidence. The files become a statement of the caller, not blobs of the
    registry: their digests are a claim, and nobody who asks for a blob may be answered with one.

    Raises:
        RefusedError: the document is no base manifest.
    """
    check_name(name)
    context.require("register", name)
    with context.audited("base.declare", {"name": name}):
        manifest = validate(BaseManifest, document)
    if contracts:
        manifest = with_contracts(context, manifest, contracts)

    def work(change: Change) -> Added:
        digest = manifest.digest
        created = manifests.put(change, manifest)
        if created:
            evidence.put(change, digest, "evidence", "declared")
            statements.put(change, _provenance(digest, files, context.principal))
        assigned = names.assign(change, name, BaseManifest.KIND, digest)
        return Added(
            digest=digest, kind=BaseManifest.KIND, name=name, version=assigned.version, created=created, notes={}
        )

    return context.database.change("base.declare", context.principal, work)


def _provenance(digest: Digest, files: Mapping[str, DeclaredFile], author: str) -> StatementManifest:
    lines = tuple(f"{path} {file.blake3} {file.sha256} {file.size}" for path, file in sorted(files.items()))
    body: dict[str, str | int | float | bool | tuple[str, ...] | None] = {"declared_files": lines}
    return StatementManifest(topic="provenance", subject=digest, body=body, author=author, previous=None)
