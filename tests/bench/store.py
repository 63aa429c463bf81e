"""What was observed of a large fleet, on disk: to be read by the process that is measured, at little cost in memory.

Nodes are pickled one by one, so that no two of them share a value: that is how the wire would give them, and the worst
case for memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.records import NodeRecord


@dataclass(frozen=True, slots=True)
class Truth:
    """One node: as observed when all is well, as observed now if that differs, and what the ledger keeps."""

    clean: Observed
    drifted: Observed | None
    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Stored:
    """`drifted`: those nodes alone that did. `head`: an observation without nodes."""

    head: Observation
    clean: dict[str, Observed]
    drifted: dict[str, Observed]
    records: dict[str, NodeRecord]

    def all_clean(self) -> Observation:
        return replace(self.head, nodes=self.clean)

    def some_drifted(self) -> Observation:
        return replace(self.head, nodes=self.clean | self.drifted)

    def all_behind(self) -> Observation:
        """As after the merge of a new image: every node runs the one before."""
        return replace(self.head, nodes={name: _behind(node) for name, node in self.clean.items()})


def save(path: Path, head: Observation, truths: Iterable[Truth]) -> None:
    with path.open("wb") as out:
        pickle.dump(replace(head, nodes={}), out)
        for truth in truths:
            out.write(pickle.dumps(truth))


def restore(path: Path) -> Stored:
    with path.open("rb") as file:
        stored = Stored(pickle.load(file), {}, {}, {})
        while True:
            try:
                truth: Truth = pickle.load(file)
            except EOFError:
                return stored
            name = truth.clean.node
            stored.clean[name], stored.records[name] = truth.clean, truth.record
            if truth.drifted is not None:
                stored.drifted[name] = truth.drifted


def _behind(node: Observed) -> Observed:
    assert isinstance(node.host, Answered)
    facts = node.host.value
    assert facts.image is not None
    old = replace(facts.image, version="2026.10.1", sha256="0" * 64)
    return replace(node, host=replace(node.host, value=replace(facts, image=old)))
