"""Build the JSON patches (RFC 6902) of writes on a node object from the member as it was read. Pure.

The first operation sets the member's resourceVersion: a server whose object has changed then answers 409, where a
`test` operation would give a 422 that kubectl can't tell from a bad request. This also makes positions of taints valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.model.observed import Member, Taint
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, write_mark

OUR_TAINT = Taint(MARK_TAINT, "", "NoSchedule")

Operation = dict[str, Any]


def mark(member: Member, mark: Mark) -> list[Operation]:
    """Build a mark. With `mark.cordoned` the cordon is ours: it is set here, and lifted by unmark.

    A member that somebody else cordoned is marked with cordoned=False, and its `unschedulable` is not touched.
    """
    changes = _set_taints(member, [] if _ours(member) else [OUR_TAINT])
    changes += _set_entries(member, "annotations", {OWNER_ANNOTATION: write_mark(mark)})
    if mark.cordoned and not member.unschedulable:
        changes.append(_op("add", "/spec/unschedulable", True))
    return _guarded(member, changes)


def unmark(member: Member, *, uncordon: bool) -> list[Operation]:
    changes: list[Operation] = []
    if len(_ours(member)) == len(member.taints) > 0:
        changes.append(_op("remove", "/spec/taints"))
    else:
        changes += [_op("remove", f"/spec/taints/{position}") for position in reversed(_ours(member))]
    if OWNER_ANNOTATION in member.annotations:
        only = len(member.annotations) == 1
        changes.append(_op("remove", "/metadata/annotations" if only else _entry("annotations", OWNER_ANNOTATION)))
    if uncordon and member.unschedulable:
        changes.append(_op("remove", "/spec/unschedulable"))
    return _guarded(member, changes)


def set_labels(member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> list[Operation]:
    missing = {key: value for key, value in labels.items() if member.labels.get(key) != value}
    changes = _set_entries(member, "labels", missing) + _set_taints(member, taints)
    return _guarded(member, changes)


def _guarded(member: Member, changes: list[Operation]) -> list[Operation]:
    """Prepend the resourceVersion; without changes return no operations."""
    if not changes:
        return []
    return [_op("replace", "/metadata/resourceVersion", member.resource_version), *changes]


def _ours(member: Member) -> list[int]:
    return [
        position
        for position, taint in enumerate(member.taints)
        if (taint.key, taint.effect) == (OUR_TAINT.key, OUR_TAINT.effect)
    ]


def _set_taints(member: Member, taints: Sequence[Taint]) -> list[Operation]:
    """Set taints, which key and effect identify. One with another value is replaced at its position."""
    at = {(taint.key, taint.effect): position for position, taint in enumerate(member.taints)}
    changes, new = [], []
    for taint in dict.fromkeys(taints):
        position = at.get((taint.key, taint.effect))
        if position is None:
            new.append(_taint(taint))
        elif member.taints[position].value != taint.value:
            changes.append(_op("replace", f"/spec/taints/{position}", _taint(taint)))
    if new and not member.taints:
        return [_op("add", "/spec/taints", new)]
    return changes + [_op("add", "/spec/taints/-", taint) for taint in new]


def _set_entries(member: Member, field: str, entries: Mapping[str, str]) -> list[Operation]:
    if not entries:
        return []
    present = member.labels if field == "labels" else member.annotations
    if not present:
        return [_op("add", f"/metadata/{field}", dict(entries))]
    return [_op("add", _entry(field, key), value) for key, value in sorted(entries.items())]


def _entry(field: str, key: str) -> str:
    return f"/metadata/{field}/" + key.replace("~", "~0").replace("/", "~1")


def _taint(taint: Taint) -> dict[str, str]:
    """Encode a taint as the API server does: without an empty value."""
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


def _op(op: str, path: str, *value: Any) -> Operation:
    return {"op": op, "path": path} | ({"value": value[0]} if value else {})
