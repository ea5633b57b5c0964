"""Read an adapter directory: whoever wrote it, the same checks against the base and the same manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import chain, count
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import gettempdir
from typing import Final

from registry.formats import remarks
from registry.formats.build import Scanned, replaced, replaced_problems, scanned, written
from registry.formats.card import with_card
from registry.formats.directory import PICKLE_SUFFIXES, TENSOR_SUFFIXES, Directory, open_directory, pickle_problem
from registry.formats.draft import Draft
from registry.formats.factors import value_problems
from registry.formats.match import Match, matched
from registry.formats.producers import find_producer
from registry.formats.readings import AdapterReading, FileReading, Note, Progress
from registry.formats.report import located, problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedFile, scan_file
from registry.formats.snapshot import ReadWeight
from schemas.base import BaseManifest
from schemas.digests import Digest
from schemas.errors import Problem

KEPT: Final = (
    "README.md", "added_tokens.json", "chat_template.jinja", "merges.txt", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "trainer_state.json", "vocab.json", "vocab.txt",
)  # fmt: skip
"""Files producers put beside an adapter: kept as packaging. Others are left alone unless they hold tensors."""

_OWN: Final = token_hex(16)
_READ: Final = count()
"""What scratch folders are called: nobody can guess it, and no two readings, here or in a fork, call theirs alike."""


def read_adapter(
    directory: Path,
    base: BaseManifest,
    *,
    scratch: Path | None = None,
    weight: ReadWeight | None = None,
    progress: Progress | None = None,
    keep: Callable[[Digest, bytes], None] | None = None,
) -> AdapterReading:
    """Read an adapter directory of any known producer.

    Headers, config and base are checked against each other before any tensor is read. Any pickle, and any tensor file
    that is not the adapter's, is refused.

    Args:
        directory: as its producer wrote it.
        base: what it was trained on.
        scratch: an empty folder for tensors whose packing is not ours; `AdapterReading.made` leads there. Without one
            they are written, read and thrown away.
        weight: gives base weights, to see whether factors repeat them; without it nothing is said of that.
        progress: called with the bytes of tensors just read.
        keep: given the small files of an adapter that is not refused, the very bytes that were looked at.

    Raises:
        RefusedError: every rule of this room, as many problems at once as can be seen.
        UsageProblemError: `DIRECTORY_MISSING`.
    """
    checked = open_directory(directory, keep=True)
    with ExitStack() as stack:
        made = scratch or stack.enter_context(_own_scratch())
        draft = draft_adapter(checked, made).on(base)
        found = matched(draft, base)
        tensors = scanned(scan_tensors(checked, made, draft, progress))
        known = remarks.idle(draft.pieces, tensors) + remarks.tokenizer(checked, base)
        known += remarks.repeats_base(draft, found, checked, made, weight)
    whole = replaced(draft, found, base, tensors)
    refuse_all((*known.problems, *replaced_problems(whole, base)))
    with located(*draft.weights[:1]):
        manifest = written(draft, found, base, tensors, whole)
    files = _files(checked, draft, tensors)
    if keep is not None and not draft.made:
        _keep(checked, files, keep)
    return AdapterReading(
        written=manifest,
        files=files,
        locations=tuple(tensor.location(file.file) for file in tensors.files for tensor in file.tensors),
        notes=with_card(checked, draft.notes) | _notes(draft, found, known),
        made={name: made / name for name in draft.made},
        binding="witnessed" if len(whole) < len(draft.replacements) else "declared",
    )


@contextmanager
def _own_scratch() -> Iterator[Path]:
    """A folder that comes to be only when a tensor is rearranged, which few directories need."""
    folder = f"{gettempdir()}/adapter-{_OWN}-{os.getpid()}-{next(_READ)}"
    try:
        yield Path(folder)
    finally:
        if os.access(folder, os.F_OK):
            rmtree(folder, ignore_errors=True)


def _notes(draft: Draft, found: Match, known: remarks.Remarks) -> dict[str, Note]:
    return dict(known.notes) | {
        "conditions": (*draft.conditions, *known.conditions),
        "producer": draft.producer,
        "wrapper_rule": found.naming.wrapper.rule,
    }


def _files(directory: Directory, draft: Draft, tensors: Scanned) -> tuple[FileReading, ...]:
    kept = (directory.digest_file(name) for name in KEPT if name in directory.names)
    return tuple(sorted((*draft.files, *(file.file for file in tensors.files), *kept), key=_by_path))


def _keep(directory: Directory, files: Iterable[FileReading], keep: Callable[[Digest, bytes], None]) -> None:
    for file in files:
        with directory.open(file.path) as stream:
            if isinstance(stream, BytesIO):
                keep(file.digests.digest, stream.getvalue())


def draft_adapter(directory: Directory, scratch: Path) -> Draft:
    """The adapter in the common form, without a base.

    Raises:
        RefusedError: `PICKLE_REFUSED`, `TENSOR_FILE_UNEXPECTED`, and what the producer's grammar refuses.
    """
    refuse_all(pickle_problem(name) for name in sorted(directory.names) if name.endswith(PICKLE_SUFFIXES))
    draft = find_producer(directory).draft(directory, scratch)
    others = sorted(
        name for name in directory.names - {*draft.weights, *draft.beside} if name.endswith(TENSOR_SUFFIXES)
    )
    refuse_all(_unexpected(name, draft) for name in others)
    return draft


def scan_tensors(directory: Directory, scratch: Path, draft: Draft, progress: Progress | None) -> Iterable[ScannedFile]:
    """Read every tensor file of a draft, those in the directory first.

    Raises:
        RefusedError: `NON_FINITE`; `FILE_CHANGED` when a header is no longer the one the draft was made of.
    """
    known = {*chain.from_iterable(piece.tensors.values() for piece in draft.pieces), *draft.replacements.values()}
    rearranged = open_directory(scratch) if draft.made else directory
    for place, names in ((directory, draft.weights), (rearranged, draft.made)):
        for name in names:
            scanned = scan_file(place, name, values=True, progress=progress)
            entries = {tensor.entry for tensor in scanned.tensors}
            refuse_all(_changed(entry) for entry in known - entries if entry.file == name)
            refuse_all(found for tensor in scanned.tensors for found in value_problems(tensor))
            yield scanned


def _unexpected(name: str, draft: Draft) -> Problem:
    hint = "An adapter is one set of tensors; remove the other tensor file."
    return problem("TENSOR_FILE_UNEXPECTED", (name,), shown(", ".join(draft.weights)), shown(name), hint)


def _changed(entry: TensorEntry) -> Problem:
    hint = "Wait until nothing writes to the file, then read it again."
    return problem("FILE_CHANGED", entry.place, "a file that stays as it is while it is read", "another header", hint)


def _by_path(file: FileReading) -> str:
    return file.path
