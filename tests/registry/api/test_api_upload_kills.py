"""A server killed while it receives: the client goes on where the staged bytes end, and everything verifies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from registry.client.transfer import download_blob, upload_file
from registry.service import tokens
from registry.service.verify import verify
from registry.settings import Settings
from registry.storage import hash_file
from registry.wiring import opened
from tests.support.ports import free_port
from tests.support.served import Served, serving

MIB = 2**20


@dataclass
class House:
    """A registry whose server can be started again on the same port."""

    folder: Path
    settings: Settings
    port: int = field(default_factory=free_port)

    @contextmanager
    def serving(self) -> Iterator[Served]:
        environment = {
            "REGISTRY_HOME": str(self.folder),
            "REGISTRY_DATABASE_URL": self.settings.database,
            "REGISTRY_STORE_URL": self.settings.store,
        }
        with serving(self.folder, environment, "--no-jobs", "--port", str(self.port)) as server:
            yield server

    def staged(self) -> int:
        """How many bytes of the one upload have arrived."""
        return sum(file.stat().st_size for file in (self.folder / "store" / "uploads").iterdir())

    def client(self) -> httpx2.Client:
        with opened(self.settings) as context:
            secret = tokens.create(context, "ci", ("read", "register")).secret
        return httpx2.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"Authorization": f"Bearer {secret}"}, timeout=60
        )


@pytest.fixture
def house(database_url: str, tmp_path: Path) -> House:
    settings = Settings(home=tmp_path, database_url=database_url, store_url=str(tmp_path / "store"))
    (tmp_path / "store" / "uploads").mkdir(parents=True)
    return House(tmp_path, settings)


@dataclass
class Sent:
    """Where the pieces of an upload began."""

    offsets: list[int] = field(default_factory=list)

    def note(self, request: httpx2.Request) -> None:
        if request.method == "PATCH":
            self.offsets.append(int(request.headers["Upload-Offset"]))


@pytest.mark.parametrize(
    ("pieces", "piece", "kills"),
    [
        pytest.param(8, 6 * MIB, 2, id="sample"),
        pytest.param(1_000, 64 * 2**10, 10, id="campaign", marks=pytest.mark.long),
    ],
)
def test_an_upload_survives_kills_of_the_server_and_nothing_is_sent_twice(
    house: House, pieces: int, piece: int, kills: int
) -> None:
    moments = random.Random(pieces)
    size = pieces * piece - 13
    file = house.folder / "model.bin"
    file.write_bytes(moments.randbytes(size))
    digest = hash_file(file).digest
    sent = Sent()
    points = sorted(moments.randrange(size // 10, size * 9 // 10) for _ in range(kills))
    with house.client() as http, ThreadPoolExecutor(1) as pool:
        http.event_hooks["request"] = [sent.note]
        upload: Future[None] | None = None
        for point in (*points, None):
            before = house.staged()
            tried = len(sent.offsets)
            with house.serving() as server:
                upload = upload or pool.submit(upload_file, http, file, digest, piece=piece)
                if point is None:
                    upload.result(120)
                else:
                    while house.staged() < point and not upload.done():
                        time.sleep(0.0005)
                    server.kill()
                # what was tried while nobody listened came to nobody; the next piece begins where the bytes end
                assert before in sent.offsets[max(0, tried - 1) :], (before, sent.offsets[tried - 1 :])
                resumed = sent.offsets.index(before, max(0, tried - 1))
                assert all(offset >= before for offset in sent.offsets[resumed:])
                if point is None:
                    target = house.folder / "back"
                    download_blob(http, digest, target, size)
                    assert target.read_bytes() == file.read_bytes()
    assert house.staged() == 0
    with opened(house.settings) as context:
        assert verify(context, deep=True).faults == ()
