"""The demo runs to its end on the real base and adapters, and says what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demo_runs_to_its_end(adapters: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "registry.app", "demo", "--adapters", str(adapters), "--keep", str(tmp_path / "d")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for words in (
        "outcome  admitted",
        "support-bot@g3: support@1 (rollback, restores g1)",
        "live: support-bot@g3",
        "last hidden state: equal within 1e-05 relative",
        '"created":true',
        '"created":false',
        '"generation":4',
        "0 faults",
    ):
        assert words in done.stdout, words
    assert "areg_" not in done.stdout + done.stderr
