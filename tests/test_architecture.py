"""Rules of the house that no import contract can say."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from registry.api.problems import HTTP_STATUS
from registry.cli.exits import EXIT_CODES
from registry.errors import ProblemError

ROOT = Path(__file__).parent.parent
ROOMS = ("schemas", "validators", "compose", "oracles", "registry", "migrations")


def sources() -> list[Path]:
    """Every module of the product."""
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def error_classes() -> set[type[ProblemError]]:
    """Every error class of every room but compose, whose own derive from classes that have rows."""
    for room in ("schemas", "validators", "oracles", "compose"):
        for module in walk_packages(import_module(room).__path__, f"{room}."):
            if module.name.endswith("errors"):
                import_module(module.name)
    found: set[type[ProblemError]] = set()
    waiting = list(ProblemError.__subclasses__())
    while waiting:
        kind = waiting.pop()
        found.add(kind)
        waiting.extend(kind.__subclasses__())
    return found


def test_every_error_class_has_an_exit_code_and_a_status() -> None:
    for kind in error_classes():
        assert any(parent in EXIT_CODES for parent in kind.__mro__), kind
        assert any(parent in HTTP_STATUS for parent in kind.__mro__), kind


def test_the_two_tables_speak_of_the_same_classes() -> None:
    assert set(EXIT_CODES) == set(HTTP_STATUS)


def test_one_file_commits() -> None:
    calls = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    }
    assert len(calls) == 1
    assert calls.pop().startswith("registry/db/")


@pytest.mark.parametrize(
    "module", ["registry.api.app", "registry.cli.main", "registry.app", "schemas.manifests", "validators", "oracles"]
)
def test_torch_stays_out_until_something_is_composed(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_no_module_unpickles() -> None:
    for path in sources():
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not names & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in sources() if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None]
    assert silent == []
