"""Manifests that name others: what lineage is made of."""

from __future__ import annotations

from schemas.digests import Digest
from schemas.model import Manifest

Link = tuple[str, Digest]


class LinkedManifest(Manifest):
    """A manifest that says itself which stored manifests it was made from."""

    def links(self) -> tuple[Link, ...]:
        """Role and digest of each, in order; the same role may come several times."""
        return ()
