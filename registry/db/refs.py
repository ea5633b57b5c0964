"""References resolved against one snapshot."""

from __future__ import annotations

from registry.db import aliases, channels, manifests, names
from registry.db.problems import found
from registry.db.session import Reader
from registry.errors import Problem, UsageProblemError
from schemas.digests import Digest
from schemas.names import ChannelRef, DigestRef, NameRef, Ref


def resolve(reader: Reader, ref: Ref) -> Digest:
    """The manifest a reference names.

    Raises:
        NotFoundError, PurgedError: nothing there (any more).
        UsageProblemError: `REF_AMBIGUOUS` (a prefix of several digests), `REF_NOT_SINGLE` (a generation of several).
    """
    if isinstance(ref, NameRef):
        return _named(reader, ref)
    if isinstance(ref, DigestRef):
        return _by_digest(reader, ref.digest)
    live = artifacts(reader, ref)
    if len(live) != 1:
        raise _usage("REF_NOT_SINGLE", "a generation of one artifact", f"{len(live)}", "Name one artifact by digest.")
    return live[0]


def artifacts(reader: Reader, ref: ChannelRef) -> tuple[Digest, ...]:
    """The ordered tuple of a generation, by default the live one. Raises NotFoundError."""
    if ref.generation is not None:
        return channels.at(reader, ref.channel, ref.generation).artifacts
    return channels.at_head(reader, ref.channel).artifacts


def _named(reader: Reader, ref: NameRef) -> Digest:
    if ref.version is not None:
        return names.at(reader, ref.name, ref.version).digest
    if ref.alias is not None:
        version = aliases.current(reader, ref.name, ref.alias).version
        return names.at(reader, ref.name, version).digest
    return names.newest(reader, ref.name).digest


def _by_digest(reader: Reader, prefix: str) -> Digest:
    rows = manifests.candidates(reader, prefix)
    if len(rows) > 1:
        listed = ", ".join(f"{digest} ({kind})" for digest, kind in rows)
        raise _usage("REF_AMBIGUOUS", f"one manifest under {prefix}", listed, "Type more digits.")
    hint = "List what is registered with `registry ls`."
    return found(rows[0] if rows else None, "MANIFEST_UNKNOWN", f"a manifest {prefix}", hint)[0]


def _usage(code: str, expected: str, observed: str, hint: str) -> UsageProblemError:
    return UsageProblemError(Problem(code=code, expected=expected, observed=observed, hint=hint))
