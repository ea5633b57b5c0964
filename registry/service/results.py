"""What use cases return: frozen records that the command line prints and the web answers as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from registry.db.lineage import Edge
from schemas.canonical import JsonObject
from schemas.decision import Decision, Outcome
from schemas.digests import Digest
from schemas.model import Record
from validators.compute import Comparison
from validators.evaluations import Paired, Verdict
from validators.growth import Ledgers, Transfer

State = Literal["yanked", "purged"]


class Added(Record):
    """A registered thing; `created` is false when the registry held it already, under whatever name or packaging."""

    digest: Digest
    kind: str
    name: str
    version: int
    created: bool
    notes: JsonObject

    @property
    def ref(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.name}@{self.version}"


class Listed(Record):
    """One manifest in a list; list and show have the same shape for the fields they share."""

    digest: Digest
    kind: str
    refs: tuple[str, ...]
    base: Digest | None
    family: str | None
    method: str | None
    outcome: str | None
    state: State | None


class Page(Record):
    """A keyset page; `next` continues it."""

    items: tuple[Listed, ...]
    next: str | None


class FileEntry(Record):
    """One file of a packaging and the blob that holds it."""

    path: str
    blob: Digest
    sha256: str
    size: int


class Shown(Record):
    """Everything known about one manifest: the document, its names, files, measurement and statements.

    `evidence` is how far a base's bytes were read, `binding` how an adapter's base is known; null for other kinds.
    """

    digest: Digest
    kind: str
    refs: tuple[str, ...]
    manifest: JsonObject
    files: tuple[FileEntry, ...]
    evidence: str | None
    binding: str | None
    measurement: JsonObject | None
    run_record: JsonObject | None
    statements: tuple[JsonObject, ...]


class Difference(Record):
    """One field in which two manifests differ; absent sides are null."""

    path: str
    left: str | None
    right: str | None


class Admitted(Record):
    """The answer to a spec: the stored decision and, when it was admitted, what was composed.

    `plan` is set for a plan only; a dry run has neither admission nor composition.
    """

    outcome: Outcome
    decision: Decision
    admission: Digest | None = None
    acknowledged: tuple[str, ...] = ()
    composition: Digest | None = None
    output: Digest | None = None
    candidate: Digest | None = None
    name: str | None = None
    version: int | None = None
    created: bool = False
    measurement: JsonObject | None = None
    run_record: JsonObject | None = None
    plan: JsonObject | None = None


class Published(Record):
    """One generation of a channel."""

    channel: str
    generation: int
    publication: Digest
    artifacts: tuple[Digest, ...]
    refs: tuple[str, ...]
    previous: Digest | None
    reason: str
    restored: int | None
    kv_identity: Digest
    live: bool


class GenerationPage(Record):
    """A keyset page of a channel's generations, and the number of its head."""

    head: int
    items: tuple[Published, ...]
    next: str | None


class ChannelPage(Record):
    """A keyset page of channels, each as its live generation."""

    items: tuple[Published, ...]
    next: str | None


class NameListed(Record):
    """A name and what it means now: its newest version that was not purged, null when all were."""

    name: str
    kind: str
    version: int | None
    digest: Digest | None


class NamePage(Record):
    """A keyset page of names, by name."""

    items: tuple[NameListed, ...]
    next: str | None


@dataclass(slots=True)
class LineageNode:
    """One manifest of a lineage: a plain record, not even frozen, for an answer may have thousands."""

    digest: Digest
    kind: str
    refs: tuple[str, ...]
    depth: int


class Lineage(Record):
    """Ancestors or descendants of one manifest, and the live channels that contain it."""

    root: Digest
    direction: Literal["up", "down"]
    nodes: tuple[LineageNode, ...]
    links: tuple[Edge, ...]
    live: tuple[str, ...]


class Exported(Record):
    """A written directory.

    `adapter` is what went out: the artifact's own, or the child of `conversion`. `kv_identity` belongs to a generation.
    """

    directory: str
    artifact: Digest
    adapter: Digest
    profile: str
    conversion: Digest | None
    kv_identity: Digest | None
    files: tuple[FileEntry, ...]


class Fault(Record):
    """One thing `verify` found: what is wrong, with what, and how to repair it."""

    code: str
    subject: str
    expected: str
    observed: str
    hint: str


class Verified(Record):
    """A verification: what was checked, what is wrong, and the audit head to keep elsewhere."""

    manifests: int
    blobs: int
    tensors: int
    audit_events: int
    head: str | None
    deep: bool
    faults: tuple[Fault, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


class Said(Record):
    """A statement about a thing."""

    subject: Digest
    topic: str
    statement: Digest


class Aliased(Record):
    """An alias and the version it means now."""

    name: str
    alias: str
    version: int
    event: int


class Purged(Record):
    """A tombstone and the blobs that went with it."""

    digest: Digest
    reason: str
    removed: tuple[Digest, ...]


class Collected(Record):
    """What garbage collection removed."""

    removed: tuple[Digest, ...]
    bytes: int
    staging: int


class OracleListed(Record):
    """An oracle: the document and sections it executes, and what it proves."""

    name: str
    source: str
    sections: tuple[str, ...]
    proves: tuple[str, ...]


class OracleRun(Record):
    """A replay that agrees with its lock; mutation figures are null when they were not asked for."""

    name: str
    checks: int
    failed: tuple[str, ...]
    worst_error: float
    semantic: Digest
    report: Digest
    mutations: int | None
    rejected: int | None
    without_role: int | None
    seconds: float


class ContractDifference(Comparison):
    """How two compute contracts differ."""

    left: str
    right: str


class StateReport(Record):
    """What a continual state costs and how its tasks fared; `transfer` is null where nothing was evaluated."""

    state: Digest
    tasks: tuple[str, ...]
    ledgers: Ledgers
    transfer: Transfer | None


class CacheIdentity(Record):
    """The static part of a prefix key, and the request fields a server must add to it."""

    channel: str
    generation: int
    kv_identity: Digest
    static: JsonObject
    request_fields: tuple[str, ...]


class Lease(Record):
    """A replica's hold on exactly the artifacts of one generation; times are the database's."""

    id: str
    channel: str
    generation: int
    holder: str
    artifacts: tuple[Digest, ...]
    acquired: str
    expires: str
    held: bool


class Drain(Record):
    """How far one generation is: leases that hold it, and leases that ran out without a release."""

    generation: int
    state: Literal["live", "draining", "expired", "drained"]
    held: int
    expired: int


class DrainView(Record):
    """A channel's generations as replicas hold them; those before the first listed are drained."""

    channel: str
    head: int
    generations: tuple[Drain, ...]
    leases: tuple[Lease, ...]


class EvaluationReport(Record):
    """What an evaluation says: a contrast and quality each, on the split that selects and on the one that tests."""

    evaluation: Digest
    selected: Digest
    verdict: Verdict
    selection: tuple[Paired, ...]
    test: tuple[Paired, ...]
