"""Use cases that load when they are called: a command wants one of fifty, and all of them take a second to load."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class Later(ModuleType):
    """Stands for a module of this name."""

    def __getattr__(self, name: str) -> object:
        """What the module holds; loads it."""
        return getattr(import_module(self.__name__), name)


def later(package: str, names: str) -> tuple[ModuleType, ...]:
    """Stand-ins for modules of a package, named in one text; type checkers are shown the import itself."""
    return tuple(Later(f"{package}.{name}") for name in names.split())
