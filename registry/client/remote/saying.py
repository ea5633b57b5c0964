"""Statements about a thing, told to a server."""

from __future__ import annotations

from registry.client.remote.http import Http
from registry.service import say
from registry.service.results import Aliased, Collected, Purged, Said
from schemas.canonical import JsonObject, JsonValue


class Saying:
    """Statements about a thing, and how its bytes go."""

    http: Http

    def yank(self, ref: str, reason: str, *, undo: bool = False) -> Said:
        """Block new admissions and publications."""
        return self.http.post(Said, "/v1/yanks", {"ref": ref, "reason": reason, "undo": undo})

    def label(self, ref: str, labels: dict[str, str | None]) -> Said:
        """Set or, with null, remove labels."""
        return self.http.post(Said, "/v1/labels", {"ref": ref, "labels": dict[str, JsonValue](labels)})

    def attest(self, ref: str, document: JsonObject) -> Said:
        """Say something in fields of one's own."""
        said: JsonObject = {
            key: list[JsonValue](value) if isinstance(value, tuple) else value
            for key, value in say.fields(document).items()
        }
        return self.http.post(Said, "/v1/attestations", {"ref": ref, "body": said})

    def alias(self, ref: str, name: str) -> Aliased:
        """Point an alias at a version."""
        return self.http.post(Aliased, "/v1/aliases", {"ref": ref, "alias": name})

    def purge(self, ref: str, reason: str) -> Purged:
        """Remove bytes and leave a tombstone."""
        return self.http.post(Purged, "/v1/purges", {"ref": ref, "reason": reason})

    def gc(self, grace_s: float) -> Collected:
        """Remove blobs that nothing names."""
        return self.http.post(Collected, "/v1/collections", {"grace_s": grace_s}, again=False)
