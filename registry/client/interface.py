"""What a registry does for its callers, wherever it is: in this process or behind a server.

Methods raise the error classes of `registry.errors`; those of a server arrive as the same classes with the same codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from registry.db.manifests import ManifestFilter
    from registry.formats import Evidence
    from registry.formats.hub import HubRef
    from registry.service.bulk import AddedMany
    from registry.service.composer import Progress
    from registry.service.export import Form
    from registry.service.handed import Conversion, Synced
    from registry.service.inspected import Inspected
    from registry.service.jobs import Job, JobPage, Status
    from registry.service.results import (
        Added,
        Admitted,
        Aliased,
        CacheIdentity,
        Collected,
        ContractDifference,
        Difference,
        DrainView,
        EvaluationReport,
        Exported,
        Lease,
        Lineage,
        Page,
        Published,
        Purged,
        Said,
        Shown,
        StateReport,
        Verified,
    )
    from registry.service.sync import Watcher
    from registry.service.tokens import ListedToken, NewToken
    from registry.service.webhooks import Deliveries, NewWebhook, Webhook
    from registry.service.wishes import Wish
    from schemas.canonical import JsonObject
    from schemas.publication import ChannelPolicy


class Registering(Protocol):
    """Bases and adapters come in."""

    def add_base(
        self,
        source: str | Path | HubRef,
        name: str,
        *,
        store: bool = False,
        evidence: Evidence = "content",
        progress: Callable[[int], None] | None = None,
        jobs: int = 1,
        contracts: Sequence[str] = (),
    ) -> Added:
        """Register a base: a directory, a GGUF file, or a repository of a hub, whose files are stored.

        Behind a server the files are read here. Without `store` only their digests are sent, and the base is recorded
        as `declared`.
        """
        ...

    def add_adapter(
        self, source: str | Path | HubRef, base: str, name: str, *, progress: Callable[[int], None] | None = None
    ) -> Added:
        """Register an adapter against a base: a directory or a repository of a hub.

        `progress` is told of the bytes that are sent to a server; a registry here sends none.
        """
        ...

    def add_adapters(
        self,
        directories: Sequence[Path],
        base: str,
        *,
        jobs: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> AddedMany:
        """Register many adapter directories against one base, each under the name of its directory."""
        ...

    def inspect(self, directory: Path, base: str | None = None) -> Inspected:
        """What a directory is, without registering it."""
        ...


class Looking(Protocol):
    """What is there."""

    def ls(self, wanted: ManifestFilter, after: str | None = None, limit: int = 50) -> Page:
        """List manifests, newest first."""
        ...

    def show(self, ref: str) -> Shown:
        """One manifest and what lies beside it."""
        ...

    def diff(self, left: str, right: str) -> tuple[Difference, ...]:
        """Fields in which two manifests differ."""
        ...

    def lineage(self, ref: str, direction: Literal["up", "down"], *, live: bool = False) -> Lineage:
        """Ancestors or descendants."""
        ...

    def verify(
        self,
        ref: str | None = None,
        *,
        deep: bool = False,
        recompute: bool = False,
        expect_head: str | None = None,
        base_files: bool = False,
    ) -> Verified:
        """Check what is stored."""
        ...


class Changing(Protocol):
    """What is made of what is there, and what is live."""

    def admit(
        self, spec: bytes, *, dry_run: bool = False, plan: bool = False, progress: Progress | None = None
    ) -> Admitted:
        """Decide on a spec (YAML or JSON) and compose what is admitted; look at `outcome` before anything else."""
        ...

    def publish(
        self, channel: str, refs: Sequence[str], *, expect: int | None = None, reason: str = "release"
    ) -> Published:
        """Append a generation."""
        ...

    def rollback(
        self, channel: str, *, to: int | None = None, expect: int | None = None, reason: str = "rollback"
    ) -> Published:
        """Append a generation with an earlier tuple."""
        ...

    def history(self, channel: str, after: str | None = None, limit: int = 50) -> tuple[Published, ...]:
        """Generations of a channel, newest first."""
        ...


class Saying(Protocol):
    """Statements about a thing, and how its bytes go."""

    def yank(self, ref: str, reason: str, *, undo: bool = False) -> Said:
        """Block new admissions and publications."""
        ...

    def label(self, ref: str, labels: dict[str, str | None]) -> Said:
        """Set or, with null, remove labels."""
        ...

    def attest(self, ref: str, document: JsonObject) -> Said:
        """Say something in fields of one's own: texts, numbers, truth values and lists of texts."""
        ...

    def alias(self, ref: str, name: str) -> Aliased:
        """Point an alias at a version."""
        ...

    def purge(self, ref: str, reason: str) -> Purged:
        """Remove bytes and leave a tombstone."""
        ...

    def gc(self, grace_s: float) -> Collected:
        """Remove blobs that nothing names."""
        ...


class Surrounding(Protocol):
    """What surrounds adapters: contracts, routers, states, routes, evaluations."""

    def add_compute_contract(self, document: JsonObject, name: str) -> Added:
        """Register a compute contract."""
        ...

    def contract_diff(self, left: str, right: str) -> ContractDifference:
        """Fields in which two compute contracts differ."""
        ...

    def add_router(self, document: JsonObject, name: str, tensors: Path | None = None) -> Added:
        """Register a router with the file that holds its tensors."""
        ...

    def add_continual_state(self, document: JsonObject, name: str) -> Added:
        """Register the state after a task."""
        ...

    def state_report(self, ref: str) -> StateReport:
        """What a continual state costs, and how its tasks fared."""
        ...

    def add_resolved_route(self, document: JsonObject, name: str) -> Added:
        """Register one request's choices."""
        ...

    def add_transaction(self, document: JsonObject, name: str) -> Added:
        """Register what one request was bound to."""
        ...

    def add_evaluation(self, document: JsonObject, name: str) -> Added:
        """Register an evaluation."""
        ...

    def evaluation_report(self, ref: str) -> EvaluationReport:
        """What an evaluation's contrasts say."""
        ...


class Holding(Protocol):
    """Replicas and the generations that they hold, and what channels ask."""

    def cache_identity(self, channel: str, generation: int | None = None) -> CacheIdentity:
        """The static part of a prefix key, and the fields a server adds."""
        ...

    def acquire_lease(self, channel: str, holder: str, ttl_s: float = 60.0) -> Lease:
        """Bind a replica's new work to the newest generation."""
        ...

    def renew_lease(self, lease_id: str, ttl_s: float = 60.0) -> Lease:
        """Hold on to a generation."""
        ...

    def release_lease(self, lease_id: str) -> Lease:
        """Let go of a generation after its last use."""
        ...

    def leases_of(self, holder: str) -> tuple[Lease, ...]:
        """The leases of one replica that it has not released."""
        ...

    def drain(self, channel: str) -> DrainView:
        """How far a channel's older generations have drained."""
        ...

    def channel_policy(self, channel: str) -> ChannelPolicy:
        """What a channel asks of what is published to it."""
        ...

    def set_channel_policy(self, channel: str, document: JsonObject) -> ChannelPolicy:
        """Give a channel a policy."""
        ...


class HandingOut(Protocol):
    """Other forms of an adapter, and directories that servers load; directories are always written here.

    `progress` is told of the bytes that are fetched from a server; a registry here fetches none.
    """

    def convert(self, ref: str, wish: Wish) -> Conversion:
        """Make another adapter of one and record how."""
        ...

    def export(
        self,
        ref: str,
        directory: Path,
        form: Form,
        *,
        named: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Exported:
        """Write a directory that servers load."""
        ...

    def ensure(self, ref: str, folder: Path, form: Form) -> Exported:
        """The directory of a reference inside `folder`, written unless it is there."""
        ...

    def sync(self, channel: str, folder: Path, form: Form, *, progress: Callable[[int], None] | None = None) -> Synced:
        """Make `folder/live` the live generation of a channel."""
        ...

    def watch(
        self, channel: str, folder: Path, form: Form, watcher: Watcher, stop: Event, interval_s: float = 2.0
    ) -> None:
        """Sync again and again until `stop` is set."""
        ...


class Waiting(Protocol):
    """Work that a server or a worker does."""

    def jobs(self, status: Status | None = None, after: str | None = None, limit: int = 50) -> JobPage:
        """One page of jobs, newest first, without their results."""
        ...

    def job(self, job_id: str) -> Job:
        """One job with its result or error."""
        ...

    def cancel_job(self, job_id: str) -> Job:
        """Call an open job off; one that has ended is returned as it is."""
        ...

    def wait_job(self, job_id: str, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job has ended; `progress` is told what there is to see."""
        ...


class Administering(Protocol):
    """Who may do what."""

    def create_token(self, principal: str, allow: Sequence[str], *, expires_s: float | None = None) -> NewToken:
        """Make a bearer token that allows these scopes, for so many seconds; its secret is shown once."""
        ...

    def tokens(self) -> tuple[ListedToken, ...]:
        """Every token by id, without its secret."""
        ...

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id."""
        ...

    def add_webhook(self, url: str, channel: str = "") -> NewWebhook:
        """Tell a URL of new generations of channels that begin so; its secret is shown once."""
        ...

    def webhooks(self) -> tuple[Webhook, ...]:
        """Every webhook, without its secret."""
        ...

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook by its id."""
        ...

    def webhook_deliveries(self, webhook: str, after: str | None = None, limit: int = 50) -> Deliveries:
        """What was sent to a webhook, newest first."""
        ...


class Registry(
    Registering, Looking, Changing, Saying, Surrounding, Holding, HandingOut, Waiting, Administering, Protocol
):
    """Everything the command line does, and what a training script ends with.

    ```python
    with connect(load_settings({})) as registry:
        registry.add_adapter(Path("out"), base="minilm", name="qa")
    ```
    """
