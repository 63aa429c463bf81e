"""The history of nodes: journal rows, with what makes them readable years later.

It is for people: a damaged cell is shown as it is, and hides no other row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from reconciler.drivers.ledger import period
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import Decoded, from_json, instant, or_long_ago
from reconciler.drivers.ledger.schema import certificates, journal, rollouts, runs
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.period_report import Past
from reconciler.model.records import FLEET, JournalEntry

_LEFT_OUT = ("amendment", "identity", "seal", "prune")  # events that say nothing to people by themselves
# Of an intent. Its install document carries keys.
_EVIDENCE = ("boot_id", "task", "started", "by", "erasure", "erasures")
_ROLLOUTS = 50  # of which membership is read, the newest
_NOTHING: Final[Mapping[str, Any]] = {}
_PAGE = 5_000  # rows whose attempts, runs and certificates are read by number
_SHOWN = ("id", "at", "run", "node", "event", "action", "target", "attempt", "detail", "data")
_RUN, _EVENT = (itemgetter(_SHOWN.index(name)) for name in ("run", "event"))  # a third of the time of row.run
_ENTRY = sa.select(*(journal.c[name] for name in _SHOWN))


class SqlHistory(SqlRole):
    def history(
        self, node: str, limit: int = 200, *, since: datetime | None = None, pool: str = ""
    ) -> Sequence[JournalEntry]:
        """Return the newest entries, oldest first. `pool`: includes holds of that pool and of the whole fleet."""
        subjects = {node} if not pool else {node, f"pool/{pool}", FLEET}
        with self._database.read() as connection:
            entries = _newest_of(connection, subjects, limit, since)
            begun = _rollouts_of(connection, node, since if len(entries) < limit else entries[0].at)
        return sorted([*begun, *entries], key=lambda entry: entry.at)[-limit:]

    def histories(self, subjects: Collection[str], limit: int) -> Mapping[str, Sequence[JournalEntry]]:
        """Return the newest entries of each subject (node, pool or fleet) that has any, oldest first, in one query."""
        found: dict[str, list[JournalEntry]] = {}
        with self._database.read() as connection:
            newest = _newest(connection.dialect.name, since=False)
            given = {"subjects": json.dumps(sorted(subjects)), "most": limit}
            for rows in connection.execute(newest.order_by(newest.selected_columns.id), given).partitions(_PAGE):
                for made in _entries(connection, rows):
                    found.setdefault(made.node, []).append(made)
        return found

    def journal(self, node: str | None, limit: int) -> Sequence[tuple[int, JournalEntry]]:
        """Return the newest rows with their numbers, oldest first; of one node, or all rows."""
        query = _ENTRY if node is None else _ENTRY.where(journal.c.node == node)
        with self._database.read() as connection:
            return _numbered(connection, query.order_by(journal.c.id.desc()).limit(limit))[::-1]

    def feed(self, after: int | None, limit: int, nodes: Collection[str] = ()) -> Sequence[tuple[int, JournalEntry]]:
        """Return at most `limit` rows that say something to people, with their numbers, oldest first.

        `after`: those that follow this row; None: the newest. `nodes`: of these alone; () = all rows.
        """
        query = _ENTRY.where(journal.c.event.not_in(_LEFT_OUT)).limit(limit)
        if nodes:
            query = query.where(journal.c.node.in_(nodes))
        if after is None:
            query = query.order_by(journal.c.id.desc())
        else:
            query = query.where(journal.c.id > after).order_by(journal.c.id)
        with self._database.read() as connection:
            found = _numbered(connection, query)
        return found if after is not None else found[::-1]

    def note(self, node: str, event: str, detail: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            write_journal(connection, instant(now), "", node, event, detail=detail)

    def past(self, since: datetime, until: datetime) -> Past:
        """Return what happened in a period, for reports."""
        with self._database.read() as connection:
            return period.legible(connection, lambda: period.past(connection, self._fleet, since, until))

    def illness(self, since: datetime, until: datetime) -> Past:
        """Return the signals of illness of a period, and what lemon scores count of its attempts."""
        with self._database.read() as connection:
            return period.legible(connection, lambda: period.illness(connection, self._fleet, since, until))


def _newest_of(
    connection: sa.Connection, subjects: Collection[str], limit: int, since: datetime | None
) -> list[JournalEntry]:
    """Return the newest entries, oldest first. `subjects`: the node, and whatever holds it together with others."""
    newest = _newest(connection.dialect.name, since=since is not None)
    given = {"subjects": json.dumps(sorted(subjects)), "most": limit}
    if since is not None:
        given["since"] = instant(since)
    rows = connection.execute(newest.order_by(newest.selected_columns.id.desc()).limit(limit), given).all()
    return _entries(connection, rows[::-1])


@cache
def _newest(dialect: str, *, since: bool) -> sa.Select[Any]:
    """Build the query for the newest `most` rows of each of the `subjects`, a JSON array of names.

    Each is one walk down the index of its rows. Asked for several names at once, databases walk down the whole journal.
    """
    listed = sa.func.json_each if dialect == "sqlite" else sa.func.json_array_elements_text
    given = sa.bindparam("subjects", type_=sa.Text)
    subject = listed(given if dialect == "sqlite" else sa.cast(given, postgresql.JSON)).table_valued("value", name="s")
    recent = journal.alias("recent")
    shown = [recent.c.node == subject.c.value, recent.c.event.not_in(_LEFT_OUT)]
    if since:
        shown.append(recent.c.at >= sa.bindparam("since"))
    newest = (
        sa.select(*(recent.c[name] for name in _SHOWN))
        .where(*shown)
        .order_by(recent.c.id.desc())
        .limit(sa.bindparam("most"))
    )
    found: sa.FromClause
    if dialect == "sqlite":  # which has no LATERAL
        found = journal
        rows = subject.join(found, found.c.id.in_(newest.with_only_columns(recent.c.id).correlate(subject)))
    else:
        found = newest.correlate(subject).lateral()
        rows = subject.join(found, sa.true())
    return sa.select(*(found.c[name] for name in _SHOWN)).select_from(rows)


def _numbered(connection: sa.Connection, query: sa.Select[Any]) -> list[tuple[int, JournalEntry]]:
    """Return the entries of these rows with their numbers, without what other rows of the journal add to them."""
    rows = connection.execute(query).all()
    runs_of, cells = _runs(connection, rows), _Cells()
    return [(row.id, _entry(row, {}, {}, {}, runs_of, cells)) for row in rows]


def _entries(connection: sa.Connection, rows: Sequence[Any]) -> list[JournalEntry]:
    by_event: dict[str, list[Any]] = {}
    for event, row in zip(map(_EVENT, rows), rows, strict=True):
        by_event.setdefault(event, []).append(row)
    intents, cells = by_event.get("intent", ()), _Cells()
    begun = _begun(connection, intents, by_event.get("outcome", ()), cells)
    learnt, documents = _amendments(connection, intents), _documents(connection, by_event.get("certificate", ()))
    runs_of = _runs(connection, rows)
    return [_entry(row, begun, learnt, documents, runs_of, cells) for row in rows]


class _Cells:
    """Decodes the cells of rows that are read at once."""

    def __init__(self) -> None:
        self.times = Decoded(or_long_ago)
        self.data = Decoded(_data)


def _entry(
    row: Any,
    begun: Mapping[int, datetime],
    learnt: Mapping[int, Mapping[str, Any]],
    documents: Mapping[int, Any],
    runs_of: Mapping[str, tuple[str, str]],
    cells: _Cells,
) -> JournalEntry:
    number, at_cell, run, node, event, action, target, attempt, text, data_cell = row
    at = cells.times[at_cell]
    data = cells.data[data_cell]
    evidence: Mapping[str, Any] = {}
    seconds = None
    if event == "intent":
        told = {**_object(data), **learnt.get(number, _NOTHING)}
        evidence = {key: value for key, value in told.items() if value and key in _EVIDENCE}
        attempt = number
    elif event == "outcome":
        evidence = {"outcome": data}
        seconds = (at - begun[attempt]).total_seconds() if attempt in begun else None
        text = ": ".join(part for part in (str(data), text) if part)
    elif event == "drift":
        evidence = _object(data)
        if "since" in evidence:
            seconds = (at - or_long_ago(evidence["since"])).total_seconds()
    elif event == "attested":  # what was measured, which a reference is learned from
        evidence = _object(data)
    elif event == "certificate":
        evidence = documents.get(_object(data).get("certificate", 0), {})
    if target:
        action = f"{action}:{target}"
    commit, plan = runs_of.get(run, ("", ""))
    return JournalEntry(at, run, node, event, action, text, commit, plan, attempt, seconds, evidence)


def _data(cell: str) -> Any:
    try:
        return from_json(cell, "data")
    except ValueError:
        return cell


def _object(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _runs(connection: sa.Connection, rows: Sequence[Any]) -> Mapping[str, tuple[str, str]]:
    """Return commit and plan of the runs that wrote these rows: a few runs wrote thousands of them."""
    names, found = sorted({*map(_RUN, rows)}), dict[str, tuple[str, str]]()
    for at in range(0, len(names), _PAGE):  # databases take tens of thousands of values at most
        query = sa.select(runs.c.run, runs.c.commit_id, runs.c.plan).where(runs.c.run.in_(names[at : at + _PAGE]))
        found |= {run: (commit or "", plan or "") for run, commit, plan in connection.execute(query)}
    return found


def _begun(
    connection: sa.Connection, intents: Sequence[Any], outcomes: Sequence[Any], cells: _Cells
) -> Mapping[int, datetime]:
    """Return when each attempt began whose outcome is in these rows, by number. Most began in these rows too."""
    begun = {row.id: cells.times[row.at] for row in intents}
    others = [attempt for row in outcomes if (attempt := row.attempt) not in begun]
    query = sa.select(journal.c.id, journal.c.at).where(journal.c.id.in_(others))
    return begun | {number: cells.times[at] for number, at in connection.execute(query)}


def _amendments(connection: sa.Connection, intents: Sequence[Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the merged amendments of the attempts that begin in these rows, by number."""
    cells = (journal.c.attempt, journal.c.data)
    numbers = journal.c.attempt.in_([row.id for row in intents])
    query = sa.select(*cells).where(journal.c.event == "amendment", numbers)
    found: dict[int, dict[str, Any]] = {}
    for attempt, data in connection.execute(query.order_by(journal.c.id)):
        found.setdefault(attempt, {}).update(_object(_data(data)))
    return found


def _documents(connection: sa.Connection, rows: Sequence[Any]) -> Mapping[int, Mapping[str, Any]]:
    """Return the certificates that these rows are about, by number, without their bindings."""
    numbers = [_object(_data(row.data)).get("certificate") for row in rows]
    query = sa.select(certificates.c.id, certificates.c.document).where(certificates.c.id.in_(numbers))
    found = {}
    for row in connection.execute(query):
        document = _object(_data(row.document))
        found[row.id] = {key: document[key] for key in ("results", "adopted", "issued_at") if key in document}
    return found


def _rollouts_of(connection: sa.Connection, node: str, since: datetime | None) -> list[JournalEntry]:
    """Return the rollouts that the node is a member of."""
    query = sa.select(rollouts).order_by(rollouts.c.id.desc()).limit(_ROLLOUTS)
    found = []
    for row in connection.execute(query):
        document = _object(_data(row.document))
        members = document.get("members")
        at = or_long_ago(row.started_at)
        if not isinstance(members, list) or node not in members or (since is not None and at < since):
            continue
        values = _object(document.get("values"))
        values_text = ", ".join(f"{path} {json.dumps(value[0]) if value else ''}" for path, value in values.items())
        place = f"{members.index(node) + 1} of {len(members)} in pool {row.pool}"
        evidence = {"pool": row.pool, "values": values, "before": _object(document.get("before"))}
        kind = "rollback" if row.rollback else "rollout"
        detail = f"{kind} of {values_text}; this node is {place}"
        found.append(JournalEntry(at, row.run, node, "rollout", "", detail, row.commit_id, evidence=evidence))
    return found[::-1]
