"""What was worked out for the same input before: adapters of one kind share header, config and base."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
FEW: Final = 8


class Remembered(Generic[K, V]):
    """The last few results by their whole input. They are shared: nobody may change one."""

    def __init__(self, most: int = FEW) -> None:
        self._most = most
        self._found: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The result for this input, if it is among the last."""
        return self._found.get(key)

    def put(self, key: K, value: V) -> V:
        """Remember a result and give it back; the oldest makes room."""
        found = dict(list(self._found.items())[1 - self._most :]) if len(self._found) >= self._most else self._found
        # threads that meet here may forget each other's result, never mix them up
        self._found = {**found, key: value}
        return value
