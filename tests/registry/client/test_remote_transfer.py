"""What is brought to a server and fetched from it: lines that break, commands that are cut off, and a hub's files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from registry.cli.main import cli
from registry.client.remote import RemoteRegistry
from registry.client.transfer import download_blob, upload_file
from registry.errors import DigestMismatchError
from registry.service.export import Form
from registry.storage import hash_file
from tests.registry.client.conftest import Served
from tests.support.hub import Repository, running_hub
from tests.support.served import Line

SIZE = 12 * 2**20 + 17


class CutOffError(Exception):
    """The command is ended from outside."""


@dataclass
class Asked:
    """The blobs that were asked for, and from which byte on."""

    blobs: list[tuple[str, str | None]] = field(default_factory=list)

    def note(self, request: httpx2.Request) -> None:
        if request.method == "GET" and "/blobs/" in request.url.path:
            self.blobs.append((request.url.path.rpartition("/")[2], request.headers.get("Range")))


@contextmanager
def noted(served: Served, url: str) -> Iterator[tuple[RemoteRegistry, Asked]]:
    """A client at this address, and what it asks for."""
    asked = Asked()
    with Served(served.folder, url, served.token).client() as remote:
        remote.http.client.event_hooks["request"] = [asked.note]
        yield remote, asked


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_download_goes_on_where_a_broken_line_or_a_dead_process_left_it(served: Served, tmp_path: Path) -> None:
    file, target = tmp_path / "large", tmp_path / "back"
    file.write_bytes(random.Random(5).randbytes(SIZE))
    digest = hash_file(file).digest
    line = Line(urlsplit(served.url).port or 0)
    with noted(served, f"http://127.0.0.1:{line.port}") as (remote, asked):
        sent: list[int] = []
        upload_file(remote.http.client, file, digest, sent.append)
        assert sum(sent) == SIZE
        got: list[int] = []

        def cut_once(count: int) -> None:
            before = sum(got)
            got.append(count)
            if before < SIZE // 3 <= before + count:
                line.cut()
                line.mend()

        download_blob(remote.http.client, digest, target, SIZE, cut_once)
        assert (target.read_bytes() == file.read_bytes(), sum(got)) == (True, SIZE)
        (first, again) = asked.blobs
        assert first == (digest, None)
        assert again[1] is not None
        assert int(again[1].removeprefix("bytes=").rstrip("-")) >= SIZE // 3

        target.unlink()
        asked.blobs.clear()

        def die(count: int) -> None:
            raise CutOffError(count)

        with pytest.raises(CutOffError):
            download_blob(remote.http.client, digest, target, SIZE, die)
        part = target.with_name("back.part")
        here = part.stat().st_size
        assert 0 < here < SIZE
        download_blob(remote.http.client, digest, target, SIZE)
        assert target.read_bytes() == file.read_bytes()
        assert asked.blobs == [(digest, None), (digest, f"bytes={here}-")]

        target.unlink()
        part.write_bytes(b"not the beginning of it")
        with pytest.raises(DigestMismatchError):
            download_blob(remote.http.client, digest, target, SIZE)
        assert not part.exists()
        assert not target.exists()


def test_a_sync_that_is_cut_off_shows_nothing_and_fetches_only_the_rest_when_repeated(
    served: Served, tmp_path: Path
) -> None:
    form = Form("tiny")
    with served.inside() as registry:
        registry.publish("bot", ["one"])
    with noted(served, served.url) as (remote, asked):
        got: list[int] = []

        def die_late(count: int) -> None:
            got.append(count)
            if len(got) == 2:
                raise CutOffError

        with pytest.raises(CutOffError):
            remote.sync("bot", tmp_path / "served", form, progress=die_late)
        assert not (tmp_path / "served" / "live").exists()
        (kept,) = {blob for blob, _ in asked.blobs[1:2]}
        asked.blobs.clear()
        again: list[int] = []
        synced = remote.sync("bot", tmp_path / "served", form, progress=again.append)
        assert kept not in {blob for blob, _ in asked.blobs}
        written = [path for path in Path(synced.directory).iterdir() if path.name != "registry.json"]
        assert sum(again) == sum(path.stat().st_size for path in written)


def test_a_repository_of_a_hub_is_fetched_here_and_sent_with_where_it_came_from(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_URL", served.url)
    monkeypatch.setenv("REGISTRY_TOKEN", served.token)
    found = {
        "o/base": Repository(files(served.folder / "base"), "b" * 40),
        "o/lora": Repository(files(served.folder / "one"), "c" * 40),
    }
    with running_hub(found) as hub:
        # what HF_ENDPOINT says, which the hub's client reads once
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = "{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{template}")
        for command in ("base hub:o/base@main --name fetched", "adapter hub:o/lora --base fetched --name lora"):
            done = CliRunner().invoke(cli, ["add", *command.split()])
            assert done.exit_code == 0, done.output
        missing = CliRunner().invoke(cli, ["add", "adapter", "hub:o/none", "--base", "fetched", "--name", "x"])
        assert (missing.exit_code, "HUB_NOT_FOUND" in missing.stderr) == (4, True)
    with served.inside() as registry:
        base, lora = registry.show("fetched"), registry.show("lora")
        assert (base.digest, lora.digest) == (registry.show("tiny").digest, registry.show("one").digest)
        said: list[Any] = [shown.statements[-1]["body"] for shown in (base, lora)]
        origin = {"source": "hub", "repository": "o/base", "revision": "main", "commit": "b" * 40}
        assert (said[0], said[1]["commit"]) == (origin, "c" * 40)
        assert registry.verify("fetched", deep=True).faults == ()
