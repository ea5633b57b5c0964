"""Identity of a typed record: one digest over its canonical bytes, so that field names and order count (R 0x00F.1)."""

from collections.abc import Mapping

from pydantic import BaseModel

from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest


def identify(kind: str, record: BaseModel | Mapping[str, JsonValue]) -> Digest:
    """H(record) in the domain of `kind`; two kinds never share a digest."""
    document = record.model_dump(mode="json") if isinstance(record, BaseModel) else dict(record)
    return manifest_digest(kind, canonical_bytes(document))
