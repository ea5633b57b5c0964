"""The Python client: the interface the command line is written on."""

from registry.client.connect import connect
from registry.client.embedded import EmbeddedRegistry
from registry.client.interface import Registry

__all__ = ["EmbeddedRegistry", "Registry", "connect"]
