"""Cache what was read from the ledger, until anything that it came from changes.

Work on a node asks for its record, the holds and the rollouts again and again, and mostly nobody has written anything
meanwhile. One cheap question to the database tells whether somebody has, and is asked before anything cached is used:
SQLite counts the commits of other connections (`PRAGMA data_version`), and PostgreSQL's snapshots tell which
transactions have ended, of all databases of the server; those that wrote to what is cached here are listed by triggers
(`changes`). So no value is used that another process, or a person with a database shell, may have changed.

Commits of this process over the same connection are not counted among those of others. Each write therefore names the
tables and nodes that it changes (`invalidate`), and only these are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from reconciler.model.records import NodeRecord

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
class Cache:
    """The cache of one connection. `stale`: by node, the tables to read again. `tables`: whole tables, by name."""

    version: Version | None = None
    own: set[int] = field(default_factory=set)  # transactions of this connection since `version`
    records: dict[str, NodeRecord] = field(default_factory=dict)
    stale: dict[str, set[str]] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    def advance_to(self, version: Version, writers: Callable[[frozenset[int]], frozenset[int]]) -> None:
        """Drop everything if anybody else has committed since the version that the cache was read at.

        `writers`: returns those of these transactions that wrote to what is cached.
        """
        ended = version.ended_since(self.version)
        others = None if ended is None else ended - self.own
        if others is None or (others and writers(others)):
            self.invalidate(None)
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
            self.tables.pop(table.name, None)
            for node in nodes:
                if node in self.records:
                    self.stale.setdefault(node, set()).add(table.name)

    def record(self, node: str) -> NodeRecord | None:
        """Return the cached record; None when all or part of it has to be read."""
        return None if node in self.stale else self.records.get(node)

    def put(self, node: str, record: NodeRecord) -> None:
        self.records[node] = record
        self.stale.pop(node, None)
