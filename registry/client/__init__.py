"""The Python client: the interface the command line is written on."""

from registry.client.connect import connect
from registry.client.embedded import EmbeddedRegistry
from registry.client.interface import Registry
from registry.client.remote import RemoteRegistry
from registry.db.manifests import ManifestFilter
from registry.service import witness
from registry.service.decide import require_proceeding
from registry.service.export import Form
from registry.service.sync import Watcher
from registry.service.wishes import Wish

__all__ = [
    "EmbeddedRegistry",
    "Form",
    "ManifestFilter",
    "Registry",
    "RemoteRegistry",
    "Watcher",
    "Wish",
    "connect",
    "require_proceeding",
    "witness",
]
