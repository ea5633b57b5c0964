"""Sending what waits for webhooks: signed, bounded, to public addresses only, and again until it arrives."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from functools import partial
from typing import Final
from urllib.parse import SplitResult, urlsplit

from registry.db import webhooks
from registry.db.rows import WebhookDeliveryRow
from registry.errors import UnavailableError
from registry.service.context import Context
from registry.service.webhooks import MARK

TIMEOUT_S: Final = 10.0
"""Longest time of one attempt, from resolving the name to the end of the answer's head."""
HOLD_S: Final = 60.0
WAITS_S: Final = (5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Between attempts; after the last one a message is dead."""
IDLE_S: Final = 1.0
THREADS: Final = 4
_GONE: Final = 410
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SENDER: Final = "webhooks"


class AddressRefusedError(OSError):
    """The name leads to an address inside the own network."""


class Sender:
    """Threads that send what is due; any number of processes may do so at once."""

    def __init__(self, context: Context, *, private: bool) -> None:
        self._context = context
        self._private = private
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._loop, name=f"webhooks-{number}", daemon=True) for number in range(THREADS)
        ]

    def start(self) -> None:
        """Start sending."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish what is being sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                sent = send_next(self._context, private=self._private)
            except UnavailableError:
                sent = False
            if not sent:
                self._stop.wait(IDLE_S)


def send_next(context: Context, *, private: bool) -> bool:
    """Send the message that waits longest; False when none is due."""
    database = context.database
    with database.reading() as reader:
        if not webhooks.due(reader):
            return False
    row = database.change("webhook.claim", _SENDER, lambda change: webhooks.claim(change, HOLD_S))
    if row is None:
        return False
    with database.reading() as reader:
        url, secret = webhooks.get(reader, row.webhook).url, webhooks.secret_of(reader, row.webhook)
    if secret is None:
        return True
    status, answer = _sent(url, row, secret, private=private)
    wait = WAITS_S[min(row.attempts, len(WAITS_S)) - 1] if status == "waiting" else 0.0
    settle = partial(webhooks.settle, row=row, status=status, answer=answer, wait_s=wait)
    database.change("webhook.settle", _SENDER, settle)
    return True


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature` (Standard Webhooks): HMAC-SHA256 over ``id.timestamp.body``, base64."""
    key = base64.b64decode(secret.removeprefix(MARK))
    signed = hmac.new(key, f"{message}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


def _sent(url: str, row: WebhookDeliveryRow, secret: str, *, private: bool) -> tuple[str, str]:
    """What becomes of a message by this attempt, and what was answered."""
    body = row.body_json.encode()
    now = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "adapter-registry",
        "webhook-id": row.id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secret, row.id, now, body),
    }
    failed = "dead" if row.attempts > len(WAITS_S) else "waiting"
    try:
        status = _post(urlsplit(url), body, headers, private=private)
    except AddressRefusedError as error:
        return failed, str(error)
    except (OSError, http.client.HTTPException) as error:
        return failed, type(error).__name__
    if status // 100 == 2:
        return "delivered", str(status)
    return "dead" if status == _GONE else failed, str(status)


def _post(url: SplitResult, body: bytes, headers: dict[str, str], *, private: bool) -> int:
    """The status of one POST; redirects are answers like any other, and the answer's body is not read."""
    connection = _Connection(url, private=private)
    late = threading.Timer(TIMEOUT_S, connection.abort)
    late.daemon = True
    late.start()
    try:
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        late.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection to the very address that was checked, so that a second look-up cannot lead elsewhere."""

    def __init__(self, url: SplitResult, *, private: bool) -> None:
        self._secure = url.scheme == "https"
        self._private = private
        port = url.port or (443 if self._secure else 80)
        super().__init__(url.hostname or "", port, timeout=TIMEOUT_S)
        # without the port that goes without saying, as other clients write it
        self.default_port = 443 if self._secure else 80

    def connect(self) -> None:
        """Resolve, check and connect.

        Raises:
            AddressRefusedError: the name leads to an address that is not public.
        """
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        if not self._private and not all(is_public(str(address[0])) for *_, address in found):
            raise AddressRefusedError("ADDRESS_REFUSED")
        family, kind, protocol, _, address = found[0]
        self.sock = socket.socket(family, kind, protocol)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(address)
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)

    def abort(self) -> None:
        """End whatever waits on this connection."""
        if self.sock is not None:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def is_public(address: str) -> bool:
    """Whether an address is outside every private, loopback, link-local and otherwise special range."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64 or found.teredo is not None or (inner is not None and not is_public(str(inner))):
            return False
    return found.is_global and not found.is_multicast
