"""A channel's live generation as a directory that switches in one step (docs/operations.md, "Serving").

Layout of the folder: one directory for each generation handed out, `CHANNEL@gN-digest8`, never changed once it has its
name; `live`, a relative symbolic link to one of them; `.lock`. A generation of one artifact is that artifact's
directory; one of several holds them as `0`, `1`, ... in order. The live one and the one before it are kept.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, Protocol

from registry.db import channels
from registry.errors import ConflictError, Problem, ProblemError, UnavailableError
from registry.service import export
from registry.service.beside import ARRIVING, PARTIAL, arriving, point, unwritable, written_beside
from registry.service.context import Context
from registry.service.export import Form, Generation, Packed, Packet
from registry.service.handed import Synced
from schemas.digests import Digest
from schemas.names import check_name

LIVE: Final = "live"
LONGEST_WAIT_S: Final = 60.0


@dataclass(frozen=True)
class Watcher:
    """Whom a watch tells: about every switch, and about what keeps it from switching."""

    switched: Callable[[Synced], None]
    failed: Callable[[ProblemError], None]


class Source(Protocol):
    """Where generations come from."""

    def head(self, channel: str) -> tuple[Generation, tuple[Digest, ...]]:
        """The live generation and its artifacts. Raises NotFoundError `CHANNEL_UNKNOWN`."""
        ...

    def pack(self, artifact: Digest, form: Form, generation: Generation) -> Packet:
        """One of its artifacts, checked and ready to be written."""
        ...


@dataclass(frozen=True)
class Stored:
    """Generations of a registry in this process."""

    context: Context

    def head(self, channel: str) -> tuple[Generation, tuple[Digest, ...]]:
        """See `Source`."""
        with self.context.database.reading() as reader:
            row = channels.at_head(reader, channel)
            return export.generation_of(reader, channel, row.number), row.artifacts

    def pack(self, artifact: Digest, form: Form, generation: Generation) -> Packet:
        """See `Source`."""
        return Packed(export.prepare(self.context, artifact, form, generation), form)


def sync(source: Source, channel: str, folder: Path, form: Form) -> Synced:
    """Make `folder/live` the live generation of a channel; nothing is written when it is that already.

    A reader of `live` sees the old directory or the new one, whenever this is cut off; what was cut off is removed when
    the next run switches.

    Raises:
        NotFoundError: `CHANNEL_UNKNOWN`.
        UnavailableError: `SYNC_RUNNING` while another process syncs this folder, `TARGET_UNWRITABLE`.
        ConflictError: `TARGET_EXISTS` when `live` or the generation's directory is something else.
    """
    check_name(channel)
    generation, artifacts = source.head(channel)
    with _locked(folder):
        current = _current(folder)
        if current is not None and _card(folder / current) == _expected(generation, form):
            return _told(folder, generation, current, changed=False)
        packets = [source.pack(artifact, form, generation) for artifact in artifacts]
        name = packets[0].name if len(packets) == 1 else f"{generation.label}-{export.short(generation.publication)}"
        _sweep(folder, {packet.name for packet in packets})
        _place(folder / name, packets, generation, form)
        point(folder / LIVE, name)
        _keep(folder, channel, {name, current})
        return _told(folder, generation, name, changed=True)


def watch(
    source: Source, channel: str, folder: Path, form: Form, watcher: Watcher, stop: Event, interval_s: float
) -> None:
    """Sync again and again until `stop` is set; after a failure the waits grow up to a minute.

    A generation that cannot be handed out leaves the directory at the one before.
    """
    wait, failure = interval_s, ""
    while not stop.is_set():
        try:
            synced = sync(source, channel, folder, form)
        except ProblemError as error:
            if str(error) != failure:
                watcher.failed(error)
            wait, failure = min(2 * wait, max(LONGEST_WAIT_S, interval_s)), str(error)
        else:
            if synced.changed:
                watcher.switched(synced)
            wait, failure = interval_s, ""
        stop.wait(wait)


def _sweep(folder: Path, wanted: set[str]) -> None:
    """Remove what runs that were cut off left behind, but for the bytes of what is wanted now."""
    kept = {arriving(folder, name) for name in wanted}
    for stray in (*folder.glob(f".*{PARTIAL}"), *folder.glob(f".*{ARRIVING}")):
        if stray not in kept:
            _remove(stray)


def _place(target: Path, packets: list[Packet], generation: Generation, form: Form) -> None:
    """The directory of a generation, unless it is there already in this form."""
    if target.is_dir() and not target.is_symlink() and _card(target) == _expected(generation, form):
        return
    export.refuse_existing(target)
    with written_beside(target) as partial:
        if len(packets) == 1:
            packets[0].write(partial, target.parent)
            return
        for position, packet in enumerate(packets):
            packet.write(partial / str(position), target.parent)
        export.write_card(partial, _expected(generation, form))


def _expected(generation: Generation, form: Form) -> dict[str, object]:
    """What tells one handed-out generation from another."""
    return {
        "profile": form.profile,
        "base_name": form.base_name,
        "generation": export.generation_card(generation),
    }


def _card(directory: Path) -> dict[str, object] | None:
    """The same fields of a directory that is there; null when it is none of ours."""
    card = export.read_card(directory)
    return None if card is None else {key: card.get(key) for key in ("profile", "base_name", "generation")}


def _current(folder: Path) -> str | None:
    """The name `live` points at."""
    link = folder / LIVE
    if link.is_symlink():
        return link.readlink().name
    if link.exists():
        problem = Problem(
            code="TARGET_EXISTS",
            expected=f"{LIVE} to be a symbolic link this command made",
            observed=str(link),
            hint="Sync into a folder of its own.",
        )
        raise ConflictError(problem)
    return None


def _keep(folder: Path, channel: str, kept: set[str | None]) -> None:
    """Remove generations of this channel that are no longer needed."""
    ours = re.compile(rf"{re.escape(channel)}@g[0-9]+-[0-9a-f]{{{export.SHORT}}}")
    for path in folder.iterdir():
        if ours.fullmatch(path.name) and path.name not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One sync at a time; the lock ends with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w")
    except OSError as error:
        raise UnavailableError(unwritable(folder, error)) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = Problem(
                code="SYNC_RUNNING",
                expected="nobody else to sync this folder",
                observed=f"another process holds {folder / '.lock'}",
                hint="Wait for it, or sync into another folder.",
            )
            raise UnavailableError(problem) from error
        yield


def _told(folder: Path, generation: Generation, name: str, *, changed: bool) -> Synced:
    return Synced(
        channel=generation.channel,
        generation=generation.number,
        publication=generation.publication,
        kv_identity=generation.kv_identity,
        directory=str(folder / name),
        live=str(folder / LIVE),
        changed=changed,
    )
