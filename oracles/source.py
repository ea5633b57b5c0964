"""The program of an oracle: its module and every module of this room it imports, as source bytes."""

import ast
from importlib.util import find_spec
from pathlib import Path

ROOM = "oracles"


def source_bytes(module: str) -> bytes:
    """The source text of one module of this room."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).read_bytes()


def _imported(module: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source_bytes(module))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == ROOM)
    return {name for name in names if name == ROOM or name.startswith(f"{ROOM}.")}


def program_modules(module: str) -> tuple[str, ...]:
    """The closure of imports inside this room, starting at the oracle and at the report it ends in."""
    found: set[str] = set()
    waiting = {module, f"{ROOM}.report"}
    while waiting:
        current = waiting.pop()
        found.add(current)
        waiting |= _imported(current) - found
    return tuple(sorted(found))
