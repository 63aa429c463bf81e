"""What was read of the ledger, for as long as nothing that it came from has changed.

A look at a node asks for its record, the holds and the rollouts, again and again, and mostly nobody has written
anything meanwhile. Whether somebody has is one cheap question to the database, put before anything kept is used: SQLite
counts the commits of other connections (`PRAGMA data_version`), and PostgreSQL's snapshots say which transactions have
ended. So nothing is ever trusted that another process, or a person with a database shell, may have changed.

What this process writes over the same connection is not among the commits of others. Its writer says what it changes
(`forget`), and only that is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from reconciler.model.records import NodeRecord

FAR = 1000  # transactions; more of them between two looks are taken for somebody else's, unread


@dataclass(frozen=True, slots=True)
class Commits:
    """SQLite: how often others have committed, as this connection sees it."""

    count: int

    def ended_since(self, earlier: object) -> frozenset[int] | None:
        return frozenset() if self == earlier else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """PostgreSQL: transactions from `end` on, and those `running`, are not seen. All others are, for what they did."""

    end: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Snapshot:
        _, end, running = text.split(":")
        return cls(int(end), frozenset(map(int, filter(None, running.split(",")))))

    def ended_since(self, earlier: object) -> frozenset[int] | None:
        if not isinstance(earlier, Snapshot) or not 0 <= self.end - earlier.end <= FAR:
            return None
        return earlier.running.union(range(earlier.end, self.end)) - self.running


Stamp = Commits | Snapshot


@dataclass(slots=True)
class Memory:
    """Of one connection. `stale`: tables that a node's record is to be read from anew. `lists`: by table."""

    stamp: Stamp | None = None
    own: set[int] = field(default_factory=set)  # transactions of this connection since `stamp`
    records: dict[str, NodeRecord] = field(default_factory=dict)
    stale: dict[str, set[str]] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)

    def turn_to(self, stamp: Stamp) -> None:
        """Keep what is as it was, now that the database is at `stamp`."""
        ended = stamp.ended_since(self.stamp)
        if ended is None or not ended <= self.own:
            self.forget(None)
        self.stamp = stamp
        self.own.clear()

    def forget(self, tables: Iterable[sa.Table] | None, nodes: Sequence[str] = ()) -> None:
        """What is written to these tables about these nodes. None: anything may be."""
        if tables is None:
            self.records.clear()
            self.stale.clear()
            self.lists.clear()
            return
        for table in tables:
            self.lists.pop(table.name, None)
            for node in nodes:
                if node in self.records:
                    self.stale.setdefault(node, set()).add(table.name)

    def record(self, node: str) -> NodeRecord | None:
        """None: it is to be read, all of it or in part."""
        return None if node in self.stale else self.records.get(node)

    def keep(self, node: str, record: NodeRecord) -> None:
        self.records[node] = record
        self.stale.pop(node, None)
