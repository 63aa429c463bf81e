"""Differences between two lists, mappings or sets, part by part and in words. DeepDiff finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType
from typing import Any, Final

from deepdiff import DeepDiff


class ChangeKind(StrEnum):
    """How a part of what was found differs from what is wanted. The order is that of reports."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class PartChange:
    """One part of a structure that differs.

    `name` is the way to the part, and of a list or a set the element itself. `wanted` and `found` are the values at a
    key of a mapping, None where it has no such key; for an element that moved, its places, counted from 1.
    """

    kind: ChangeKind
    name: str
    wanted: Any = None
    found: Any = None

    def __str__(self) -> str:
        match self.kind:
            case ChangeKind.MOVED:
                return f"{self.name} (place {self.found} instead of {self.wanted})"
            case ChangeKind.CHANGED:
                return f"{self.name} ({_text(self.found)} instead of {_text(self.wanted)})"
        value = self.wanted if self.found is None else self.found
        return self.name if value is None else f"{self.name} ({_text(value)})"


_PLAIN: Final = (str, int, float, NoneType)
_KINDS: Final[Mapping[str, ChangeKind]] = {
    "dictionary_item_added": ChangeKind.ADDED,
    "iterable_item_added": ChangeKind.ADDED,
    "set_item_added": ChangeKind.ADDED,
    "dictionary_item_removed": ChangeKind.REMOVED,
    "iterable_item_removed": ChangeKind.REMOVED,
    "set_item_removed": ChangeKind.REMOVED,
    "iterable_item_moved": ChangeKind.MOVED,
    "values_changed": ChangeKind.CHANGED,
    "type_changes": ChangeKind.CHANGED,
}


def changed_keys(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys whose values differ; each mapping must have the keys of the other."""
    # Most values are equal words and numbers, of which DeepDiff takes some 20 us each to say so.
    unsure = [key for key, value in wanted.items() if not _is_alike(value, found[key])]
    if not unsure:
        return frozenset()
    diff = DeepDiff({key: wanted[key] for key in unsure}, {key: found[key] for key in unsure})
    return frozenset(diff.affected_root_keys) if diff else frozenset()


def compare_structures(wanted: Any, found: Any) -> tuple[PartChange, ...]:
    """Return what differs between two lists, two mappings or two sets, parts within parts included.

    Elements of lists are matched by equality, so one that is elsewhere has moved. It has not moved where it only made
    room for others: where the elements that both lists have are in one order.
    """
    diff = DeepDiff(wanted, found, iterable_compare_func=_same, verbose_level=2, threshold_to_diff_deeper=0)
    changes = [change for name, levels in diff.tree.items() for level in levels for change in _change(name, level)]
    return tuple(sorted(changes, key=_rank))


def describe(changes: Iterable[PartChange]) -> str:
    """Return the changes as one line: `added: Usb; moved: Hdd (place 3 instead of 2)`."""
    parts: dict[ChangeKind, list[str]] = {}
    for change in changes:
        parts.setdefault(change.kind, []).append(str(change))
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in parts.items())


def _rank(change: PartChange) -> tuple[int, int, str]:
    """Order by kind, then by the place that an element has moved to, then by name: sets have no order of their own."""
    return list(ChangeKind).index(change.kind), change.found if change.kind is ChangeKind.MOVED else 0, change.name


def _is_alike(one: Any, other: Any) -> bool:
    """Return whether both are one plain value, or tuples of such; 1 and True are not, as for DeepDiff."""
    if one.__class__ is not other.__class__ or one != other:
        return False
    return isinstance(one, _PLAIN) or (isinstance(one, tuple) and all(map(_is_alike, one, other)))


def _same(one: Any, other: Any, _level: Any = None) -> bool:
    return bool(one == other)


def _change(report: str, level: Any) -> Iterator[PartChange]:
    """Translate one entry of DeepDiff's report, whose `t1` is what is wanted and `t2` what was found."""
    kind, outer = _KINDS[report], level.up
    if isinstance(outer.t1, Mapping):
        wanted = None if kind is ChangeKind.ADDED else level.t1
        found = None if kind is ChangeKind.REMOVED else level.t2
        yield PartChange(kind, _name(level), wanted, found)
        return
    if kind in (ChangeKind.ADDED, ChangeKind.CHANGED):
        yield PartChange(ChangeKind.ADDED, _name(outer, level.t2))
    if kind in (ChangeKind.REMOVED, ChangeKind.CHANGED):
        yield PartChange(ChangeKind.REMOVED, _name(outer, level.t1))
    if kind is ChangeKind.MOVED:
        before = [each for each in outer.t1 if each in outer.t2]
        after = [each for each in outer.t2 if each in outer.t1]
        if before.index(level.t1) != after.index(level.t1):
            places = outer.t1.index(level.t1) + 1, outer.t2.index(level.t1) + 1
            yield PartChange(ChangeKind.MOVED, _name(outer, level.t1), *places)


def _name(level: Any, *element: Any) -> str:
    return " ".join([str(step) for step in level.path(output_format="list")] + [_text(part) for part in element])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items()) or "none"
    if isinstance(value, list | tuple | Set):
        return ", ".join(map(_text, value)) or "none"
    return str(value)
