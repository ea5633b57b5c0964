"""Registering from a model hub: a commit is fetched into a passing folder, registered with its files, and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from registry.formats import Evidence
from registry.formats.hub import HubRef, fetch
from registry.service.add import add_adapter, add_base
from registry.service.context import Context
from registry.service.results import Added
from schemas.names import check_name


def add_hub_base(
    context: Context,
    ref: HubRef,
    name: str,
    *,
    level: Evidence = "content",
    progress: Callable[[int], None] | None = None,
    jobs: int = 1,
    contracts: Sequence[str] = (),
    endpoint: str | None = None,
) -> Added:
    """Register a base of a hub and store its files; below evidence `structural` no weights are fetched.

    The repository, the revision asked for and the commit it meant become a provenance statement. `endpoint` is the
    hub's address, null for the hub client's own setting.
    """
    check_name(name)
    context.require("register", name)
    with TemporaryDirectory(prefix="hub-") as folder:
        commit = fetch(ref, Path(folder), "base", weights=level != "declared", endpoint=endpoint)
        return add_base(
            context,
            Path(folder),
            name,
            store=True,
            level=level,
            progress=progress,
            jobs=jobs,
            contracts=contracts,
            origin=ref.origin(commit),
        )


def add_hub_adapter(context: Context, ref: HubRef, base: str, name: str, *, endpoint: str | None = None) -> Added:
    """Register an adapter of a hub against a registered base."""
    check_name(name)
    context.require("register", name)
    with TemporaryDirectory(prefix="hub-") as folder:
        commit = fetch(ref, Path(folder), "adapter", endpoint=endpoint)
        return add_adapter(context, Path(folder), base, name, origin=ref.origin(commit))
