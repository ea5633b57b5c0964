"""What the operating system or an object store reports, as typed errors with a hint; nothing else is caught."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import obstore.exceptions

from registry.errors import DigestMismatchError, NotFoundError, Problem, UnavailableError, UsageProblemError
from schemas.digests import Digest

_FULL: Final = ("STORE_FULL", "space for the blob", "Free space or raise the quota, then repeat: nothing was stored.")
_READ_ONLY: Final = ("STORE_READ_ONLY", "a writable store", "Mount the store writable, then repeat the command.")
_DENIED: Final = ("STORE_UNAVAILABLE", "permission to use the store", "Give this account access to the store.")
_AWAY: Final = ("STORE_UNAVAILABLE", "a store that answers", "Check that the store is mounted and reachable.")
_REASONS: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENOTDIR: ("STORE_UNAVAILABLE", "real folders", "Remove the file or symbolic link in their place."),
}
_OBSERVED_LENGTH: Final = 300


@contextmanager
def folder_failures(place: Path) -> Iterator[None]:
    """Turn an `OSError` about the store's own folders and files into `UnavailableError`."""
    try:
        yield
    except OSError as error:
        observed = f"{error.strerror} ({place})"
        raise _unavailable(_REASONS.get(error.errno or 0, _AWAY), observed) from error


@contextmanager
def object_failures(url: str) -> Iterator[None]:
    """Turn an error of the object store into `UnavailableError`; a missing object stays `FileNotFoundError`."""
    try:
        yield
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
        raise _unavailable(_DENIED, f"{error} ({url})") from error
    except obstore.exceptions.BaseError as error:
        raise _unavailable(_AWAY, f"{error} ({url})") from error


@contextmanager
def source_failures(path: Path) -> Iterator[None]:
    """Turn an `OSError` about a file that somebody hands in into `UsageProblemError`."""
    try:
        yield
    except OSError as error:
        problem = Problem(
            code="FILE_UNREADABLE",
            expected="a readable file",
            observed=f"{error.strerror} ({path})",
            hint="Check the path and its permissions.",
        )
        raise UsageProblemError(problem) from error


def missing(digest: Digest) -> NotFoundError:
    """The store does not hold this blob."""
    return NotFoundError(
        Problem(
            code="BLOB_MISSING",
            expected=f"blob {digest} in the store",
            observed="nothing there",
            hint="Add the file again, or restore it from a backup: the same bytes always find their place.",
        )
    )


def mismatch(expected: Digest, observed: Digest) -> DigestMismatchError:
    """Bytes that are not the ones their name promises."""
    return DigestMismatchError(
        Problem(
            code="BLOB_DIGEST_MISMATCH",
            expected=expected,
            observed=observed,
            hint="The bytes were changed or cut short. Add the right file again: a put repairs a damaged blob.",
        )
    )


def store_away(url: str, observed: str) -> UnavailableError:
    """The place where blobs are kept does not exist."""
    return _unavailable(_AWAY, f"{observed} ({url})")


def _unavailable(reason: tuple[str, str, str], observed: str) -> UnavailableError:
    code, expected, hint = reason
    return UnavailableError(Problem(code=code, expected=expected, observed=observed[:_OBSERVED_LENGTH], hint=hint))
