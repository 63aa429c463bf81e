"""Values that many nodes have in common, which the page holds once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Interned(Generic[T]):
    """A table of different values. `at` returns the index of a value, and adds it when it is new."""

    def __init__(self) -> None:
        self._places: dict[T, int] = {}

    def at(self, value: T) -> int:
        return self._places.setdefault(value, len(self._places))

    @property
    def all(self) -> list[T]:
        return list(self._places)
