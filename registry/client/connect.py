"""One way to a registry: in this process, or behind a server when settings name one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from registry.client.embedded import EmbeddedRegistry
from registry.client.interface import Registry
from registry.settings import Settings


@contextmanager
def connect(settings: Settings) -> Iterator[Registry]:
    """The registry that these settings point at: behind the server at `url`, or in this process without one."""
    if settings.url:
        from registry.client.remote import RemoteRegistry  # heavy: a registry in this process needs no HTTP

        with RemoteRegistry.open(settings) as remote:
            yield remote
    else:
        with EmbeddedRegistry.open(settings) as embedded:
            yield embedded
