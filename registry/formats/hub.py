"""Repositories of a model hub: resolved to a commit, and only files that are data fetched, bounded in size.

The revision asked for may move, so it is no identity; the commit is what was read and becomes provenance. The address,
the token and proxies are the hub client's own settings (`HF_ENDPOINT`, `HF_TOKEN`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Final, Literal

import httpx2
import huggingface_hub
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from registry.errors import DigestMismatchError, NotFoundError, TooLargeError, UnavailableError, UsageProblemError
from registry.formats.readings import Note
from registry.formats.report import problem, shown

PREFIX: Final = "hub:"
LARGEST_SMALL: Final = 256 * 2**20
"""Bytes of a file that holds no tensors."""
LARGEST_REPOSITORY: Final = 2**40
MOST_FILES: Final = 4096
_TIMEOUT: Final = 30.0
_REF: Final = re.compile(
    r"hub:(?P<repository>(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>[A-Za-z0-9][\w./-]{0,127}))?",
    re.ASCII,
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_TEXT: Final = frozenset({"README.md", "chat_template.jinja", "merges.txt", "vocab.txt"})
_WEIGHTS: Final[Mapping[str, re.Pattern[str]]] = {
    "base": re.compile(r"model(?:-\d{5}-of-\d{5})?\.safetensors"),
    "adapter": re.compile(r"adapter_model\.safetensors"),
}


@dataclass(frozen=True)
class HubRef:
    """``hub:OWNER/NAME`` or ``hub:OWNER/NAME@REVISION``; without a revision the hub's main line."""

    repository: str
    revision: str | None

    def origin(self, commit: str) -> dict[str, Note]:
        """What a provenance statement says about it."""
        return {"source": "hub", "repository": self.repository, "revision": self.revision, "commit": commit}


def parse_hub(text: str) -> HubRef | None:
    """A repository by its id; null for what is no hub id.

    Raises:
        UsageProblemError: `HUB_ID_INVALID`.
    """
    if not text.startswith(PREFIX):
        return None
    match = _REF.fullmatch(text)
    if match is None or ".." in text or "--" in match["repository"]:
        hint = "Write hub:OWNER/NAME, with @ and a branch, tag or commit where it matters."
        raise UsageProblemError(problem("HUB_ID_INVALID", (), "hub:OWNER/NAME[@REVISION]", shown(text), hint))
    return HubRef(match["repository"], match["revision"])


def place_of(source: str | Path | HubRef) -> Path | HubRef:
    """A repository or a path, also as the command line writes them. Raises what `parse_hub` raises."""
    return parse_hub(source) or Path(source) if isinstance(source, str) else source


def fetch(
    ref: HubRef,
    folder: Path,
    what: Literal["base", "adapter"],
    *,
    weights: bool = True,
    endpoint: str | None = None,
    largest: int = LARGEST_REPOSITORY,
) -> str:
    """Bring the data files of a repository into an empty folder; returns the commit they are of.

    Args:
        what: whose weight files are wanted; all other files of tensors, and every folder, stay where they are.
        weights: whether weight files are wanted at all.
        endpoint: the hub's address; null for the client's own setting.
        largest: bytes all files together may have.

    Raises:
        NotFoundError: `HUB_NOT_FOUND`.
        UnavailableError: `HUB_UNAVAILABLE`.
        TooLargeError: `HUB_TOO_LARGE`.
        DigestMismatchError: `HUB_FILE_DIFFERS` when a file is not what the hub announced.
    """
    api = huggingface_hub.HfApi(endpoint=endpoint)
    with _translated(ref):
        info = api.model_info(ref.repository, revision=ref.revision, files_metadata=True, timeout=_TIMEOUT)
    commit = info.sha or ""
    if not _COMMIT.fullmatch(commit):
        raise _unavailable(ref, f"a commit {shown(commit)}")
    pattern = _WEIGHTS[what]
    wanted = [
        file
        for file in info.siblings or []
        if _is_small(file.rfilename) or (weights and pattern.fullmatch(file.rfilename))
    ]
    sizes = {file.rfilename: file.size for file in wanted}
    _refuse_large(ref, sizes, pattern, largest)
    for file in wanted:
        with _translated(ref):
            api.hf_hub_download(ref.repository, file.rfilename, revision=commit, local_dir=folder)
        _check(folder / file.rfilename, file.size, file.lfs.sha256 if file.lfs else None)
    return commit


def _is_small(name: str) -> bool:
    """Configuration, tokenizer and description files at the top of the repository."""
    return "/" not in name and "\\" not in name and (name.endswith(".json") or name in _TEXT)


def _refuse_large(ref: HubRef, sizes: Mapping[str, int | None], pattern: re.Pattern[str], largest: int) -> None:
    """Every size is announced and bounded before a byte is fetched."""
    hint = "Fetch the repository by other means and register its directory."
    for name, size in sizes.items():
        limit = largest if pattern.fullmatch(name) else LARGEST_SMALL
        if size is None or size > limit:
            observed = "no size" if size is None else str(size)
            raise TooLargeError(problem("HUB_TOO_LARGE", (name,), f"at most {limit} bytes", observed, hint))
    total = sum(size or 0 for size in sizes.values())
    if total > largest or len(sizes) > MOST_FILES:
        expected, observed = f"at most {largest} bytes in {MOST_FILES} files", f"{total} in {len(sizes)}"
        raise TooLargeError(problem("HUB_TOO_LARGE", (ref.repository,), expected, observed, hint))


def _check(path: Path, size: int | None, sha256: str | None) -> None:
    """The file is the one that was announced."""
    found = path.stat().st_size
    if found != size:
        raise _differs(path, f"{size} bytes", f"{found} bytes")
    if sha256 is not None:
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        if digest != sha256:
            raise _differs(path, f"sha256:{sha256}", f"sha256:{digest}")


@contextmanager
def _translated(ref: HubRef) -> Iterator[None]:
    """The client's errors as ours."""
    try:
        yield
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        hint = "Check the id and the revision; a private or gated repository needs HF_TOKEN."
        expected = "a repository and revision of the hub"
        observed = "no such repository, or none without a token" if ref.revision is None else shown(ref.revision)
        raise NotFoundError(problem("HUB_NOT_FOUND", (ref.repository,), expected, observed, hint)) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx2.HTTPError, OSError) as error:
        raise _unavailable(ref, type(error).__name__) from error


def _unavailable(ref: HubRef, observed: str) -> UnavailableError:
    hint = "Try again later, or fetch the repository by other means and register its directory."
    return UnavailableError(problem("HUB_UNAVAILABLE", (ref.repository,), "an answer of the hub", observed, hint))


def _differs(path: Path, expected: str, observed: str) -> DigestMismatchError:
    hint = "Try again; if it stays so, the hub or something on the way changes files."
    return DigestMismatchError(problem("HUB_FILE_DIFFERS", (path.name,), expected, observed, hint))
