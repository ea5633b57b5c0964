"""Bases and adapters brought to a server: read and checked here first, so that nothing is sent to be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from registry.client.remote import paths
from registry.client.remote.http import LONG, Http
from registry.client.transfer import Progress, upload_file
from registry.errors import ConflictError, DigestMismatchError, NotFoundError, Problem, RefusedError, UsageProblemError
from registry.formats import AdapterReading, BaseReading, Evidence, FileReading, Note, read_adapter, read_base
from registry.formats.directory import open_directory
from registry.formats.hub import HubRef, fetch, place_of
from registry.formats.snapshot import Floats, ReadWeight
from registry.formats.values import floats
from registry.service.add import told
from registry.service.base_bytes import comparable
from registry.service.bulk import AddedMany, NotAdded
from registry.service.inspect import inspect_against, inspect_directory
from registry.service.inspected import Inspected
from registry.service.results import Added, Shown
from schemas.base import BaseManifest
from schemas.canonical import JsonObject, JsonValue
from schemas.model import validate
from schemas.names import check_name

AT_ONCE: Final = 8
"""Adapter directories read and sent at a time."""


class Registering:
    """Bases and adapters come in."""

    http: Http

    def add_base(
        self,
        source: str | Path | HubRef,
        name: str,
        *,
        store: bool = False,
        evidence: Evidence = "content",
        progress: Progress | None = None,
        jobs: int = 1,
        contracts: Sequence[str] = (),
    ) -> Added:
        """Register a base: a directory, a GGUF file, or a repository of a hub, whose files are sent.

        Without `store` only what was read here is told, and the server records the base as `declared`.
        """
        check_name(name)
        with _here(source, "base", weights=evidence != "declared") as (place, origin):
            reading = read_base(place, evidence=evidence, progress=progress, jobs=jobs)
            body: JsonObject = {"name": name, "contracts": list[JsonValue](contracts)}
            if evidence != "content" or not (store or origin):
                return self.http.post(Added, "/v1/bases/declared", body | _declared(reading))
            folder = place if place.is_dir() else place.parent
            digests = self._sent(folder, reading.files, progress)
            return self.http.post(Added, "/v1/bases", body | {"files": digests} | _said(origin))

    def add_adapter(
        self, source: str | Path | HubRef, base: str, name: str, *, progress: Progress | None = None
    ) -> Added:
        """Register an adapter against a base: a directory or a repository of a hub."""
        check_name(name)
        with _here(source, "adapter") as (place, origin):
            files = self._prepared(place, self._base(base), progress)
            return self._post_adapter(files, base, name, origin)

    def add_adapters(
        self,
        directories: Sequence[Path],
        base: str,
        *,
        jobs: int = 1,
        progress: Progress | None = None,
    ) -> AddedMany:
        """Register many adapter directories against one base, each under the name of its directory.

        They are read and sent several at a time, and registered in the order given.
        """
        manifest = self._base(base)
        added: list[Added] = []
        refused: list[NotAdded] = []
        with ThreadPoolExecutor(max(jobs, AT_ONCE), "sending") as threads:
            for directory, sent in _ahead(threads, lambda place: self._prepared(place, manifest), directories):
                try:
                    name = check_name(directory.absolute().name)
                    added.append(self._post_adapter(sent.result(), base, name, None))
                except (ConflictError, DigestMismatchError, NotFoundError, RefusedError, UsageProblemError) as error:
                    refused.append(NotAdded(directory, error))
                if progress is not None:
                    progress(1)
        return AddedMany(tuple(added), tuple(refused))

    def inspect(self, directory: Path, base: str | None = None) -> Inspected:
        """What a directory is, without registering it; a few weights of the base are fetched, nothing is sent."""
        if base is None:
            return inspect_directory(directory)
        manifest = self._base(base)
        return inspect_against(directory, manifest, self._weights(manifest))

    def _weights(self, base: BaseManifest) -> ReadWeight:
        """Read weights that lie at the server; null for one that cannot be read there."""
        weights = comparable(base)

        def read(name: str) -> Floats | None:
            if name not in weights:
                return None
            try:
                path = paths.of_id("manifests", base.digest, "weight")
                data = self.http.send("GET", path, params={"name": name}, timeout=LONG).content
            except NotFoundError:
                return None
            return floats(data, weights[name].dtype, weights[name].shape)

        return read

    def _base(self, ref: str) -> BaseManifest:
        shown = self.http.get(Shown, paths.of_ref("refs", ref))
        if shown.kind != BaseManifest.KIND:
            raise UsageProblemError(
                Problem(
                    code="KIND_UNEXPECTED",
                    expected=f"the digest of a manifest of kind {BaseManifest.KIND}",
                    observed=f"{shown.digest} of kind {shown.kind}",
                    hint=f"Name something of kind {BaseManifest.KIND}.",
                )
            )
        return validate(BaseManifest, shown.manifest)

    def _prepared(self, directory: Path, base: BaseManifest, progress: Progress | None = None) -> dict[str, JsonValue]:
        """The files of a directory that can be registered, all of them sent."""
        with TemporaryDirectory(prefix="adapter-") as scratch:
            reading = read_adapter(directory, base, scratch=Path(scratch))
            return self._sent(directory, _originals(directory, reading), progress)

    def _post_adapter(
        self, files: dict[str, JsonValue], base: str, name: str, origin: Mapping[str, Note] | None
    ) -> Added:
        body: JsonObject = {"name": name, "base": base, "files": files}
        return self.http.post(Added, "/v1/adapters", body | _said(origin))

    def _sent(self, folder: Path, files: Iterable[FileReading], progress: Progress | None) -> dict[str, JsonValue]:
        digests: dict[str, JsonValue] = {}
        for file in files:
            upload_file(self.http.client, folder / file.path, file.digests.digest, progress)
            digests[file.path] = file.digests.digest
        return digests


@contextmanager
def _here(
    source: str | Path | HubRef, kind: str, *, weights: bool = True
) -> Iterator[tuple[Path, Mapping[str, Note] | None]]:
    """A directory of this machine, and where it was fetched from."""
    found = place_of(source)
    if isinstance(found, Path):
        yield found, None
        return
    with TemporaryDirectory(prefix="hub-") as folder:
        commit = fetch(found, Path(folder), "base" if kind == "base" else "adapter", weights=weights)
        yield Path(folder), found.origin(commit)


def _originals(directory: Path, reading: AdapterReading) -> Sequence[FileReading]:
    """The files that were read; where tensors had to be rearranged, all that lie there: one of them is their origin."""
    if not reading.made:
        return reading.files
    checked = open_directory(directory)
    return [checked.digest_file(name) for name in sorted(checked.names)]


def _declared(reading: BaseReading) -> JsonObject:
    files: JsonObject = {
        file.path: {"blake3": file.digests.digest, "sha256": file.digests.sha256, "size": file.digests.size}
        for file in reading.files
    }
    return {"base": reading.manifest.document(), "files": files}


def _said(origin: Mapping[str, Note] | None) -> JsonObject:
    return {} if origin is None else {"origin": told(origin)}


def _ahead(
    threads: ThreadPoolExecutor,
    work: Callable[[Path], dict[str, JsonValue]],
    directories: Sequence[Path],
) -> Iterator[tuple[Path, Future[dict[str, JsonValue]]]]:
    """Each directory with what is made of it; no more than a few wait for their turn."""
    waiting: list[tuple[Path, Future[dict[str, JsonValue]]]] = []
    for directory in directories:
        waiting.append((directory, threads.submit(work, directory)))
        if len(waiting) > 2 * AT_ONCE:
            yield waiting.pop(0)
    yield from waiting
