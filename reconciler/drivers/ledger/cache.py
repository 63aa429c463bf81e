"""Cache what was read from the ledger, until anything that it came from changes.

Work on a node asks for its record, the holds and the rollouts again and again, and mostly nobody has written anything
meanwhile. One cheap question to the database tells whether somebody has, and is asked before anything cached is used:
SQLite counts the commits of other connections (`PRAGMA data_version`), and PostgreSQL's snapshots tell which
transactions have ended, of all databases of the server; triggers list what each of them wrote to what is cached here,
and about which nodes (`changes`). So no value is used that another process, or a person with a database shell, may have
changed, and a hold of one node, or the work on another fleet, does not make a leader read all of its nodes again.

Commits of this process over the same connection are not counted among those of others. Each write therefore names the
tables and nodes that it changes (`invalidate`), and only these are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger.changes import ANY
from reconciler.model.records import NodeRecord

T = TypeVar("T")
MAX_TRANSACTIONS = 50_000  # between two reads; more of them are taken for writers. Triggers list twice as many


@dataclass(frozen=True, slots=True)
class CommitCount:
    """SQLite: how often other connections have committed, as this connection sees it."""

    count: int

    def ended_since(self, earlier: object) -> frozenset[int] | None:
        """Return the transactions that ended since `earlier`; None when the database doesn't tell which."""
        return frozenset() if self == earlier else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """PostgreSQL: every transaction before `end` is seen, except those `running`."""

    end: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """Parse `pg_current_snapshot()::text`, which is xmin:xmax:running,..."""
        _, end, running = text.split(":")
        return cls(int(end), frozenset(map(int, filter(None, running.split(",")))))

    def ended_since(self, earlier: object) -> frozenset[int] | None:
        """Return the transactions that ended since `earlier`; None when there are too many to tell."""
        if not isinstance(earlier, Snapshot) or not 0 <= self.end - earlier.end <= MAX_TRANSACTIONS:
            return None
        ended = earlier.running.union(range(earlier.end, self.end)) - self.running
        # What began long ago may be on the list of writers no more.
        return ended if min(ended, default=self.end) >= self.end - MAX_TRANSACTIONS else None


Version = CommitCount | Snapshot


@dataclass(slots=True)
class Rows(Generic[T]):
    """The cached contents of a whole table, by node. `again`: the nodes whose rows have to be read again."""

    by_node: dict[str, T]
    again: set[str] = field(default_factory=set)

    def renew(self, found: dict[str, T]) -> None:
        """Take what was read of the nodes in `again`, or of all."""
        for node in self.again:
            self.by_node.pop(node, None)
        self.by_node.update(found)
        self.again.clear()


@dataclass(slots=True)
class Cache:
    """The cache of one connection. `stale`: by node, the tables to read again. `tables`: whole tables, by name."""

    version: Version | None = None
    own: set[int] = field(default_factory=set)  # transactions of this connection since `version`
    records: dict[str, NodeRecord] = field(default_factory=dict)
    stale: dict[str, set[str]] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    def advance_to(self, version: Version, changes_by: Callable[[frozenset[int]], Iterable[tuple[str, str]]]) -> None:
        """Drop what anybody else has changed since the version that the cache was read at.

        `changes_by`: returns what these transactions wrote to what is cached: (table, node); of a table ANY: anything.
        """
        ended = version.ended_since(self.version)
        others = None if ended is None else ended - self.own
        if others is None:
            self.invalidate(None)
        for table, node in changes_by(others) if others else ():
            if table == ANY:
                self.invalidate(None)
                break
            self._drop(table, [node])
        self.version = version
        self.own.clear()

    def invalidate(self, tables: Iterable[sa.Table] | None, nodes: Sequence[str] = ()) -> None:
        """Drop what is read from these tables about these nodes. None: all tables and nodes."""
        if tables is None:
            self.records.clear()
            self.stale.clear()
            self.tables.clear()
            return
        for table in tables:
            self._drop(table.name, nodes)

    def _drop(self, table: str, nodes: Sequence[str]) -> None:
        held = self.tables.get(table)
        if nodes and isinstance(held, Rows):
            held.again.update(nodes)
        else:
            self.tables.pop(table, None)
        for node in nodes:
            if node in self.records:
                self.stale.setdefault(node, set()).add(table)

    def record(self, node: str) -> NodeRecord | None:
        """Return the cached record; None when all or part of it has to be read."""
        return None if node in self.stale else self.records.get(node)

    def put(self, node: str, record: NodeRecord) -> None:
        self.records[node] = record
        self.stale.pop(node, None)
