"""Everything an adapter directory shows without being registered: what can be read is said, what is wrong is listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from registry.errors import RefusedError
from registry.formats import remarks
from registry.formats.build import Scanned, replaced, replaced_problems, scanned
from registry.formats.directory import Directory, open_directory
from registry.formats.draft import Draft
from registry.formats.match import Match, match
from registry.formats.read import draft_adapter, scan_tensors
from registry.formats.remarks import Remarks
from registry.formats.snapshot import ReadWeight
from schemas.base import BaseManifest
from schemas.errors import Problem


@dataclass(frozen=True)
class Look:
    """How far a directory was understood; null is what could not be reached, `copies` counts tensors of the base."""

    draft: Draft | None = None
    found: Match | None = None
    tensors: Scanned | None = None
    remarks: Remarks = field(default_factory=Remarks)
    copies: int = 0
    problems: tuple[Problem, ...] = ()


def look_at(directory: Path, base: BaseManifest | None, weight: ReadWeight | None) -> Look:
    """Read as far as it goes; each refusal of a step ends that step and is listed.

    Raises:
        UsageProblemError: `DIRECTORY_MISSING`.
    """
    checked = open_directory(directory)
    with TemporaryDirectory(prefix="adapter-") as scratch:
        try:
            draft = draft_adapter(checked, Path(scratch))
        except RefusedError as error:
            return Look(problems=error.problems)
        return _on_base(checked, Path(scratch), draft, base, weight)


def _on_base(
    directory: Directory, scratch: Path, draft: Draft, base: BaseManifest | None, weight: ReadWeight | None
) -> Look:
    try:
        bound = draft if base is None else draft.on(base)
        found = None if base is None else match(bound, base)
        tensors = scanned(scan_tensors(directory, scratch, bound, None))
    except RefusedError as error:
        return Look(draft, problems=(*draft.problems, *error.problems))
    known = remarks.idle(bound.pieces, tensors)
    if base is None or found is None:
        return Look(bound, None, tensors, known, problems=bound.problems)
    known += remarks.tokenizer(directory, base)
    known += remarks.repeats_base(bound, found, directory, scratch, weight)
    whole = replaced(bound, found, base, tensors)
    problems = (*found.problems, *known.problems, *replaced_problems(whole, base))
    return Look(bound, found, tensors, known, len(bound.replacements) - len(whole), problems)
