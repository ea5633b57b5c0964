"""What a script may give as a source."""

from __future__ import annotations

from pathlib import Path

from registry.client import EmbeddedRegistry
from registry.service.context import Context
from tests.support import tiny


def test_a_source_may_be_written_as_on_the_command_line(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    registry = EmbeddedRegistry(context)
    directory = tiny.write_adapter(tmp_path / "one", 1)
    assert registry.add_base(str(tiny_base), "tiny").ref == "tiny@1"
    written = registry.add_adapter(str(directory), "tiny", "one")
    assert registry.add_adapter(directory, "tiny", "one").digest == written.digest
