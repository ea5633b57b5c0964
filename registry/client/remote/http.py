"""Requests to one server: typed answers, typed errors, bounded patience."""

from __future__ import annotations

import random
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from registry.client.refusals import REQUEST_ID, not_a_registry, origin, refusal
from registry.errors import Problem, ProblemError, UnavailableError, UsageProblemError
from registry.settings import Settings
from schemas.canonical import JsonObject

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

LONG: Final = httpx2.Timeout(30.0, read=6 * 3600.0)
"""For what a server answers only after it has read all its bytes."""
_USUAL: Final = httpx2.Timeout(30.0, read=120.0)


@dataclass(frozen=True)
class Patience:
    """How often something that may pass is tried, and the first pause between two tries in seconds, which doubles."""

    tries: int = 7
    first_pause_s: float = 0.1
    longest_pause_s: float = 3.0

    def pauses(self) -> Iterator[float]:
        """Pauses with jitter, one between each two tries."""
        for number in range(self.tries - 1):
            longest = min(self.longest_pause_s, self.first_pause_s * 2.0**number)
            yield random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret


@dataclass(frozen=True)
class Http:
    """A server's routes.

    Requests that may be repeated without harm are, while the connection breaks or the server is not available.
    """

    client: httpx2.Client
    patience: Patience = field(default_factory=Patience)

    def get(self, model: type[M], path: str, params: Mapping[str, Any] | None = None) -> M:
        """One record."""
        return self._read(model, self.send("GET", path, params=params))

    def get_all(self, model: type[M], path: str, params: Mapping[str, Any] | None = None) -> tuple[M, ...]:
        """A list of records."""
        answer = self.send("GET", path, params=params)
        kind: type[tuple[M, ...]] = tuple[model, ...]  # type: ignore[valid-type]  # a type made of a value
        return parsed(answer, TypeAdapter(kind).validate_json)

    def put(self, model: type[M], path: str, body: JsonObject) -> M:
        """Put a document; repeated, it stays what it is."""
        return self._read(model, self.send("PUT", path, json=body))

    def post(
        self,
        model: type[M],
        path: str,
        body: JsonObject,
        *,
        again: bool = True,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> M:
        """Post a document; `again` says that a second time would do no harm."""
        answer = self.send("POST", path, json=body, again=again, headers=headers, params=params, timeout=LONG)
        return self._read(model, answer)

    def post_once(self, model: type[M], path: str, body: JsonObject, headers: Mapping[str, str] | None = None) -> M:
        """Post under a key of its own, so that the server does it once however often it arrives."""
        return self.post(model, path, body, headers={"Idempotency-Key": uuid.uuid4().hex, **(headers or {})})

    def delete(self, path: str) -> httpx2.Response:
        """Delete; repeated, it stays deleted."""
        return self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: str,
        *,
        again: bool = True,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        json: JsonObject | None = None,
        form: tuple[Mapping[str, str], Mapping[str, tuple[str, bytes]]] = ({}, {}),
        timeout: httpx2.Timeout = _USUAL,
    ) -> httpx2.Response:
        """An answer that is a success; `form` is fields and files of a multipart body.

        Raises:
            ProblemError: what the server said, as the class it was there; or why there was no answer of a registry.
        """
        fields, files = form
        request = self.client.build_request(
            method,
            path,
            headers={REQUEST_ID: uuid.uuid4().hex, **(headers or {})},
            params=_given(params),
            json=json,
            data=fields or None,
            files=files or None,
            timeout=timeout,
        )
        pauses = self.patience.pauses()
        while True:
            try:
                return self._once(request)
            except _PassingError as passing:
                pause = next(pauses, None) if again or passing.unsent else None
                if pause is None:
                    raise passing.error from passing
                time.sleep(max(pause, min(passing.asked_s, self.patience.longest_pause_s)))

    def pause(self, seconds: float) -> None:
        """Wait before a next try."""
        time.sleep(seconds)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """An answer that arrives bit by bit; not repeated. Raises as `send` does."""
        address = str(self.client.base_url)
        with (
            _translated(address),
            self.client.stream("GET", path, headers=dict(headers), timeout=_USUAL) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise refusal(answer)
            yield answer

    def _once(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = self.client.send(request)
        except httpx2.TransportError as error:
            found = unreachable(str(self.client.base_url), error)
            if found.code == "SERVER_UNTRUSTED":
                raise found from error
            raise _PassingError(found, unsent=isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)) from error
        if answer.is_success:
            return answer
        told = refusal(answer)
        if isinstance(told, UnavailableError):
            raise _PassingError(told, asked_s=_asked(answer))
        raise told

    def _read(self, model: type[M], answer: httpx2.Response) -> M:
        return parsed(answer, model.model_validate_json)


class _PassingError(Exception):
    """Something that may pass; `unsent` says that the server has not even seen the request."""

    def __init__(self, error: ProblemError, *, unsent: bool = False, asked_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.unsent = unsent
        self.asked_s = asked_s


@contextmanager
def opened(settings: Settings) -> Iterator[httpx2.Client]:
    """A connection with the settings' address and token. Raises UsageProblemError `URL_INVALID`, `TOKEN_INVALID`."""
    headers = {"User-Agent": "adapter-registry"}
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {_header_text(settings.token.get_secret_value())}"
    with httpx2.Client(base_url=_address(settings.url or ""), headers=headers) as client:
        yield client


def unreachable(address: str, error: httpx2.TransportError) -> UnavailableError:
    """Why nothing came back from a server."""
    if _is_tls(error):
        hint = "Have its certificate renewed, or name its authority's file in SSL_CERT_FILE; is it https at all?"
        return UnavailableError(_problem("SERVER_UNTRUSTED", f"a trusted certificate of {address}", str(error), hint))
    observed = f"{type(error).__name__}: {error}"
    hint = "Check REGISTRY_URL or --url and the network; is `registry serve` running there?"
    return UnavailableError(_problem("SERVER_UNREACHABLE", f"an answer from {address}", observed, hint))


@contextmanager
def _translated(address: str) -> Iterator[None]:
    try:
        yield
    except httpx2.TransportError as error:
        raise unreachable(address, error) from error


def parsed(answer: httpx2.Response, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer.content)
    except ValidationError as error:
        where = f"{answer.request.method} {answer.request.url.path} of {origin(answer.request)}"
        if not answer.headers.get("Content-Type", "").startswith("application/json"):
            raise UsageProblemError(not_a_registry(f"no JSON to {where}")) from error
        first = error.errors(include_url=False, include_input=False)[0]
        observed = f"{where}: {'/'.join(map(str, first['loc']))}: {first['msg']}"
        hint = "The server is of another release than this client; bring both to the same one."
        raise UsageProblemError(
            _problem("ANSWER_UNKNOWN", "an answer as this release writes it", observed, hint)
        ) from (error)


def _address(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise UsageProblemError(_url_problem(f"{text!r}: {error}")) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageProblemError(_url_problem(repr(text)))
    if url.userinfo or url.query or url.fragment:
        raise UsageProblemError(_url_problem("a user, a query or a fragment in it"))
    return url


def _header_text(token: str) -> str:
    text = token.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        hint = "Set REGISTRY_TOKEN or the file of --token-file to what `registry token create` printed, and no more."
        raise UsageProblemError(_problem("TOKEN_UNUSABLE", "one word, as it was printed", "something else", hint))
    return text


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _asked(answer: httpx2.Response) -> float:
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (params or {}).items() if value is not None}


def _url_problem(observed: str) -> Problem:
    hint = "Write http://HOST:PORT or https://HOST in REGISTRY_URL or --url; leave it empty for a registry here."
    return _problem("URL_INVALID", "the address of a registry server", observed, hint)


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed[:300], hint=hint)
