"""Node records, read with one pass over each table however many nodes are asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import schema
from reconciler.drivers.ledger.episodes import of_nodes
from reconciler.drivers.ledger.rows import from_json, to_applied, to_certificate, to_hold, to_instant, to_object
from reconciler.model.gate import Certificate
from reconciler.model.records import Applied, Attempt, Hold, NodeRecord
from reconciler.model.sharing import share

T = TypeVar("T")

ATTEMPTS_KEPT = 200  # newest per node in a record; policies count far fewer
_OUTCOMES = frozenset({"done", "transient", "permanent", "ambiguous", "refused"})


def read_records(connection: sa.Connection, names: Sequence[str]) -> Mapping[str, NodeRecord]:
    return _Reader(connection, names).records()


class _Reader:
    """What can't be decoded marks its node alone as malformed (pitfall M6)."""

    def __init__(self, connection: sa.Connection, names: Sequence[str]) -> None:
        self._connection = connection
        self._names = names
        self._known = frozenset(names)
        self._malformed: dict[str, list[str]] = defaultdict(list)

    def records(self) -> Mapping[str, NodeRecord]:
        rows = {row.node: row for row in self._rows(schema.nodes.c.node, sa.select(schema.nodes))}
        holds, attempts, certificates = self._holds(), self._attempts(), self._certificates()
        released, path_sets = self._released(), self._path_sets()
        applied, silences = self._applied(), self._silences()
        return {
            name: NodeRecord(
                node=name,
                serial=rows[name].serial if name in rows else None,
                uuid=rows[name].uuid if name in rows else None,
                holds=tuple(holds.get(name, ())),
                applied=applied.get(name, {}),
                attempts=tuple(attempts.get(name, ())),
                certificate=certificates.get(name),
                nonce=rows[name].nonce if name in rows else None,
                silent_since=silences.get(name, {}),
                malformed="; ".join(self._malformed.get(name, ())),
                paths=path_sets.get(rows[name].paths) if name in rows else None,
                released_at=released.get(name),
            )
            for name in self._names
        }

    def _rows(self, column: sa.ColumnElement[str], query: sa.Select[Any]) -> Iterator[Any]:
        name = column.key or ""
        rows = self._connection.execute(query.where(of_nodes(column, self._names)))
        return (row for row in rows if getattr(row, name) in self._known)

    def _decoded(self, node: str, decode: Callable[[Any], T], row: Any) -> T | None:
        try:
            return decode(row)
        except ValueError as error:
            self._malformed[node].append(str(error))
            return None

    def _holds(self) -> Mapping[str, list[Hold]]:
        table = schema.holds
        found: dict[str, list[Hold]] = defaultdict(list)
        for row in self._rows(table.c.subject, sa.select(table).where(table.c.released_at.is_(None))):
            hold, problem = to_hold(row)
            found[row.subject].append(hold)
            if problem:
                self._malformed[row.subject].append(problem)
        return found

    def _path_sets(self) -> Mapping[str, frozenset[str]]:
        """A damaged one is as if its nodes were met for the first time: what differs is drift, which no wave holds."""
        found = {}
        for row in self._connection.execute(sa.select(schema.path_sets)):
            with suppress(ValueError, TypeError):
                found[row.digest] = frozenset(from_json(row.paths, f"path set {row.digest}"))
        return found

    def _released(self) -> Mapping[str, datetime]:
        table = schema.holds
        lifted = self._rows(table.c.subject, sa.select(table).where(table.c.released_at.is_not(None)))
        found: dict[str, datetime] = {}
        for row in lifted:
            at = self._decoded(row.subject, lambda hold: to_instant(hold.released_at, "end of a hold"), row)
            if at is not None:
                found[row.subject] = max(at, found.get(row.subject, at))
        return found

    def _attempts(self) -> Mapping[str, list[Attempt]]:
        table = schema.journal
        age = sa.func.row_number().over(partition_by=(table.c.node, table.c.event), order_by=table.c.id.desc())
        events = sa.select(table, age.label("age")).where(table.c.event.in_(("intent", "resume", "outcome")))
        recent = events.where(of_nodes(table.c.node, self._names)).subquery()
        query = sa.select(recent).where(recent.c.age <= ATTEMPTS_KEPT).order_by(recent.c.id)
        rows = list(self._rows(recent.c.node, query))
        outcomes = {row.attempt: row for row in rows if row.event == "outcome"}
        resumed = {row.attempt: row for row in rows if row.event == "resume"}
        # One that was gone on with takes its place among the others where that was.
        places = {attempt: row.id for attempt, row in resumed.items()}
        intents = sorted((row for row in rows if row.event == "intent"), key=lambda row: places.get(row.id, row.id))
        found: dict[str, list[Attempt]] = defaultdict(list)
        for row in intents:
            decode = partial(_attempt, resumed=resumed.get(row.id), outcome=outcomes.get(row.id))
            attempt = self._decoded(row.node, decode, row)
            if attempt is not None:
                found[row.node].append(attempt)
        return found

    def _certificates(self) -> Mapping[str, Certificate]:
        table = schema.certificates
        newest = sa.select(sa.func.max(table.c.id)).group_by(table.c.node)
        rows = self._rows(table.c.node, sa.select(table).where(table.c.id.in_(newest)))
        found = {row.node: share(self._decoded(row.node, to_certificate, row)) for row in rows}
        return {node: certificate for node, certificate in found.items() if certificate is not None}

    def _applied(self) -> Mapping[str, Mapping[str, Applied]]:
        """Nodes that converged to the same in one pass have equal rows: they are decoded once, and kept once."""
        found: dict[str, dict[str, Applied]] = defaultdict(dict)
        decoded: dict[tuple[Any, ...], Applied] = {}
        for row in self._rows(schema.applied.c.node, sa.select(schema.applied)):
            cells = (row.value, row.spec_digest, row.commit_id, row.at)
            value = decoded.get(cells) or self._decoded(row.node, to_applied, row)
            if value is not None:
                decoded[cells] = found[row.node][row.path] = value
        alike: dict[tuple[Any, ...], Mapping[str, Applied]] = {}
        return {node: alike.setdefault((*rows, *map(id, rows.values())), rows) for node, rows in found.items()}

    def _silences(self) -> Mapping[str, Mapping[str, datetime]]:
        found: dict[str, dict[str, datetime]] = defaultdict(dict)
        for row in self._rows(schema.silences.c.node, sa.select(schema.silences)):
            since = self._decoded(row.node, lambda silence: to_instant(silence.since, "start of a silence"), row)
            if since is not None:
                found[row.node][row.source] = since
        return found


def _attempt(intent: Any, *, resumed: Any, outcome: Any) -> Attempt:
    what = f"attempt {intent.id}"
    to_object(intent.data, f"intent of {what}")
    at = to_instant(intent.at if resumed is None else resumed.at, f"time of {what}")
    begun = Attempt(intent.action, intent.target, intent.detail, at, "started")
    if outcome is None:
        return begun
    word = from_json(outcome.data, f"outcome of {what}")
    if word not in _OUTCOMES:
        raise ValueError(f"outcome of {what} is {word!r}")
    ended_at = to_instant(outcome.at, f"end of {what}")
    return replace(begun, outcome=word, detail=outcome.detail, ended_at=ended_at)
