"""A node's story: the journal's rows about it, with what makes them readable years later.

It is for people: a damaged cell is shown as it is, and hides no other line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.rows import LONG_AGO, from_json, instant, to_instant
from reconciler.drivers.ledger.schema import certificates, journal, rollouts, runs
from reconciler.model.records import JournalEntry, RunRecord

UNTOLD = ("amendment", "identity")  # events of rows that tell people nothing of their own
_LEARNT = ("boot_id", "task", "started", "by")  # of an intent; its install document carries keys
_ROLLOUTS = 50  # newest ones looked through
_AT_ONCE = 5_000  # rows whose attempts and certificates are asked for by number


def tell(
    connection: sa.Connection, subjects: Collection[str], limit: int, since: datetime | None
) -> list[JournalEntry]:
    """The newest, oldest first. `subjects`: the node, and what holds it with others."""
    query = sa.select(journal, runs.c.commit_id, runs.c.plan).join(runs, runs.c.run == journal.c.run, isouter=True)
    query = query.where(journal.c.node.in_(subjects), journal.c.event.not_in(UNTOLD))
    if since is not None:
        query = query.where(journal.c.at >= instant(since))
    return _entries(
        connection, list(reversed(connection.execute(query.order_by(journal.c.id.desc()).limit(limit)).all()))
    )


def newest(connection: sa.Connection, limit: int) -> dict[str, list[JournalEntry]]:
    """Of each subject, oldest first. One pass over the journal, however many there are."""
    age = sa.func.row_number().over(partition_by=journal.c.node, order_by=journal.c.id.desc())
    told = sa.select(journal, age.label("age")).where(journal.c.event.not_in(UNTOLD), journal.c.node != "").subquery()
    query = sa.select(told, runs.c.commit_id, runs.c.plan).join(runs, runs.c.run == told.c.run, isouter=True)
    query = query.where(told.c.age <= limit).order_by(told.c.id)
    found: dict[str, list[JournalEntry]] = {}
    for rows in connection.execute(query).partitions(_AT_ONCE):
        for made in _entries(connection, rows):
            found.setdefault(made.node, []).append(made)
    return found


def _entries(connection: sa.Connection, rows: Sequence[Any]) -> list[JournalEntry]:
    begun, learnt = _begun(connection, rows), _amendments(connection, rows)
    documents = _documents(connection, rows)
    return [_entry(row, begun, learnt.get(row.id, {}), documents) for row in rows]


def entry(row: Any) -> JournalEntry:
    """Of a row alone."""
    return _entry(row, {}, {}, {})


def _entry(
    row: Any, begun: Mapping[int, datetime], learnt: Mapping[str, Any], documents: Mapping[int, Any]
) -> JournalEntry:
    at = _at(row.at)
    data = _data(row.data)
    evidence: Mapping[str, Any] = {}
    seconds = None
    match row.event:
        case "intent":
            evidence = {key: value for key, value in {**_object(data), **learnt}.items() if key in _LEARNT and value}
        case "outcome":
            evidence = {"outcome": data}
            seconds = (at - begun[row.attempt]).total_seconds() if row.attempt in begun else None
        case "drift":
            evidence = _object(data)
            if "since" in evidence:
                seconds = (at - _at(evidence["since"])).total_seconds()
        case "certificate":
            evidence = documents.get(_object(data).get("certificate", 0), {})
    action = f"{row.action}:{row.target}" if row.target else row.action
    detail = ": ".join(part for part in (str(data) if row.event == "outcome" else "", row.detail) if part)
    attempt = row.id if row.event == "intent" else row.attempt
    return JournalEntry(
        at,
        row.run,
        row.node,
        row.event,
        action,
        detail,
        row.commit_id or "",
        row.plan or "",
        attempt,
        seconds,
        evidence,
    )


def _at(cell: Any) -> datetime:
    try:
        return to_instant(cell, "time")
    except ValueError:
        return LONG_AGO


def _data(cell: str) -> Any:
    try:
        return from_json(cell, "data")
    except ValueError:
        return cell


def _object(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _begun(connection: sa.Connection, rows: Sequence[Any]) -> Mapping[int, datetime]:
    """When each attempt began that has ended in these rows."""
    ended = [row.attempt for row in rows if row.event == "outcome"]
    query = sa.select(journal.c.id, journal.c.at).where(journal.c.id.in_(ended))
    return {row.id: _at(row.at) for row in connection.execute(query)}


def _amendments(connection: sa.Connection, rows: Sequence[Any]) -> Mapping[int, Mapping[str, Any]]:
    """What was learnt while the attempts ran that have begun in these rows."""
    intents = [row.id for row in rows if row.event == "intent"]
    query = sa.select(journal).where(journal.c.event == "amendment", journal.c.attempt.in_(intents))
    found: dict[int, dict[str, Any]] = {}
    for row in connection.execute(query.order_by(journal.c.id)):
        found.setdefault(row.attempt, {}).update(_object(_data(row.data)))
    return found


def _documents(connection: sa.Connection, rows: Sequence[Any]) -> Mapping[int, Mapping[str, Any]]:
    """What the certificates say that these rows are about, without what they are bound to."""
    numbers = [_object(_data(row.data)).get("certificate") for row in rows if row.event == "certificate"]
    query = sa.select(certificates.c.id, certificates.c.document).where(certificates.c.id.in_(numbers))
    found = {}
    for row in connection.execute(query):
        document = _object(_data(row.document))
        found[row.id] = {key: document[key] for key in ("results", "adopted", "issued_at") if key in document}
    return found


def rollouts_of(connection: sa.Connection, node: str, since: datetime | None) -> list[JournalEntry]:
    """Rollouts that the node has a place in."""
    query = sa.select(rollouts).order_by(rollouts.c.id.desc()).limit(_ROLLOUTS)
    found = []
    for row in connection.execute(query):
        document = _object(_data(row.document))
        members = document.get("members")
        at = _at(row.started_at)
        if not isinstance(members, list) or node not in members or (since is not None and at < since):
            continue
        values = _object(document.get("values"))
        told = ", ".join(f"{path} {json.dumps(value[0]) if value else ''}" for path, value in values.items())
        place = f"{members.index(node) + 1} of {len(members)} in pool {row.pool}"
        evidence = {"pool": row.pool, "values": values, "before": _object(document.get("before"))}
        kind = "rollback" if row.rollback else "rollout"
        detail = f"{kind} of {told}; this node is {place}"
        found.append(JournalEntry(at, row.run, node, "rollout", "", detail, row.commit_id, evidence=evidence))
    return found[::-1]


def of_runs(connection: sa.Connection, names: Collection[str]) -> dict[str, RunRecord]:
    found = {}
    for row in connection.execute(sa.select(runs).where(runs.c.run.in_(names))):
        ended = None
        with suppress(ValueError):
            ended = None if row.ended_at is None else to_instant(row.ended_at, "end")
        found[row.run] = RunRecord(
            row.run, row.command, row.commit_id, row.plan, _at(row.started_at), ended, row.exit_code, row.summary or ""
        )
    return found


def last_commit(connection: sa.Connection, fleet: str) -> str:
    """Of the spec that somebody acted by last; "" = nobody has."""
    ours = runs.c.fleet.in_(("", fleet)) if fleet else sa.true()
    acts = runs.c.command.in_(("apply", "run")) & (runs.c.commit_id != "")
    query = sa.select(runs.c.commit_id).where(ours & acts).order_by(runs.c.started_at.desc()).limit(1)
    return connection.execute(query).scalar() or ""
