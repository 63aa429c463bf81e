"""The observation of a large fleet on disk, for the measured process to read.

Every node is instantiated from a template, the pickle of a lab machine. No two nodes share a value object, as if each
had been read over the wire, and each has its own serials, MAC addresses, UUIDs, pods, times and measurements. Both are
the worst case for memory.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from reconciler.model.interning import Interning
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.records import Applied, NodeRecord

DIGITS = 6  # of a node's number in its name
AT_ONCE = 50  # nodes converged in one pass
OLD = {"image.version": "2026.10.1", "image.sha256": "0" * 64}


@dataclass(frozen=True, slots=True)
class Template:
    """Makes copies of a value. `words`, `numbers`: offsets of the bytes that differ between copies."""

    data: bytes
    words: tuple[int, ...]
    numbers: tuple[int, ...]  # low bytes of times and measurements

    @classmethod
    def of(cls, value: Any, other: Any, number: int) -> Template:
        """Make a template of `value` of machine `number`. Values shared with another machine's `other` are constant."""
        data = pickle.dumps(_unshared(value))
        tag = f"{number:0{DIGITS}d}"
        words, numbers = [], list[int]()
        own, common = set(_leaves(value)), set(_leaves(other))
        for leaf in own - {leaf for leaf in common if not isinstance(leaf, datetime)}:
            if isinstance(leaf, str) and len(leaf) >= DIGITS:
                begin = leaf.find(tag) if tag in leaf else len(leaf) - DIGITS
                words += [at + 2 + begin for at in _found(b"\x8c" + bytes([len(leaf)]) + leaf.encode(), data)]
            elif isinstance(leaf, float):
                numbers += [at + 7 for at in _found(b"G" + struct.pack(">d", leaf), data)]
            elif isinstance(leaf, datetime):
                state: Any = leaf.__reduce__()[1][0]
                numbers += [at + 10 for at in _found(b"C" + bytes([len(state)]) + state, data)]
        return cls(data, tuple(sorted(set(words))), tuple(sorted(set(numbers))))

    def instantiate(self, number: int) -> Any:
        data = bytearray(self.data)
        tag, low = b"%0*d" % (DIGITS, number), (number & 0xFFFF).to_bytes(2, "big")
        for at in self.words:
            data[at : at + DIGITS] = tag
        for at in self.numbers:
            data[at : at + 2] = low
        return pickle.loads(data)


def _unshared(value: Any) -> Any:
    """Return a copy in which each string is a separate object, as after reading it."""
    if isinstance(value, str) and type(value) is str:
        return "".join(list(value))
    if isinstance(value, tuple | list):
        return type(value)(map(_unshared, value))
    if isinstance(value, Mapping):
        return {_unshared(key): _unshared(entry) for key, entry in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _unshared(getattr(value, each.name)) for each in fields(value)})
    return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for entry in value:
            yield from _leaves(entry)
    elif isinstance(value, Mapping):
        yield from _leaves((*value.keys(), *value.values()))
    elif is_dataclass(value):
        for each in fields(value):
            yield from _leaves(getattr(value, each.name))
    else:
        yield value


def _found(pattern: bytes, data: bytes) -> Iterator[int]:
    return (match.start() for match in re.finditer(re.escape(pattern), data))


@dataclass(frozen=True, slots=True)
class PersonaTemplates:
    """The templates of one persona: a clean node, one node per drift kind, and the ledger's record.

    `applied` belongs to the record, and is the same for all nodes converged in one pass.
    """

    clean: Template
    drifted: tuple[Template, ...]
    record: Template
    applied: Mapping[str, Applied]

    def unread(self) -> PersonaTemplates:
        """Return the same with a clean node of which only the cluster is known."""
        number = 10 ** (DIGITS - 1)
        nodes = (self.clean.instantiate(at) for at in (number, number + 1))
        one, other = (replace(node, hot=node.member, inventory=node.member, host=node.member) for node in nodes)
        return replace(self, clean=Template.of(one, other, number))


@dataclass(frozen=True, slots=True)
class FleetTemplate:
    """A fleet. `head`: an observation without nodes; `personas`: one per node; each `every`th node has drifted."""

    head: Observation
    templates: Mapping[str, PersonaTemplates]
    personas: tuple[str, ...]
    every: int

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self))


@dataclass(slots=True)
class Stored:
    """The restored fleet. `drifted`: only nodes with drift. `head`: an observation without nodes."""

    head: Observation
    clean: dict[str, Observed]
    drifted: dict[str, Observed]
    records: dict[str, NodeRecord]

    def all_clean(self) -> Observation:
        return replace(self.head, nodes=self.clean)

    def some_drifted(self) -> Observation:
        return replace(self.head, nodes=self.clean | self.drifted)

    def read_again(self, passes: int) -> Observation:
        """Return the observation of a later pass in which every node answers as before, but for its clocks."""
        later = timedelta(minutes=passes + 1)
        return replace(self.head, nodes={name: read_again(node, later) for name, node in self.clean.items()})

    def all_behind(self) -> Observation:
        """Return the observation after the merge of a new image: every node still runs the old one.

        It replaces the stored nodes and records.
        """
        older: dict[
            int, tuple[Mapping[str, Applied], Mapping[str, Applied]]
        ] = {}  # id of the applied values -> (they, their older copy)
        for name, node in self.clean.items():
            self.clean[name] = behind(node)
            applied = self.records[name].applied
            if id(applied) not in older:
                old = {path: replace(applied[path], value=value) for path, value in OLD.items()}
                older[id(applied)] = (applied, {**applied, **old})
            self.records[name] = replace(self.records[name], applied=older[id(applied)][1])
        self.drifted.clear()
        return self.all_clean()


def restore(path: Path, *, unread: bool = False) -> Stored:
    """Restore a fleet. Equal parts are shared, as by commands that read nodes and ledger.

    `unread`: of clean nodes only what the cluster says, as to a leader whose workers have not read yet.
    """
    truth: FleetTemplate = pickle.loads(path.read_bytes())
    if unread:
        truth = replace(truth, templates={persona: one.unread() for persona, one in truth.templates.items()})
    stored = Stored(truth.head, {}, {}, {})
    nodes, records = Interning(), Interning()
    passes: dict[tuple[str, int], Mapping[str, Applied]] = {}
    for at, persona in enumerate(truth.personas):
        templates = truth.templates[persona]
        clean: Observed = nodes(templates.clean.instantiate(at))
        key = (persona, at // AT_ONCE)
        if key not in passes:
            after = timedelta(seconds=at // AT_ONCE)
            passes[key] = {path: replace(row, at=row.at + after) for path, row in templates.applied.items()}
        record: NodeRecord = replace(records(templates.record.instantiate(at)), applied=passes[key])
        stored.clean[clean.node], stored.records[clean.node] = clean, record
        if at % truth.every == truth.every // 2:
            way = at // truth.every % len(templates.drifted)
            stored.drifted[clean.node] = nodes(templates.drifted[way].instantiate(at))
    return stored


def restore_some(path: Path, names: Collection[str]) -> dict[str, Observed]:
    """Restore clean nodes of a fleet by name, without the others."""
    truth = _loaded(path)
    numbers = (int(name[-DIGITS:]) for name in names)
    found = (truth.templates[truth.personas[number]].clean.instantiate(number) for number in numbers)
    return {node.node: node for node in found}


@cache
def _loaded(path: Path) -> FleetTemplate:
    found: FleetTemplate = pickle.loads(path.read_bytes())
    return found


def read_again(node: Observed, later: timedelta) -> Observed:
    """Return what a node that is as it was answers later."""
    assert isinstance(node.host, Answered)
    facts = replace(node.host.value, uptime_s=(node.host.value.uptime_s or 0.0) + later.total_seconds())
    hot, member = replace(node.hot, at=node.hot.at + later), replace(node.member, at=node.member.at + later)
    return replace(node, hot=hot, host=Answered(node.host.at + later, facts), member=member)


def behind(node: Observed) -> Observed:
    assert isinstance(node.host, Answered)
    facts = node.host.value
    assert facts.image is not None
    old = replace(facts.image, version=OLD["image.version"], sha256=OLD["image.sha256"])
    return replace(node, host=replace(node.host, value=replace(facts, image=old)))
