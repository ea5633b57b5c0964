"""What is there, asked of a server."""

from __future__ import annotations

from typing import Literal

from registry.client.remote import paths
from registry.client.remote.http import Http
from registry.db.manifests import ManifestFilter
from registry.service.results import Difference, Lineage, Page, Shown, Verified
from schemas.names import parse_ref


class Looking:
    """Lists, manifests, differences, lineage, verification."""

    http: Http

    def ls(self, wanted: ManifestFilter, after: str | None = None, limit: int = 50) -> Page:
        """List manifests, newest first."""
        chosen = {
            "kind": wanted.kind,
            "base": wanted.base,
            "family": wanted.family,
            "method": wanted.method,
            "outcome": wanted.outcome,
            "label": [f"{key}={value}" for key, value in wanted.labels] or None,
        }
        return self.http.get(Page, "/v1/manifests", {**chosen, "after": after, "limit": limit})

    def show(self, ref: str) -> Shown:
        """One manifest and what lies beside it."""
        return self.http.get(Shown, paths.of_ref("refs", ref))

    def diff(self, left: str, right: str) -> tuple[Difference, ...]:
        """Fields in which two manifests differ."""
        for ref in (left, right):
            parse_ref(ref)
        return self.http.get_all(Difference, "/v1/diff", {"left": left, "right": right})

    def lineage(self, ref: str, direction: Literal["up", "down"], *, live: bool = False) -> Lineage:
        """Ancestors or descendants."""
        return self.http.get(Lineage, paths.of_ref("lineage", ref), {"direction": direction, "live": live})

    def verify(
        self,
        ref: str | None = None,
        *,
        deep: bool = False,
        recompute: bool = False,
        expect_head: str | None = None,
        base_files: bool = False,
    ) -> Verified:
        """Check what the server stores."""
        asked = {"ref": ref, "deep": deep, "recompute": recompute, "expect_head": expect_head, "base_files": base_files}
        return self.http.post(Verified, "/v1/verifications", {**asked})
