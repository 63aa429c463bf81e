"""`SqlLedger`: model.ports.Ledger over SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.drivers.ledger import (
    attempts,
    chain,
    episodes,
    inventory,
    node_history,
    period,
    rollouts,
    schema,
    sightings,
    status_intervals,
)
from reconciler.drivers.ledger.cache import Memory
from reconciler.drivers.ledger.engine import Database
from reconciler.drivers.ledger.inventory import Info
from reconciler.drivers.ledger.lease_time import SharedClock
from reconciler.drivers.ledger.leasing import Leasing
from reconciler.drivers.ledger.reader import read_records
from reconciler.drivers.ledger.rows import clean, instant, to_hold, to_json
from reconciler.drivers.ledger.writing import upsert, write_journal
from reconciler.model.documents import dump
from reconciler.model.errors import LedgerError
from reconciler.model.gate import Certificate
from reconciler.model.period_report import Past, ServiceStatus
from reconciler.model.records import FLEET, Hold, JournalEntry, NodeRecord, Rollout, RunRecord

T = TypeVar("T")


class SqlLedger(Leasing):
    def __init__(
        self,
        where: str | Path,
        *,
        fleet: str = "",
        lock_timeout_s: float = 10.0,
        clock: SharedClock | None = None,
    ) -> None:
        """`where`: path of an SQLite file, created with its directory when absent, or a postgresql:// URL.

        `fleet`: whose nodes, attempts and rollouts these are, where several fleets share a ledger. A node is its who
        met it first, until it forgets it. "" sees all.

        `clock`: real or scaled; leases then go by what all runners share, see lease_time. None: by the `now` of each
        call, as in virtual time.
        """
        self._fleet = fleet
        super().__init__(Database(where, lock_timeout_s=lock_timeout_s), clock)
        with self._database.read() as connection:
            query = sa.select(schema.meta.c.value).where(schema.meta.c.key == schema.LEDGER_ID)
            ledger_id = connection.execute(query).scalar_one_or_none()
        if not ledger_id:
            self.close()
            raise LedgerError(f"the ledger {self._database.name} has lost its id; restore it from a backup")
        self._id: str = ledger_id

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        """File or URL, without password."""
        return self._database.name

    def close(self) -> None:
        self._database.close()

    def batch(self) -> AbstractContextManager[Any]:
        return self._database.write([])

    # --- nodes ---------------------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeRecord:
        return self.nodes([name])[name]

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        def known(memory: Memory) -> dict[str, NodeRecord] | None:
            found = {name: record for name in names if (record := memory.record(name)) is not None}
            return found if len(found) == len(set(names)) else None

        return self._database.recall(
            known, lambda connection, memory: read_records(connection, names, memory, self._fleet)
        )

    def remember_identity(self, node: str, serial: str | None, uuid: str | None, now: datetime) -> None:
        self.remember_identities({node: (serial, uuid)}, now)

    def remember_identities(self, found: Mapping[str, tuple[str | None, str | None]], now: datetime) -> None:
        if not found:
            return
        with self._database.write([schema.nodes], list(found)) as connection:
            sightings.identify(connection, found, self._fleet, instant(now))

    def note_silence(self, node: str, source: str, silent: bool, now: datetime) -> None:
        self.note_silences([(node, source, silent)], now)

    def note_silences(self, news: Sequence[tuple[str, str, bool]], now: datetime) -> None:
        if not news:
            return
        with self._database.write([schema.silences], [node for node, _, _ in news]) as connection:
            sightings.note(connection, news, instant(now))

    def known(self) -> Sequence[str]:
        node, nodes = schema.applied.c.node, schema.nodes
        query = sa.select(node).distinct().join(nodes, nodes.c.node == node, isouter=True).order_by(node)
        with self._database.read() as connection:
            return list(connection.execute(query.where(self._ours(nodes))).scalars())

    def _ours(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Rows of this fleet, or of nobody."""
        return table.c.fleet.is_(None) | table.c.fleet.in_(("", self._fleet)) if self._fleet else sa.true()

    def forget(self, nodes: Sequence[str], now: datetime) -> None:
        table = schema.applied
        if not nodes:
            return
        with self._database.write([table, schema.nodes], nodes) as connection:
            gone = [{"gone": name} for name in nodes]
            connection.execute(table.delete().where(table.c.node == sa.bindparam("gone")), gone)
            forgotten = (
                schema.nodes.update().where(schema.nodes.c.node == sa.bindparam("gone")).values(paths=None, fleet="")
            )
            connection.execute(forgotten, gone)
            common = {"at": instant(now), "run": "", "event": "forget", "detail": "it has left the spec"}
            chain.append(connection, [common | {"node": node} for node in nodes])

    def remember_applied(
        self, node: str, values: Mapping[str, Any], spec_digest: str, commit: str, now: datetime
    ) -> None:
        row = {"node": node, "spec_digest": spec_digest, "commit_id": commit, "at": instant(now)}
        rows = [row | {"path": path, "value": to_json(value)} for path, value in values.items()]
        with self._database.write([schema.applied], [node]) as connection:
            upsert(connection, schema.applied, rows)

    def remember_paths(self, nodes: Sequence[str], paths: frozenset[str]) -> None:
        text = to_json(sorted(paths))
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._database.write([schema.nodes], nodes) as connection:
            upsert(connection, schema.path_sets, [{"digest": digest, "paths": text}])
            upsert(connection, schema.nodes, [{"node": node, "paths": digest, "fleet": self._fleet} for node in nodes])

    def set_nonce(self, node: str, nonce: str, now: datetime) -> None:
        row = {"node": node, "nonce": nonce, "nonce_at": instant(now), "fleet": self._fleet}
        with self._database.write([schema.nodes], [node]) as connection:
            upsert(connection, schema.nodes, [row])

    def save_certificate(self, certificate: Certificate) -> None:
        at = instant(certificate.issued_at)
        document = dump(certificate)
        verdicts = ", ".join(f"{result.test} {result.verdict.value}" for result in certificate.results)
        with self._database.write([schema.certificates], [certificate.node]) as connection:
            values = {"node": certificate.node, "issued_at": at, "document": document}
            key = connection.execute(schema.certificates.insert().values(values)).inserted_primary_key
            assert key is not None
            seal = to_json(chain.seal_of(key[0], document))
            detail = "adopted" if certificate.adopted else verdicts
            write_journal(connection, at, "", certificate.node, "certificate", detail=detail, data=seal)

    def record_drift(
        self, run: str, items: Sequence[tuple[str, str, str, Any, Any]], nodes: Sequence[str], now: datetime,
        *, unread: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Mapping[tuple[str, str], tuple[datetime, datetime]]:  # fmt: skip
        with self._database.write([]) as connection:
            return episodes.record(connection, run, items, nodes, now, unread or {})

    def open_drift(self, node: str) -> Sequence[tuple[str, str, Any, Any, datetime]]:
        """What differs since when, as last seen: (path, class, desired, observed, first seen)."""
        with self._database.read() as connection:
            return episodes.standing(connection, node)

    def record_service_status(
        self, stands: Mapping[str, ServiceStatus], now: datetime, *, within: timedelta, whole: bool
    ) -> None:
        """Open stretches are kept on, with what is written now. Inside a batch nothing is kept."""
        table, batch = schema.status_intervals, self._database.writing

        def read(connection: sa.Connection, memory: Memory) -> dict[str, status_intervals.Open]:
            found = status_intervals.standing(connection, self._fleet, None if whole else list(stands))
            return memory.lists.setdefault(table.name, found) if whole else found

        known = self._database.recall(lambda memory: memory.lists.get(table.name), read)
        with self._database.read() as connection:
            watch = status_intervals.watch_of(connection, self._fleet)
        news = status_intervals.news_of(known, watch, stands, now, within, whole=whole)
        if news:
            with self._database.write([table] if batch else []) as connection:
                status_intervals.write(connection, self._fleet, stands, news, now)
            status_intervals.keep(known, stands, news, now)

    def past(self, since: datetime, until: datetime) -> Past:
        """What is known of a period."""
        with self._database.read() as connection:
            return period.past(connection, self._fleet, since, until)

    # --- attempts ------------------------------------------------------------------------------------------------

    def begin(
        self, run: str, node: str, action: str, target: str, cause: str, intent: Mapping[str, Any], token: int,
        now: datetime,
    ) -> int:  # fmt: skip
        with self._database.write([schema.journal], [node]) as connection:
            self._check_token(connection, token, now)
            values = {"action": action, "target": target, "token": token, "data": to_json(intent)}
            return write_journal(connection, instant(now), run, node, "intent", detail=cause, **values)

    def resume(self, attempt: int, run: str, token: int, now: datetime) -> None:
        with self._database.write([]) as connection:
            self._check_token(connection, token, now)
            self._follow(attempt, "resume", "null", f"continued by {run}", now)

    def amend(self, attempt: int, intent: Mapping[str, Any], now: datetime) -> None:
        self._follow(attempt, "amendment", to_json(intent), "", now)

    def finish(self, attempt: int, outcome: str, detail: str, now: datetime) -> None:
        self._follow(attempt, "outcome", to_json(outcome), detail, now)

    def _follow(self, attempt: int, event: str, data: str, detail: str, now: datetime) -> None:
        with self._database.write([]) as connection:
            intent = attempts.intent(connection, attempt)
            of = {"action": intent.action, "target": intent.target, "attempt": attempt, "data": data, "detail": detail}
            with self._database.write([schema.journal], [intent.node]):
                write_journal(connection, instant(now), intent.run, intent.node, event, **of)

    def before(self, attempt: int) -> Mapping[str, Any]:
        with self._database.read() as connection:
            return attempts.before(connection, attempt)

    def unfinished(self) -> Sequence[tuple[int, str, str, str, Mapping[str, Any]]]:
        with self._database.read() as connection:
            return attempts.unfinished(connection, self._ours(schema.runs) if self._fleet else None)

    def history(
        self, node: str, limit: int = 200, *, since: datetime | None = None, pool: str = ""
    ) -> Sequence[JournalEntry]:
        """The newest entries, oldest first. `pool`: holds of it, and of the whole fleet, are part of the story too."""
        subjects = {node} if not pool else {node, f"pool/{pool}", FLEET}
        with self._database.read() as connection:
            told = node_history.tell(connection, subjects, limit, since)
            begun = node_history.rollouts_of(connection, node, since if len(told) < limit else told[0].at)
        return sorted([*begun, *told], key=lambda entry: entry.at)[-limit:]

    def stories(self, limit: int) -> Mapping[str, Sequence[JournalEntry]]:
        """The newest entries of every node, pool and fleet that has any, oldest first."""
        with self._database.read() as connection:
            return node_history.newest(connection, limit)

    def runs(self, names: Collection[str]) -> Mapping[str, RunRecord]:
        """What is known of these runs, by name."""
        with self._database.read() as connection:
            return node_history.of_runs(connection, names)

    # --- audit ---------------------------------------------------------------------------------------------------

    def last_commit(self) -> str:
        """That the newest run which acts was of; "" = there was none."""
        with self._database.read() as connection:
            return node_history.last_commit(connection, self._fleet)

    def audit(self, noted: str = "") -> chain.Audit:
        """Whether the journal is as it was written. `noted`: its head as somebody noted it before, or ""."""
        with self._database.read() as connection:
            return chain.verify(connection, noted)

    def journal(self, node: str | None, limit: int) -> Sequence[tuple[int, JournalEntry]]:
        """The newest rows by number, oldest first; of one node, or of all and of the runs."""
        table, runs = schema.journal, schema.runs
        query = sa.select(table, runs.c.commit_id, runs.c.plan).join(runs, runs.c.run == table.c.run, isouter=True)
        if node is not None:
            query = query.where(table.c.node == node)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(table.c.id.desc()).limit(limit)).all()
        return [(row.id, node_history.entry(row)) for row in reversed(rows)]

    def note(self, node: str, event: str, detail: str, now: datetime) -> None:
        """Write down what a person did, outside of any run."""
        with self._database.write([]) as connection:
            write_journal(connection, instant(now), "", node, event, detail=detail)

    def info(self) -> Info:
        with self._database.read() as connection:
            return inventory.info(connection, self._database.name)

    # --- holds ---------------------------------------------------------------------------------------------------

    def hold(
        self, subject: str, reason: str, owner: str, until: datetime | None, now: datetime, *, position: str = ""
    ) -> Hold:
        end = None if until is None else instant(until)
        said = {"subject": subject, "reason": clean(reason), "owner": clean(owner), "position": position}
        values = {**said, "since": instant(now), "until": end}
        with self._database.write([schema.holds], [subject]) as connection:
            hold_id = connection.execute(schema.holds.insert().values(values)).inserted_primary_key
            write_journal(connection, instant(now), "", subject, "hold", detail=f"{owner}: {reason}")
        assert hold_id is not None
        return Hold(hold_id[0], subject, reason, owner, now, until, position)

    def release(self, subject: str, owner: str, now: datetime) -> int:
        table = schema.holds
        standing = (table.c.subject == subject) & table.c.released_at.is_(None)
        with self._database.write([table], [subject]) as connection:
            lifted = connection.execute(
                table.update().where(standing).values(released_at=instant(now), released_by=owner)
            ).rowcount
            if lifted:
                write_journal(connection, instant(now), "", subject, "release", detail=owner)
        return lifted

    def holds(self) -> Sequence[Hold]:
        """All that were not released. One whose time has passed is still listed: the reader has the clock."""
        table = schema.holds
        query = sa.select(table).where(table.c.released_at.is_(None)).order_by(table.c.id)
        return self._list(table, lambda connection: tuple(to_hold(row)[0] for row in connection.execute(query)))

    # --- rollouts ------------------------------------------------------------------------------------------------

    def rollouts(self) -> Mapping[str, Rollout]:
        return self._list(schema.rollouts, lambda connection: rollouts.newest(connection, self._ours(schema.rollouts)))

    def start_rollout(self, rollout: Rollout, run: str) -> None:
        with self._database.write([schema.rollouts]) as connection:
            rollouts.insert(connection, rollout, run, self._fleet)

    def durations(self, limit: int = 20_000) -> Sequence[tuple[str, str, str, float]]:
        with self._database.read() as connection:
            return rollouts.durations(connection, limit)

    # --- plans, runs -------------------------------------------------------------------------------------

    def plan_used(self, plan_id: str) -> bool:
        query = sa.select(schema.plans.c.plan).where(schema.plans.c.plan == plan_id)
        with self._database.read() as connection:
            return connection.execute(query).one_or_none() is not None

    def use_plan(self, plan_id: str, now: datetime) -> None:
        if self.plan_used(plan_id):
            return
        with self._database.write([]) as connection:
            upsert(connection, schema.plans, [{"plan": plan_id, "used_at": instant(now)}])

    def start_run(self, run: str, command: str, commit: str, plan: str, now: datetime) -> None:
        values = {"run": run, "command": command, "commit_id": commit, "plan": plan}
        values |= {"started_at": instant(now), "fleet": self._fleet}
        with self._database.write([]) as connection:
            connection.execute(schema.runs.insert().values(values))
            write_journal(connection, instant(now), run, "", "run", detail=f"{command} started")

    def end_run(self, run: str, exit_code: int, summary: str, now: datetime) -> None:
        table = schema.runs
        values = {"ended_at": instant(now), "exit_code": exit_code, "summary": clean(summary)}
        with self._database.write([]) as connection:
            connection.execute(table.update().where(table.c.run == run).values(values))
            write_journal(connection, instant(now), run, "", "run", detail=f"exit {exit_code}: {summary}")
