"""What converting and handing out return: frozen records, printed and answered as they are."""

from __future__ import annotations

from schemas.canonical import JsonObject
from schemas.digests import Digest
from schemas.model import Record


class Conversion(Record):
    """What came of a conversion; without a `conversion` digest the adapter had this form already."""

    parent: Digest
    rule: str
    output: Digest
    conversion: Digest | None = None
    acknowledged: tuple[str, ...] = ()
    name: str | None = None
    version: int | None = None
    created: bool = False
    measurement: JsonObject | None = None


class Synced(Record):
    """A channel's live generation as a directory; `changed` says whether `live` was switched to it now."""

    channel: str
    generation: int
    publication: Digest
    kv_identity: Digest
    directory: str
    live: str
    changed: bool
