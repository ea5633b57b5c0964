"""Bytes to and from a server: uploads that go on where they stood, downloads that go on where they stopped.

Both try again, with growing random pauses, while a connection breaks or the server says that it is busy, and give up
only after `TRIES` tries in a row that brought nothing. Neither keeps notes of its own: the server knows how far an
upload of the same digest by the same caller is, and a download's own `.part` file knows how far it is.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import httpx2
from blake3 import blake3

from registry.client.refusals import refusal
from registry.errors import DigestMismatchError, Problem, ProblemError, UnavailableError
from registry.hashing import stream_blocks
from schemas.canonical import JsonObject
from schemas.digests import PREFIX, Digest

PIECE_BYTES: Final = 64 * 2**20
"""What one request of an upload carries at most; the server puts each piece on disk before it acknowledges it."""
TRIES: Final = 8
_CHUNK: Final = 2**20
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_PASSING: Final = frozenset({408, 409, 416, 429, 502, 503, 504})
_PATIENT: Final = httpx2.Timeout(30.0, read=600.0)
"""A server that was restarted reads what it holds of an upload once before it answers."""

Progress = Callable[[int], None]
"""Told how many more bytes are there; what is sent twice is told once."""


class _InterruptedError(Exception):
    """Something that may pass: `pause_s` is what the server asked for."""

    def __init__(self, error: ProblemError, pause_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.pause_s = pause_s


@dataclass
class _Patience:
    """How often in a row nothing came of it; anything that did come begins the count anew."""

    failed: int = 0
    reached: int = 0

    def at(self, offset: int) -> None:
        """Bytes up to here are there."""
        if offset > self.reached:
            self.failed, self.reached = 0, offset

    def wait(self, interrupted: _InterruptedError) -> None:
        """Pause before the next try, or give up."""
        self.failed += 1
        if self.failed >= TRIES:
            raise interrupted.error from interrupted
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self.failed)
        jitter = random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret
        time.sleep(max(jitter, min(interrupted.pause_s, _LONGEST_PAUSE_S)))


@dataclass
class _Meter:
    """Tells each byte once, however often it is sent."""

    progress: Progress | None
    told: int = 0

    def at(self, offset: int) -> None:
        """The transfer stands here."""
        if offset > self.told and self.progress is not None:
            self.progress(offset - self.told)
        self.told = max(self.told, offset)


def held(http: httpx2.Client, digest: Digest) -> bool:
    """Whether the server has this blob."""
    patience = _Patience()
    while True:
        try:
            answer = _sent(http, "HEAD", f"/v1/blobs/{digest}")
        except _InterruptedError as interrupted:
            patience.wait(interrupted)
            continue
        if answer.status_code == 404:
            return False
        _require(answer)
        return True


def upload_file(
    http: httpx2.Client, path: Path, digest: Digest, progress: Progress | None = None, *, piece: int = PIECE_BYTES
) -> None:
    """Bring a file to the server, or what is missing of it there; nothing is sent when the server has the blob.

    `piece` is how many bytes one request carries at most.

    Raises:
        DigestMismatchError: the file does not have this digest, for example because it changed meanwhile.
        RefusedError: the server does not take these bytes, such as a damaged safetensors header.
        UnavailableError: `SERVER_UNREACHABLE` or what the server said, after `TRIES` tries in a row.
    """
    size = path.stat().st_size
    meter, patience = _Meter(progress), _Patience()
    if not held(http, digest):
        with path.open("rb", buffering=0) as file:
            while True:
                try:
                    _upload(http, _Source(file, _hint(path), size, digest, piece), meter, patience)
                    break
                except _InterruptedError as interrupted:
                    patience.wait(interrupted)
    meter.at(size)


@dataclass(frozen=True)
class _Source:
    file: BinaryIO
    name: str | None
    size: int
    digest: Digest
    most: int

    def piece(self, start: int, end: int, meter: _Meter) -> Iterator[bytes]:
        """The bytes ``[start, end)``."""
        self.file.seek(start)
        while start < end:
            block = self.file.read(min(_CHUNK, end - start))
            if not block:
                return
            yield block
            start += len(block)
            meter.at(start)


def _hint(path: Path) -> str | None:
    """The name, where it tells the server what to look for."""
    return path.name if path.suffix == ".safetensors" else None


def _upload(http: httpx2.Client, source: _Source, meter: _Meter, patience: _Patience) -> None:
    wish: JsonObject = {"digest": source.digest, "size": source.size, "name": source.name}
    begun = _require(_sent(http, "POST", "/v1/uploads", json=wish)).json()
    place, offset = f"/v1/uploads/{begun['id']}", int(begun["offset"])
    patience.at(offset)
    while offset < source.size:
        end = min(source.size, offset + source.most)
        headers = {
            "Upload-Offset": str(offset),
            "Content-Length": str(end - offset),
            "Content-Type": "application/octet-stream",
        }
        answer = _sent(http, "PATCH", place, headers=headers, content=source.piece(offset, end, meter))
        offset = int(_lasting(answer).headers["Upload-Offset"])
        patience.at(offset)
    _lasting(_sent(http, "PUT", place, params={"digest": source.digest}))


def download_blob(
    http: httpx2.Client, digest: Digest, target: Path, size: int, progress: Progress | None = None
) -> None:
    """Fetch a blob into `target`, by way of `target.part`, which a later call continues; verified before it is named.

    Raises:
        DigestMismatchError: `BLOB_DIGEST_MISMATCH`; the `.part` file is removed.
        NotFoundError: the server does not have it.
        UnavailableError: `SERVER_UNREACHABLE` or what the server said, after `TRIES` tries in a row.
    """
    part = target.with_name(f"{target.name}.part")
    meter, patience = _Meter(progress), _Patience()
    with part.open("a+b") as file:
        received = _Received(file, digest, size, meter)
        while received.offset < size:
            try:
                _download(http, received, patience)
            except _InterruptedError as interrupted:
                patience.wait(interrupted)
        observed = received.digest
        file.flush()
        os.fsync(file.fileno())
    if observed != digest:
        part.unlink()
        raise _mismatch(digest, observed)
    part.replace(target)


class _Received:
    """What has arrived of a download, hashed as it comes; what was there before is read once."""

    def __init__(self, file: BinaryIO, digest: Digest, size: int, meter: _Meter) -> None:
        self._file = file
        self._meter = meter
        self.name = digest
        self.size = size
        self.offset = 0
        self._hash = blake3()
        file.seek(0)
        if file.seek(0, os.SEEK_END) > size:
            file.truncate(0)
        file.seek(0)
        for block in stream_blocks(file):
            self._count(block)

    @property
    def digest(self) -> Digest:
        return PREFIX + self._hash.hexdigest()

    def begin_again(self) -> None:
        """The server sends the whole."""
        self._file.truncate(0)
        self.offset, self._hash = 0, blake3()

    def take(self, block: bytes) -> None:
        if self.offset + len(block) > self.size:
            raise _mismatch(self.name, f"more than its {self.size} bytes")
        self._file.write(block)
        self._count(block)

    def _count(self, block: bytes) -> None:
        self._hash.update(block)
        self.offset += len(block)
        self._meter.at(self.offset)


def _download(http: httpx2.Client, received: _Received, patience: _Patience) -> None:
    headers = {"Accept-Encoding": "identity"}
    if received.offset:
        headers |= {"Range": f"bytes={received.offset}-", "If-Range": f'"{received.name}"'}
    try:
        with http.stream("GET", f"/v1/blobs/{received.name}", headers=headers, timeout=_PATIENT) as answer:
            if not answer.is_success:
                answer.read()
            _lasting(answer)
            if answer.status_code != 206:
                received.begin_again()
            for block in answer.iter_bytes():
                received.take(block)
                patience.at(received.offset)
    except httpx2.TransportError as error:
        raise _InterruptedError(_unreachable(error)) from error


def _sent(
    http: httpx2.Client,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    json: JsonObject | None = None,
    content: Iterator[bytes] | None = None,
) -> httpx2.Response:
    try:
        answer = http.request(
            method, path, headers=headers, params=params, json=json, content=content, timeout=_PATIENT
        )
    except httpx2.TransportError as error:
        raise _InterruptedError(_unreachable(error)) from error
    if answer.status_code in _PASSING:
        raise _InterruptedError(refusal(answer), _asked_pause(answer))
    return answer


def _lasting(answer: httpx2.Response) -> httpx2.Response:
    """The answer of a request about something that was there a moment ago: an upload that is gone is begun again."""
    if answer.status_code in _PASSING or (answer.status_code == 404 and answer.request.method in {"PATCH", "PUT"}):
        raise _InterruptedError(refusal(answer), _asked_pause(answer))
    return _require(answer)


def _require(answer: httpx2.Response) -> httpx2.Response:
    if not answer.is_success:
        raise refusal(answer)
    return answer


def _asked_pause(answer: httpx2.Response) -> float:
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _unreachable(error: httpx2.TransportError) -> UnavailableError:
    return UnavailableError(
        Problem(
            code="SERVER_UNREACHABLE",
            expected="a server that answers",
            observed=f"{type(error).__name__}: {error}"[:200],
            hint="Check REGISTRY_URL and the network, then repeat: what has arrived is not sent again.",
        )
    )


def _mismatch(expected: Digest, observed: str) -> DigestMismatchError:
    return DigestMismatchError(
        Problem(
            code="BLOB_DIGEST_MISMATCH",
            expected=expected,
            observed=observed,
            hint="The bytes were changed on the way or on the server; fetch them again, and let it `verify --deep`.",
        )
    )
