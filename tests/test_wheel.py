"""The wheel works where the sources are not: it holds every room, the migrations and their data."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

from tests.support import tiny

ROOT = Path(__file__).parent.parent


def test_the_wheel_registers_in_a_fresh_environment(tmp_path: Path) -> None:
    clone = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(clone)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = ZipFile(wheel).namelist()
    assert any(name.startswith("migrations/versions/") for name in names)
    assert not any(name.startswith(("tests/", "docs/")) for name in names)

    python = _fresh_environment(tmp_path / "env", wheel)
    work = tmp_path / "elsewhere"
    work.mkdir()
    environment = {**os.environ, "REGISTRY_HOME": str(work / "home")}
    environment.pop("PYTHONPATH", None)

    def registry(*arguments: str | Path) -> str:
        command = [str(python.with_name("registry")), *map(str, arguments)]
        return subprocess.run(command, cwd=work, env=environment, check=True, capture_output=True, text=True).stdout

    registry("init")
    registry("add", "base", tiny.write_base(work / "base"), "--name", "tiny")
    added = registry("add", "adapter", tiny.write_adapter(work / "one"), "--base", "tiny", "--name", "one")
    assert "one@1" in added
    assert "adapter" in registry("ls", "adapters", "-o", "json")


def _fresh_environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel; its dependencies come from the running one, so that nothing is downloaded."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for path in _dependencies():
        if not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    return python


def _dependencies() -> list[Path]:
    """Everything installed here but the product itself (an editable install is a pointer to the sources)."""
    site = next(Path(item) for item in sys.path if item.endswith("site-packages"))
    return [path for path in site.iterdir() if "adapter_registry" not in path.name and "editable" not in path.name]
