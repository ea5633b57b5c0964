"""A registry behind a server, spoken to over HTTP."""

from registry.client.remote.registry import RemoteRegistry

__all__ = ["RemoteRegistry"]
