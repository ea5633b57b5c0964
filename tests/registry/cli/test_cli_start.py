"""What a command loads: a start that takes a second is one that leaves most of the program where it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys
from registry.app import main
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, *sys.modules]), file=sys.stderr)
"""
NEVER = {
    "torch",
    "alembic",
    "numpy",
    "httpx2",
    "fastapi",
    "dbos",
    "oracles",
    "registry.formats",
    "registry.service.admit",
}


def loaded(home: Path, *arguments: str) -> set[str]:
    """The modules that a process has loaded when its command has ended."""
    command = [sys.executable, "-c", PROGRAM, "--home", str(home), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    code, *modules = json.loads(ended.stderr)
    assert code == 0
    return set(modules)


def test_a_list_loads_the_database_and_neither_formats_nor_http(tmp_path: Path, sqlite_template: Path) -> None:
    shutil.copyfile(sqlite_template, tmp_path / "registry.db")
    modules = loaded(tmp_path, "ls")
    assert "registry.service.look" in modules
    assert not modules & NEVER


def test_a_version_loads_no_database(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "--version") & {*NEVER, "sqlalchemy", "registry.client", "validators"}
