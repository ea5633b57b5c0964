"""The Python client: the interface the command line is written on."""

from registry.client.embedded import EmbeddedRegistry
from registry.db.manifests import ManifestFilter
from registry.service import witness
from registry.service.decide import require_proceeding

__all__ = ["EmbeddedRegistry", "ManifestFilter", "require_proceeding", "witness"]
