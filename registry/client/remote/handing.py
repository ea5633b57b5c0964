"""Conversions by a server, and directories that are written here from the blobs it holds."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

from registry.client.remote import paths
from registry.client.remote.http import Http
from registry.client.remote.jobs import done, followed
from registry.client.transfer import Progress, download_blob
from registry.errors import Problem, UnavailableError
from registry.service import export, sync
from registry.service.beside import arriving, unwritable
from registry.service.export import CARD, Form, Generation
from registry.service.handed import Conversion, Synced
from registry.service.jobs import Job
from registry.service.results import Exported, FileEntry, Published
from registry.service.sync import Watcher
from registry.service.wishes import Wish, check_options
from registry.storage import hash_file
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import PREFIX, Digest
from schemas.model import validate


@dataclass(frozen=True)
class Fetched:
    """A packet whose bytes are fetched from a server; `card` is what the server wrote, of this generation."""

    http: Http
    name: str
    card: Mapping[str, object]
    files: tuple[FileEntry, ...]
    progress: Progress | None = None

    def write(self, folder: Path, beside: Path) -> None:
        """Fetch every file, then place them; what arrived before this was cut off is not fetched again."""
        with _kept(arriving(beside, self.name)) as kept:
            for file in self.files:
                _fetch(self.http, file, _place(kept, file), self.progress)
            folder.mkdir(parents=True, exist_ok=True)
            for file in self.files:
                target = folder / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                _place(kept, file).replace(target)
            export.write_card(folder, {**self.card, "files": [file.document() for file in self.files]})


@dataclass(frozen=True)
class Served:
    """Generations of a registry behind a server."""

    http: Http
    progress: Progress | None = None

    def head(self, channel: str) -> tuple[Generation, tuple[Digest, ...]]:
        """See `sync.Source`."""
        head = self.http.get_all(Published, paths.of_channel(channel, "generations"), {"limit": 1})[0]
        return Generation(channel, head.generation, head.publication, head.kv_identity), head.artifacts

    def pack(self, artifact: Digest, form: Form, generation: Generation) -> Fetched:
        """See `sync.Source`."""
        made, card = exported(self.http, artifact, form)
        name = f"{generation.label}-{export.short(made.adapter)}"
        card |= {"generation": export.generation_card(generation)}
        return Fetched(self.http, name, card, _files(made), self.progress)


class HandingOut:
    """Other forms of an adapter, and directories that servers load."""

    http: Http

    def convert(self, ref: str, wish: Wish) -> Conversion:
        """Make another adapter of one and record how."""
        check_options(wish)
        body: JsonObject = {
            "ref": ref,
            "rule": wish.rule,
            "name": wish.name,
            "initial": wish.initial,
            "base": wish.base,
            "store": wish.store,
            "acknowledge": list[JsonValue](sorted(wish.acknowledge)),
        }
        job = self.http.post_once(Job, "/v1/conversions", body)
        made = validate(Conversion, done(followed(self.http, job)).result)
        # what was done before it was asked for made nothing now
        return made if job.open else made.model_copy(update={"created": False})

    def export(
        self, ref: str, directory: Path, form: Form, *, named: bool = False, progress: Progress | None = None
    ) -> Exported:
        """Write a directory that servers load."""
        return export.handed_out(lambda: self._fetched(ref, form, progress), directory, named=named)

    def ensure(self, ref: str, folder: Path, form: Form) -> Exported:
        """The directory of a reference inside `folder`, written unless it is there."""
        return export.ensured(self._fetched(ref, form), folder)

    def sync(self, channel: str, folder: Path, form: Form, *, progress: Progress | None = None) -> Synced:
        """Make `folder/live` the live generation of a channel."""
        return sync.sync(Served(self.http, progress), channel, folder, form)

    def watch(
        self, channel: str, folder: Path, form: Form, watcher: Watcher, stop: Event, interval_s: float = 2.0
    ) -> None:
        """Sync again and again until `stop` is set."""
        sync.watch(Served(self.http), channel, folder, form, watcher, stop, interval_s)

    def _fetched(self, ref: str, form: Form, progress: Progress | None = None) -> Fetched:
        made, card = exported(self.http, ref, form)
        return Fetched(self.http, made.directory, card, _files(made), progress)


def exported(http: Http, ref: str, form: Form) -> tuple[Exported, dict[str, Any]]:
    """What the server made of a reference, every file of it a blob, and its card."""
    body: JsonObject = {
        "ref": ref,
        "base_name": form.base_name,
        "profile": form.profile,
        "engine": form.engine,
        "max_lora_rank": form.max_lora_rank,
    }
    job = http.post_once(Job, "/v1/exports", body)
    made = validate(Exported, done(followed(http, job)).result)
    entry = next(file for file in made.files if file.path == CARD)
    with TemporaryDirectory(prefix="card-") as folder:
        card = Path(folder) / CARD
        download_blob(http.client, entry.blob, card, entry.size)
        read: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
    return made, read


def _files(made: Exported) -> tuple[FileEntry, ...]:
    return tuple(file for file in made.files if file.path != CARD)


def _place(kept: Path, file: FileEntry) -> Path:
    return kept / file.blob.removeprefix(PREFIX)


def _fetch(http: Http, file: FileEntry, target: Path, progress: Progress | None) -> None:
    """Bring one file here, unless it came before."""
    if not target.exists() or hash_file(target).digest != file.blob:
        download_blob(http.client, file.blob, target, file.size, progress)
    elif progress is not None:
        progress(file.size)


@contextmanager
def _kept(folder: Path) -> Iterator[Path]:
    """A folder for what arrives, of one process at a time; it stays when the block ends in an error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UnavailableError(unwritable(folder, error)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            raise UnavailableError(_fetched_elsewhere(folder))
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def _fetched_elsewhere(folder: Path) -> Problem:
    return Problem(
        code="TARGET_UNWRITABLE",
        expected="to be the only one who writes this directory",
        observed=f"{folder}: another process has just fetched it",
        hint="Look whether the directory is there now; otherwise repeat.",
    )
