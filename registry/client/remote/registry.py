"""A registry behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from registry.client.remote.administering import Administering
from registry.client.remote.changing import Changing
from registry.client.remote.handing import HandingOut
from registry.client.remote.http import Http, Patience, opened
from registry.client.remote.jobs import Jobs
from registry.client.remote.looking import Looking
from registry.client.remote.registering import Registering
from registry.client.remote.saying import Saying
from registry.client.remote.states import States
from registry.settings import Settings


@dataclass(frozen=True)
class RemoteRegistry(Registering, Looking, Changing, Saying, States, HandingOut, Jobs, Administering):
    """The registry's use cases, by way of a server.

    Files are read, and directories written, on this machine; everything else happens there.

    ```python
    with RemoteRegistry.open(Settings(url="https://registry.example.org", token="areg_…")) as registry:
        registry.add_adapter(Path("out"), base="minilm", name="qa")
    ```
    """

    http: Http

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, patience: Patience | None = None) -> Iterator[Self]:
        """Speak to the server that the settings name; it is not asked for anything yet.

        Raises:
            UsageProblemError: `URL_INVALID`, `TOKEN_UNUSABLE`.
        """
        with opened(settings) as client:
            yield cls(Http(client, patience or Patience()))
