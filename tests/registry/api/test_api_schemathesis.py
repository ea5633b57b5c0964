"""A real server held to its own description: every operation, with data that fits and data that does not.

Nothing it answers may be a fault, an undocumented status, or a body, header or content type other than described.
Whether content that fits the description is accepted is not asked: most of it names nothing that is registered.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from registry.client import EmbeddedRegistry
from registry.service.grants import PERMISSIONS
from registry.settings import Settings
from registry.wiring import initialise
from tests.support import tiny
from tests.support.served import Served, serving

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
LOSES_ITS_TOKEN: Final = ("--exclude-operation-id", "delete_token")
"""Following what it was answered, it would revoke the token that it sends."""


@dataclass(frozen=True)
class Described:
    """A server and the token that allows everything on it."""

    server: Served
    token: str
    folder: Path

    def hold(self, *options: str) -> None:
        """Run the checks; its report is shown when one fails."""
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", self.server.url),
            *("--header", f"Authorization: Bearer {self.token}", "--checks", ",".join(CHECKS)),
            *("--seed", "20", "--continue-on-failure", "--no-color", "--warnings", "off"),
            # a refusal that is answered before its body was read may be lost when the connection closes
            *("--request-timeout", "60", "--request-retries", "2"),
            *options,
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
        faults = [event for event in self.server.events() if event.get("status", 0) >= 500]
        assert faults == []


@pytest.fixture
def described(tmp_path: Path) -> Iterator[Described]:
    """A server over a base, three adapters and a channel."""
    settings = Settings(home=tmp_path / "home")
    initialise(settings)
    with EmbeddedRegistry.open(settings) as registry:
        registry.add_base(tiny.write_base(tmp_path / "base"), "minilm", store=True)
        for seed, name in enumerate(("support-bot", "qa", "tone"), 1):
            registry.add_adapter(tiny.write_adapter(tmp_path / name, seed), "minilm", name)
        registry.publish("bot", ["qa"])
        registry.publish("bot", ["tone"])
        token = registry.create_token("caller", PERMISSIONS).secret
    with serving(tmp_path, {"REGISTRY_HOME": str(tmp_path / "home"), "REGISTRY_WORKERS": "1"}) as server:
        (tmp_path / "openapi.json").write_bytes(server.ask("GET", "/openapi.json").body)
        yield Described(server, token, tmp_path)


def test_a_sample_of_requests_is_answered_as_described(described: Described) -> None:
    described.hold("--phases", "examples,fuzzing", "--max-examples", "1", "--no-shrink")
    described.hold("--phases", "stateful", "--max-examples", "2", "--no-shrink", *LOSES_ITS_TOKEN)


@pytest.mark.long
def test_whatever_is_asked_is_answered_as_described(described: Described) -> None:
    described.hold("--phases", "examples,coverage,fuzzing", "--max-examples", "100")
    described.hold("--phases", "stateful", "--max-examples", "300", *LOSES_ITS_TOKEN)
