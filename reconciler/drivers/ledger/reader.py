"""Node records, read with one pass over each table however many nodes are asked for."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import schema
from reconciler.drivers.ledger.attestations import to_attestation
from reconciler.drivers.ledger.cache import Cache
from reconciler.drivers.ledger.episodes import MANY
from reconciler.drivers.ledger.repairs import to_repair
from reconciler.drivers.ledger.rows import from_json, to_applied, to_certificate, to_hold, to_instant, to_object
from reconciler.model.gate import Certificate
from reconciler.model.host_certificate import read_host_certificate
from reconciler.model.interning import share
from reconciler.model.records import (
    ATTEMPTS_KEPT,
    CLOCK_SET,
    IDLE,
    RELEASE,
    REPAIR,
    Applied,
    Attempt,
    ClockStep,
    Hold,
    NodeRecord,
)
from reconciler.model.repairs import Repair, RepairPhase

T = TypeVar("T")
Query = Callable[[sa.ColumnElement[bool]], sa.Select[Any]]  # its argument selects nodes

# The newest events of a node among which its attempts are counted, and how many of each are read.
_KEPT = {"certificate": 1, RELEASE: 1, REPAIR: 1, CLOCK_SET: 50}
_LONGEST_STEP_S = 1e10  # 300 years
_OUTCOMES = frozenset({"done", "transient", "permanent", "ambiguous", "refused"})


def read_records(connection: sa.Connection, names: Sequence[str], cache: Cache, fleet: str) -> dict[str, NodeRecord]:
    """Return records in the order of `names`. Only what the cache lacks, or may have changed, is read."""
    found: dict[str, NodeRecord] = {}
    lacking: dict[frozenset[str], list[str]] = defaultdict(list)
    for name in names:
        known = found[name] = cache.records.get(name) or NodeRecord(name)
        if cache.record(name) is None:
            # `malformed` is one text for all tables, so it takes all of them to write it anew.
            whole = name not in cache.records or known.malformed
            lacking[frozenset(_TABLES) if whole else frozenset(cache.stale[name])].append(name)
    for tables, some in lacking.items():
        for name, values in _Reader(connection, some, fleet).values(tables).items():
            found[name] = replace(found[name], **values)
            cache.put(name, found[name])
    return found


# --- statements ------------------------------------------------------------------------------------------------------


@cache
def _statement(query: Query, column: sa.Column[str], few: bool) -> sa.Select[Any]:
    """Build a statement once: building takes SQLAlchemy longer than answering takes SQLite."""
    return query(column.in_(sa.bindparam("names", expanding=True)) if few else sa.true())


def _nodes(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.nodes).where(mine)


def _applied(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.applied).where(mine)


def _silences(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.silences).where(mine)


def _open_holds(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.holds).where(mine, schema.holds.c.released_at.is_(None))


def _released_holds(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.holds).where(mine, schema.holds.c.released_at.is_not(None))


def _newest_certificates(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    table = schema.certificates
    return sa.select(table).where(table.c.id.in_(sa.select(sa.func.max(table.c.id)).where(mine).group_by(table.c.node)))


def _attestations(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(schema.attestations).where(mine)


def _host_keys(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    table = schema.install_attempts.c
    query = sa.select(table.node, table.host_key, table.certificate)
    return query.where(mine, table.certificate != "").order_by(table.begun_at)


def _newest_repairs(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    table = schema.repairs
    return sa.select(table).where(table.c.id.in_(sa.select(sa.func.max(table.c.id)).where(mine).group_by(table.c.node)))


def _events(mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    table = schema.journal
    age = sa.func.row_number().over(partition_by=(table.c.node, table.c.event), order_by=table.c.id.desc())
    columns = (table.c[name] for name in ("id", "at", "node", "event", "action", "target", "attempt", "detail", "data"))
    wanted = ("intent", "resume", "outcome", *_KEPT)
    recent = sa.select(*columns, age.label("age")).where(mine, table.c.event.in_(wanted)).subquery()
    kept = sa.case(_KEPT, value=recent.c.event, else_=ATTEMPTS_KEPT)
    return sa.select(recent).where(recent.c.age <= kept).order_by(recent.c.id)


# --- rows to values --------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the fields of records. A cell that can't be decoded marks only its node as malformed (pitfall M6)."""

    def __init__(self, connection: sa.Connection, names: Sequence[str], fleet: str) -> None:
        self._fleet = fleet
        self._connection = connection
        self._names = names
        self._known = frozenset(names)
        self._malformed: dict[str, list[str]] = defaultdict(list)

    def values(self, tables: frozenset[str]) -> Mapping[str, dict[str, Any]]:
        """Return, by node, the fields of its record that come from these tables."""
        found: dict[str, dict[str, Any]] = {name: {} for name in self._names}
        for read in (read for table, read in _TABLES.items() if table in tables):
            for field, (values, absent) in read(self).items():
                for name in self._names:
                    found[name][field] = values.get(name, absent)
        for name in self._names:
            found[name]["malformed"] = "; ".join(self._malformed.get(name, ()))
        return found

    def _rows(self, column: sa.Column[str], query: Query) -> Iterator[Any]:
        name, few = column.key, len(self._names) <= MANY
        statement = _statement(query, column, few)
        rows = self._connection.execute(statement, {"names": list(self._names)} if few else {})
        return iter(rows) if few else (row for row in rows if getattr(row, name) in self._known)

    def _decoded(self, node: str, decode: Callable[[Any], T], row: Any) -> T | None:
        try:
            return decode(row)
        except ValueError as error:
            self._malformed[node].append(str(error))
            return None

    def _nodes(self) -> _Fields:
        rows = {row.node: row for row in self._rows(schema.nodes.c.node, _nodes)}
        path_sets = self._path_sets() if rows else {}
        cells = {field: {name: getattr(row, field) for name, row in rows.items()} for field in _PLAIN}
        paths = {name: path_sets.get(row.paths) for name, row in rows.items()}
        others = {name: row.fleet for name, row in rows.items() if self._fleet and row.fleet not in ("", self._fleet)}
        plain = {field: (values, None) for field, values in cells.items()}
        return {**plain, "paths": (paths, None), "fleet": (others, "")}

    def _path_sets(self) -> Mapping[str, frozenset[str]]:
        """Return path sets by digest. Nodes with a damaged one count as new: differences are drift, held by no wave."""
        found = {}
        for row in self._connection.execute(sa.select(schema.path_sets)):
            with suppress(ValueError, TypeError):
                found[row.digest] = frozenset(from_json(row.paths, f"path set {row.digest}"))
        return found

    def _holds(self) -> _Fields:
        column = schema.holds.c.subject
        active: dict[str, tuple[Hold, ...]] = {}
        for row in self._rows(column, _open_holds):
            hold, problem = to_hold(row)
            active[row.subject] = (*active.get(row.subject, ()), hold)
            if problem:
                self._malformed[row.subject].append(problem)
        released: dict[str, datetime] = {}
        for row in self._rows(column, _released_holds):
            at = self._decoded(row.subject, lambda hold: to_instant(hold.released_at, "end of a hold"), row)
            if at is not None:
                released[row.subject] = max(at, released.get(row.subject, at))
        return {"holds": (active, ()), "released_at": (released, None)}

    def _attempts(self) -> _Fields:
        rows = list(self._rows(schema.journal.c.node, _events))
        outcomes = {row.attempt: row for row in rows if row.event == "outcome"}
        resumed = {row.attempt: row for row in rows if row.event == "resume"}
        # A resumed attempt is sorted by when it was resumed.
        places = {attempt: row.id for attempt, row in resumed.items()}
        intents = sorted((row for row in rows if row.event == "intent"), key=lambda row: places.get(row.id, row.id))
        issued = {row.node: row.id for row in rows if row.event == "certificate"}
        released = {
            row.node: row.id
            for row in rows
            if row.event == RELEASE or (row.event == REPAIR and self._decoded(row.node, _is_closed, row))
        }
        newer, after = dict.fromkeys(issued, 0), dict.fromkeys(released, 0)
        steps: dict[str, list[tuple[int, ClockStep]]] = defaultdict(list)
        for row in rows:
            if row.event == CLOCK_SET and (step := self._decoded(row.node, _step, row)) is not None:
                steps[row.node].append((row.id, step))
        found: dict[str, list[Attempt]] = defaultdict(list)
        for row in intents:
            decode = partial(_attempt, resumed=resumed.get(row.id), outcome=outcomes.get(row.id))
            attempt, place = self._decoded(row.node, decode, row), places.get(row.id, row.id)
            if attempt is not None:
                ended = outcomes[row.id].id if row.id in outcomes else place
                found[row.node].append(_as_set_since(attempt, place, ended, steps.get(row.node, ())))
                if row.node in newer and place > issued[row.node]:
                    newer[row.node] += 1
                if row.node in after:
                    after[row.node] = after[row.node] + 1 if max(ended, place) > released[row.node] else 0
        attempts = {node: tuple(attempts) for node, attempts in found.items()}
        return {"attempts": (attempts, ()), "newer": (newer, None), "after_release": (after, None)}

    def _certificates(self) -> _Fields:
        rows = self._rows(schema.certificates.c.node, _newest_certificates)
        found: dict[str, Certificate | None] = {}
        for row in rows:
            found[row.node] = share(self._decoded(row.node, to_certificate, row))
        return {"certificate": (found, None)}

    def _repairs(self) -> _Fields:
        """Return the repair of each node that has one under way."""
        found: dict[str, Repair | None] = {}
        for row in self._rows(schema.repairs.c.node, _newest_repairs):
            repair = self._decoded(row.node, to_repair, row)
            found[row.node] = repair if repair is not None and repair.is_open else None
        return {"repair": (found, None)}

    def _applied(self) -> _Fields:
        """Decode equal rows once, and share them: nodes that converged together have the same."""
        found: dict[str, dict[str, Applied]] = defaultdict(dict)
        decoded: dict[tuple[Any, ...], Applied] = {}
        for row in self._rows(schema.applied.c.node, _applied):
            cells = (row.value, row.spec_digest, row.commit_id, row.at)
            value = decoded.get(cells) or self._decoded(row.node, to_applied, row)
            if value is not None:
                decoded[cells] = found[row.node][row.path] = value
        alike: dict[tuple[Any, ...], Mapping[str, Applied]] = {}
        shared = {node: alike.setdefault((*rows, *map(id, rows.values())), rows) for node, rows in found.items()}
        return {"applied": (shared, {})}

    def _attestations(self) -> _Fields:
        rows = {row.node: row for row in self._rows(schema.attestations.c.node, _attestations)}
        proved = {name: self._decoded(name, to_attestation, row) for name, row in rows.items()}
        endorsements = {name: row.endorsement for name, row in rows.items()}
        return {"endorsement": (endorsements, None), "attestation": (proved, None)}

    def _installs(self) -> _Fields:
        """Return the newest certificate of each node's host key."""
        found = {}
        for row in self._rows(schema.install_attempts.c.node, _host_keys):
            found[row.node] = self._decoded(row.node, lambda one: read_host_certificate(*one[1:]), row)
        return {"host_certificate": (found, None)}

    def _silences(self) -> _Fields:
        found: dict[str, dict[str, datetime]] = defaultdict(dict)
        for row in self._rows(schema.silences.c.node, _silences):
            since = self._decoded(row.node, lambda silence: to_instant(silence.since, "start of a silence"), row)
            if since is not None:
                found[row.node][row.source] = since
        idle = {node: since.pop(IDLE) for node, since in found.items() if IDLE in since}
        return {"silent_since": (found, {}), "idle_since": (idle, None)}


_Fields = Mapping[str, tuple[Mapping[str, Any], Any]]  # by field of a record: its value by node, and its default
_PLAIN = ("serial", "uuid", "nonce")
_TABLES: Mapping[str, Callable[[_Reader], _Fields]] = {
    schema.nodes.name: _Reader._nodes,
    schema.holds.name: _Reader._holds,
    schema.journal.name: _Reader._attempts,
    schema.certificates.name: _Reader._certificates,
    schema.applied.name: _Reader._applied,
    schema.silences.name: _Reader._silences,
    schema.attestations.name: _Reader._attestations,
    schema.install_attempts.name: _Reader._installs,
    schema.repairs.name: _Reader._repairs,
}


def _as_set_since(attempt: Attempt, begun: int, ended: int, steps: Iterable[tuple[int, ClockStep]]) -> Attempt:
    """Return an attempt with what the clock was set by since the rows that tell of its begin, and of its end."""
    since, ended_since = timedelta(), timedelta()
    for at, step in steps:
        if at > begun:
            since = step.after(attempt.at, since)
        if attempt.ended_at is not None and at > ended:
            ended_since = step.after(attempt.ended_at, ended_since)
    return replace(attempt, since_set=since, ended_since_set=ended_since) if since or ended_since else attempt


def _is_closed(row: Any) -> bool:
    """Return whether a repair ended here. Versions before this one did not note its end as the release that it is."""
    return bool(to_object(row.data, f"journal row {row.id}").get("phase") == RepairPhase.CLOSED.value)


def _step(row: Any) -> ClockStep:
    seconds = float(row.detail)
    if not math.isfinite(seconds) or abs(seconds) > _LONGEST_STEP_S:
        raise ValueError(f"a step of the clock by {row.detail!r} s")
    what = "step of the clock"
    ahead_of = from_json(row.data, what)
    return ClockStep(timedelta(seconds=seconds), None if ahead_of is None else to_instant(ahead_of, what))


def _attempt(intent: Any, *, resumed: Any, outcome: Any) -> Attempt:
    at = intent.at if resumed is None else resumed.at
    end = None if outcome is None else (outcome.at, outcome.data, outcome.detail)
    return _to_attempt(intent.id, intent.action, intent.target, intent.detail, at, intent.data, end)


@lru_cache(maxsize=10_000)  # after an action there is one attempt more, and the others are as before
def _to_attempt(
    number: int, action: str, target: str, cause: str, at: str, data: str, end: tuple[str, str, str] | None
) -> Attempt:
    what = f"attempt {number}"
    intent = to_object(data, f"intent of {what}")
    boot_id, basis = str(intent.get("boot_id") or ""), str(intent.get("basis") or "")
    shown = intent.get("signals")
    begun = Attempt(
        action, target, cause, to_instant(at, f"time of {what}"), "started", boot_id=boot_id, basis=basis,
        treated=tuple(map(str, shown)) if isinstance(shown, list) else (),
    )  # fmt: skip
    if end is None:
        return begun
    word = from_json(end[1], f"outcome of {what}")
    if word not in _OUTCOMES:
        raise ValueError(f"outcome of {what} is {word!r}")
    return replace(begun, outcome=word, detail=end[2], ended_at=to_instant(end[0], f"end of {what}"))
