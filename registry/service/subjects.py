"""What a request to read is about: the names and channels that a token limited to a prefix is held to."""

from __future__ import annotations

from collections.abc import Mapping

from registry.db import Reader, files, jobs, names
from registry.service import resolve
from registry.service.context import Context
from schemas.digests import Digest
from schemas.names import ChannelRef, NameRef, check_name, parse_ref


def of_path(context: Context, path: str, parameters: Mapping[str, str], query: Mapping[str, str]) -> frozenset[str]:
    """Names and channels that a path of the API is about; none for a list of everything.

    Content may have several names; whoever may read one of them may read it.
    """
    if "name" in parameters:
        return frozenset((check_name(parameters["name"]),))
    if path.endswith("/names") and query.get("prefix"):
        return frozenset((query["prefix"],))
    ref = parameters.get("ref") or parameters.get("digest")
    if ref is None:
        return frozenset()
    with context.database.reading() as reader:
        return _of_blob(reader, ref) if "/blobs/" in path else _of_ref(reader, ref)


def is_own_job(context: Context, job_id: str) -> bool:
    """Whether the caller asked for this job. Raises NotFoundError `JOB_UNKNOWN`."""
    with context.database.reading() as reader:
        return jobs.get(reader, job_id).principal == context.principal


def _of_ref(reader: Reader, ref: str) -> frozenset[str]:
    parsed = parse_ref(ref)
    if isinstance(parsed, NameRef):
        return frozenset((parsed.name,))
    if isinstance(parsed, ChannelRef):
        return frozenset((parsed.channel,))
    return resolve.bare_names_of(reader, resolve.digest_of(reader, ref))


def _of_blob(reader: Reader, blob: Digest) -> frozenset[str]:
    return frozenset(name for rows in names.of_all(reader, files.holders(reader, blob)).values() for name, _ in rows)
