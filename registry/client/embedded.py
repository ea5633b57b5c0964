"""A registry in this process: use cases bound to one context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from registry.client.handing import Handing
from registry.client.jobs import Jobs
from registry.client.later import later
from registry.client.states import States

if TYPE_CHECKING:
    from registry import wiring
    from registry.db.manifests import ManifestFilter
    from registry.formats import hub as repository
    from registry.formats.hub import HubRef
    from registry.service import (
        add,
        admit,
        bulk,
        hub,
        inspect,
        look,
        publish,
        releases,
        retire,
        say,
        specs,
        tokens,
        verify,
        webhooks,
    )
    from registry.service.bulk import AddedMany
    from registry.service.composer import Progress
    from registry.service.context import Context
    from registry.service.inspected import Inspected
    from registry.service.results import (
        Added,
        Admitted,
        Aliased,
        Collected,
        Difference,
        Lineage,
        Page,
        Published,
        Purged,
        Said,
        Shown,
        Verified,
    )
    from registry.service.tokens import ListedToken, NewToken
    from registry.service.webhooks import Deliveries, NewWebhook, Webhook
    from registry.settings import Settings
    from schemas.canonical import JsonObject
else:
    add, admit, bulk, hub, inspect, look, publish, releases, retire, say, specs, tokens, verify, webhooks = later(
        "registry.service", "add admit bulk hub inspect look publish releases retire say specs tokens verify webhooks"
    )
    (wiring,) = later("registry", "wiring")
    (repository,) = later("registry.formats", "hub")


@dataclass(frozen=True)
class EmbeddedRegistry(States, Handing, Jobs):
    """The registry's use cases, without a server.

    ```python
    with EmbeddedRegistry.open(Settings(home="…")) as registry:
        registry.add_adapter(Path("out"), base="minilm", name="qa")
    ```
    """

    context: Context

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator[Self]:
        """Open an initialised registry."""
        with wiring.opened(settings) as context:
            yield cls(context)

    def add_base(
        self,
        source: str | Path | HubRef,
        name: str,
        *,
        store: bool = False,
        evidence: Literal["content", "structural", "declared"] = "content",
        progress: Callable[[int], None] | None = None,
        jobs: int = 1,
        contracts: Sequence[str] = (),
    ) -> Added:
        """Register a base: a directory, a GGUF file, or a repository of a hub, whose files are stored."""
        place = repository.place_of(source)
        if isinstance(place, repository.HubRef):
            return hub.add_hub_base(
                self.context, place, name, level=evidence, progress=progress, jobs=jobs, contracts=contracts
            )
        return add.add_base(
            self.context,
            place,
            name,
            store=store,
            level=evidence,
            progress=progress,
            jobs=jobs,
            contracts=contracts,
        )

    def add_adapter(
        self, source: str | Path | HubRef, base: str, name: str, *, progress: Callable[[int], None] | None = None
    ) -> Added:
        """Register an adapter against a base: a directory or a repository of a hub."""
        del progress
        place = repository.place_of(source)
        if isinstance(place, repository.HubRef):
            return hub.add_hub_adapter(self.context, place, base, name)
        return add.add_adapter(self.context, place, base, name)

    def inspect(self, directory: Path, base: str | None = None) -> Inspected:
        """What a directory is, without registering it."""
        return inspect.inspect(self.context, directory, base)

    def add_adapters(
        self,
        directories: Sequence[Path],
        base: str,
        *,
        jobs: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> AddedMany:
        """Register many adapter directories against one base, each under the name of its directory."""
        return bulk.add_adapters(self.context, directories, base, jobs=jobs, progress=progress)

    def ls(self, wanted: ManifestFilter, after: str | None = None, limit: int = 50) -> Page:
        """List manifests, newest first."""
        return look.ls(self.context, wanted, after, limit)

    def show(self, ref: str) -> Shown:
        """One manifest and what lies beside it."""
        return look.show(self.context, ref)

    def diff(self, left: str, right: str) -> tuple[Difference, ...]:
        """Fields in which two manifests differ."""
        return look.diff(self.context, left, right)

    def admit(
        self, spec: bytes, *, dry_run: bool = False, plan: bool = False, progress: Progress | None = None
    ) -> Admitted:
        """Decide on a spec (YAML or JSON) and compose what is admitted; look at `outcome` before anything else."""
        document = specs.parse_document(spec)
        if releases.is_release(document):
            return releases.release(self.context, releases.parse(document), dry_run=dry_run or plan)
        return admit.admit(self.context, specs.spec_from(document), dry_run=dry_run, plan=plan, progress=progress)

    def publish(
        self, channel: str, refs: Sequence[str], *, expect: int | None = None, reason: str = "release"
    ) -> Published:
        """Append a generation."""
        return publish.publish(self.context, channel, refs, expect=expect, reason=reason)

    def rollback(
        self, channel: str, *, to: int | None = None, expect: int | None = None, reason: str = "rollback"
    ) -> Published:
        """Append a generation with an earlier tuple."""
        return publish.rollback(self.context, channel, to=to, expect=expect, reason=reason)

    def history(self, channel: str, after: str | None = None, limit: int = 50) -> tuple[Published, ...]:
        """Generations of a channel, newest first."""
        return publish.history(self.context, channel, after, limit)

    def lineage(self, ref: str, direction: Literal["up", "down"], *, live: bool = False) -> Lineage:
        """Ancestors or descendants."""
        return look.line(self.context, ref, direction, live=live)

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
        return verify.verify(
            self.context, ref, deep=deep, recompute=recompute, expect_head=expect_head, base_files=base_files
        )

    def create_token(self, principal: str, allow: Sequence[str], *, expires_s: float | None = None) -> NewToken:
        """Make a bearer token that allows these scopes, for so many seconds; its secret is shown once."""
        return tokens.create(self.context, principal, allow, expires_s=expires_s)

    def tokens(self) -> tuple[ListedToken, ...]:
        """Every token by id, without its secret."""
        return tokens.ls(self.context)

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id."""
        tokens.revoke(self.context, token)

    def add_webhook(self, url: str, channel: str = "") -> NewWebhook:
        """Tell a URL of new generations of channels that begin so; its secret is shown once."""
        return webhooks.add(self.context, url, channel)

    def webhooks(self) -> tuple[Webhook, ...]:
        """Every webhook, without its secret."""
        return webhooks.ls(self.context)

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook by its id."""
        webhooks.remove(self.context, webhook)

    def webhook_deliveries(self, webhook: str, after: str | None = None, limit: int = 50) -> Deliveries:
        """What was sent to a webhook, newest first."""
        return webhooks.deliveries(self.context, webhook, after, limit)

    def yank(self, ref: str, reason: str, *, undo: bool = False) -> Said:
        """Block new admissions and publications."""
        return say.yank(self.context, ref, reason, undo=undo)

    def label(self, ref: str, labels: dict[str, str | None]) -> Said:
        """Set or, with null, remove labels."""
        return say.label(self.context, ref, labels)

    def attest(self, ref: str, document: JsonObject) -> Said:
        """Say something in fields of one's own."""
        return say.attest(self.context, ref, say.fields(document))

    def alias(self, ref: str, name: str) -> Aliased:
        """Point an alias at a version."""
        return say.alias(self.context, ref, name)

    def purge(self, ref: str, reason: str) -> Purged:
        """Remove bytes and leave a tombstone."""
        return retire.purge(self.context, ref, reason)

    def gc(self, grace_s: float) -> Collected:
        """Remove blobs that nothing names."""
        return retire.gc(self.context, grace_s)
