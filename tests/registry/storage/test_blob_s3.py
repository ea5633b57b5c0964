"""The contract over S3, spoken to a server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from registry.errors import NotFoundError, UnavailableError
from registry.storage import BlobStore, open_store
from tests.registry.storage.contract import ABC_DIGEST, BlobStoreContract

NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The settings through which every S3 client is told where to go and who it is."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "a test secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return endpoint


class TestS3(BlobStoreContract):
    """A bucket under a prefix."""

    bucket: S3Store

    @pytest.fixture
    def store(self, environment: str, tmp_path: Path) -> BlobStore:
        name = f"bucket-{uuid4()}"
        with urlopen(Request(f"{environment}/{name}", method="PUT")) as answer:
            assert answer.status == 200
        self.bucket = S3Store(name)
        return open_store(f"s3://{name}/some/prefix", cache=tmp_path / "cache")

    def plant(self, store: BlobStore, digest: str, data: bytes) -> None:
        assert store.has(digest)
        name = digest.removeprefix("blake3:")
        obstore.put(self.bucket, f"some/prefix/blobs/{name[:2]}/{name}", data)

    def plant_stranger(self, store: BlobStore) -> None:
        assert not list(store.entries())
        obstore.put(self.bucket, "some/prefix/blobs/notes.txt", b"not a blob")
        obstore.put(self.bucket, "some/prefix/blobs/00/" + "ff" * 32, b"in the wrong place")

    def test_only_the_prefix_is_written(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        name = ABC_DIGEST.removeprefix("blake3:")
        written = [item["path"] for page in obstore.list(self.bucket) for item in page]
        assert written == [f"some/prefix/blobs/{name[:2]}/{name}"]


@pytest.mark.usefixtures("environment")
def test_a_put_into_a_missing_bucket_says_that_the_store_is_away(tmp_path: Path) -> None:
    store = open_store("s3://no-such-bucket", cache=tmp_path)
    with pytest.raises(UnavailableError, match="no-such-bucket") as failure:
        store.put_bytes(b"abc")
    assert failure.value.code == "STORE_UNAVAILABLE"
    assert store.sweep_staging(0) == 0


@pytest.mark.usefixtures("environment")
def test_an_object_store_that_does_not_answer_is_unavailable_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY_LISTENS)
    store = open_store("s3://bucket", cache=tmp_path)
    for ask in (lambda: store.has(ABC_DIGEST), lambda: list(store.entries()), lambda: store.put_bytes(b"abc")):
        with pytest.raises(UnavailableError) as failure:
            ask()
        assert failure.value.code == "STORE_UNAVAILABLE"
        assert not isinstance(failure.value, NotFoundError)
    assert store.sweep_staging(0) == 0
