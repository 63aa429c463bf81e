"""Equal parts of many values become one object.

Machines report the same texts a hundred thousand times over, each as an object of its own: 40 KiB a node, three
quarters of it copies. Sharing them where they are read makes them fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, TypeVar

T = TypeVar("T")

_PLACES: Final = 1 << 16
_PLAIN: Final = frozenset({str, int})
_LEAVES: Final = frozenset({*_PLAIN, float, datetime})  # 0.0 and -0.0 are equal and not the same; so are instants


class Interning:
    """A function that returns an equal value which shares its parts with earlier ones.

    Parts are kept in a table of fixed size, where a new part replaces an old one: most are a machine's own and never
    come again. A part that was replaced is shared again from its next occurrence on.
    """

    def __init__(self) -> None:
        self._seen: list[Any] = [None] * _PLACES
        self._readers: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
        self._atoms: set[type] = set()  # of which there is one object each anyway: None, bool, enumerations

    def __call__(self, value: T) -> T:
        shared: T = self._each((value,))[0]
        return shared

    def _each(self, values: Iterable[Any]) -> list[Any]:
        found = []
        for value in values:
            kind = value.__class__
            if kind in self._atoms:
                found.append(value)
            elif kind not in _LEAVES:
                found.append(self._compound(kind, value))
            else:
                place = hash(value) % _PLACES
                seen = self._seen[place]
                if seen.__class__ is kind and seen == value and (kind in _PLAIN or repr(seen) == repr(value)):
                    found.append(seen)
                else:
                    self._seen[place] = value
                    found.append(value)
        return found

    def _compound(self, kind: Any, value: Any) -> Any:
        if kind is dict:
            parts = (*self._each(value), *self._each(value.values()))
        elif kind is tuple or kind is list:
            parts = tuple(self._each(value))
        elif kind in self._readers or self._learn(kind):
            parts = tuple(self._each(self._readers[kind](value)))
        else:
            return value
        # By identity: True and 1 are equal and not the same. What is kept holds its parts, so that ids stay valid.
        key = (kind, *map(id, parts))
        place = hash(key) % _PLACES
        seen = self._seen[place]
        if seen.__class__ is tuple and seen[0] == key:
            return seen[1]
        if kind is dict:
            half = len(parts) // 2
            whole: Any = dict(zip(parts[:half], parts[half:], strict=True))
        else:
            whole = parts if kind is tuple else list(parts) if kind is list else kind(*parts)
        self._seen[place] = (key, whole)
        return whole

    def _learn(self, kind: Any) -> bool:
        """Return whether values of this class have parts, as a dataclass has."""
        names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
        if not names:
            self._atoms.add(kind)
            return False
        read = attrgetter(*names)
        self._readers[kind] = read if len(names) > 1 else lambda value: (read(value),)
        return True


_all = Interning()


def share(value: T) -> T:
    """Share through one table of the whole process. Threads do no harm: each place is read and written at once."""
    return _all(value)
