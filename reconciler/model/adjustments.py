"""Adjustments: values in objects of others that are set while a node is out, such as replicas and stopped queues.

The value and the record of who set it are one write on the object itself, so that whoever goes on after a crash knows
what was done, and does it once. Several nodes may need the same object: each takes back its own share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from reconciler.model.json_text import parse_json

SURGE: Final = "reconciler.dev/surge"  # of a pod: "true", it is surged before it is evicted; "false", it never is
RECORD: Final = "reconciler.dev/adjusted"  # of the object that is changed: an AdjustmentRecord
QUEUE: Final = "ClusterQueue"
RUNS: Final = "None"  # stopPolicy of a ClusterQueue that admits
# Controllers that number their pods take the highest number away first, which is the one that was added. So what was
# evicted has to be back before they are lowered; and a queue is held until the node may take work again.
_UNTIL_ADMITTED: Final = frozenset({"LeaderWorkerSet", "StatefulSet", QUEUE})

Value = int | str | None


@dataclass(frozen=True, slots=True, order=True)
class AdjustedRef:
    """An object whose value is changed. `part`: of an InferenceService, the component whose pods they are."""

    kind: str
    namespace: str  # "" = of the whole cluster
    name: str
    part: str = ""

    def __str__(self) -> str:
        place = "/".join(filter(None, (self.namespace, self.name)))
        return " ".join(filter(None, (self.kind, place, self.part)))

    @property
    def key(self) -> str:
        return "/".join((self.kind, self.namespace, self.name, self.part))

    @property
    def until_admitted(self) -> bool:
        """Return whether it is taken back when the node is admitted; others as soon as the node is drained."""
        return self.kind in _UNTIL_ADMITTED


GONE: Final = AdjustedRef("", "", "")  # in place of what sets the number of a pod that is not there any more


def parse_ref(key: str) -> AdjustedRef | None:
    parts = key.split("/")
    return AdjustedRef(*parts) if len(parts) == 4 and parts[0] and parts[2] else None


def passing(keys: Iterable[str]) -> tuple[str, ...]:
    """Return those keys whose objects are taken back as soon as the node is drained."""
    refs = {key: parse_ref(key) for key in keys}
    return tuple(key for key, ref in refs.items() if ref is None or not ref.until_admitted)


@dataclass(frozen=True, slots=True)
class AdjustmentRecord:
    """`was`: the value before the first node; `now`: as we set it last; `by`: node -> its share (1 for a queue)."""

    ledger: str
    was: Value
    now: Value
    by: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Adjusted:
    """An object as read. `value`: of the field that is changed; `wanted`: replicas that its controller keeps now.

    `most`: the largest value that it takes. `keeper`: who would set the field back; "" = nobody that shows.
    """

    ref: AdjustedRef
    resource_version: str
    value: Value
    wanted: int = 0
    ready: int = 0
    most: int | None = None
    keeper: str = ""
    record: AdjustmentRecord | None = None

    def is_up(self, unready: int = 0) -> bool:
        """Return whether as many replicas as were asked for are wanted and ready, but for so many that are to leave."""
        asked = self.record.now if self.record is not None else 0
        return isinstance(asked, int) and self.wanted >= asked and self.ready >= self.wanted - unready

    @property
    def is_set_back(self) -> bool:
        """Return whether somebody has lowered what we raised, or let a queue go that we hold."""
        if self.record is None:
            return False
        now = self.record.now
        if isinstance(now, int):
            return not isinstance(self.value, int) or self.value < now
        return self.value in (None, RUNS)


def adjusted(found: Adjusted, node: str, ledger: str, by: int, value: str = "") -> AdjustmentRecord:
    """Return the record with this node's share: `by` more replicas, or the `value` of a queue.

    Where somebody has changed the value since, what other nodes added is no longer in it.
    """
    before, current = found.record, max(found.wanted, found.value if isinstance(found.value, int) else 0)
    shares = {} if before is None else dict(before.by)
    untouched = before is not None and before.now == found.value
    was = before.was if before is not None and untouched else found.value
    if not untouched:
        shares = dict.fromkeys(shares, 0)
    now: Value = value or current + by  # beyond what an autoscaler wants by now, or nothing would be raised
    return AdjustmentRecord(ledger, was, now, {**shares, node: by})


def taken_back(found: Adjusted, node: str) -> tuple[Value, AdjustmentRecord | None]:
    """Return the value and the record without this node's share. A value that somebody else set stays."""
    record = found.record
    assert record is not None
    rest = {name: share for name, share in record.by.items() if name != node}
    if record.now != found.value:
        return found.value, replace(record, by=rest) if rest else None
    if not rest:
        return record.was, None
    now = record.now - record.by[node] if isinstance(record.now, int) else record.now
    return now, replace(record, now=now, by=rest)


def write_record(record: AdjustmentRecord) -> str:
    """The annotation's text."""
    said = {"ledger": record.ledger, "was": record.was, "now": record.now, "by": dict(record.by)}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def read_record(annotation: str | None) -> AdjustmentRecord | None:
    """The record in an annotation. One that can't be read is somebody else's: its ledger is then "?"."""
    if annotation is None:
        return None
    try:
        found = parse_json(annotation)
        record = AdjustmentRecord(found["ledger"], found["was"], found["now"], dict(found["by"]))
    except (ValueError, KeyError, TypeError):
        return AdjustmentRecord("?", None, None, {})
    shares = all(isinstance(name, str) and type(share) is int for name, share in record.by.items())
    values = all(value is None or type(value) in (int, str) for value in (record.was, record.now))
    return record if isinstance(record.ledger, str) and shares and values else AdjustmentRecord("?", None, None, {})
