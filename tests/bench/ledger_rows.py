"""Fill a ledger with the journal of some months: whole stories of nodes, chained as the ledger chains them.

Of sixty stories two are incidents (a sign of illness, an isolation, a restart, a gate, an admission), eight are a new
image, and the others are drift that came and was set right. Each writes the rows that the loop writes for it, in the
tables where it does. A hundred rows for each node are then, in 90 days: an image a month, drift every five days, and an
illness at every second node.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.rows import instant, to_json
from reconciler.drivers.ledger.schema import (
    FENCE,
    HEAD,
    coverage,
    drift,
    journal,
    meta,
    metadata,
    runs,
    status_intervals,
)
from reconciler.health.ladder import REMEDIATION
from reconciler.model.period_report import ILL
from reconciler.model.records import ISOLATED

BEGIN: Final = datetime(2026, 8, 1, tzinfo=UTC)
FLEET: Final = "bench"
_PAGE = 50_000  # rows of one statement
_SIGNS = ("health.xid_79", "health.ecc_uncorrectable", "health.port_down", "health.psu_failed", "health.gpu_missing")
_PATHS = ("bios.NumaNodesPerSocket", "host.sysctls.vm.swappiness", "host.services.nvidia-persistenced", "gpu.power")
_RUN_S = 8 * 3600.0  # a runner is restarted
_OF, _INCIDENTS, _IMAGES = 60, 2, 8  # of so many stories, so many are incidents and new images
ROWS = 16 * (_INCIDENTS + _IMAGES) + 2 * (_OF - _INCIDENTS - _IMAGES)  # of `_OF` stories
NODES_PER_ROW = 0.01  # in 90 days

Row = dict[str, Any]


@dataclass(slots=True)
class _Rows:
    """Rows by table, until they are written. `last`: number and digest of the journal's last row."""

    last: int
    digest: str
    episodes: int = 0
    pages: dict[sa.Table, list[Row]] = field(default_factory=dict)

    def add(self, table: sa.Table, row: Row) -> None:
        self.pages.setdefault(table, []).append(row)

    def journal(self, at: datetime, node: str, event: str, **values: Any) -> int:
        run = f"run-{int((at - BEGIN).total_seconds() // _RUN_S)}"
        row: Row = {"action": "", "target": "", "attempt": None, "token": None, "data": "null", "detail": ""}
        row |= {"at": instant(at), "run": run, "node": node, "event": event, "id": self.last + 1, **values}
        self.digest = row["digest"] = chain.digest_of(self.digest, row)
        self.last += 1
        self.add(journal, row)
        return self.last


def fill(engine: sa.Engine, rows: int, nodes: Sequence[str], days: float) -> None:
    """Write about `rows` rows of the journal about these nodes into an empty ledger, without care for a power cut."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            direct: Any = connection.connection.driver_connection
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-400000"):
                direct.execute(f"PRAGMA {pragma}")
        with connection.begin():
            _fill(connection, rows, nodes, days)
    engine.dispose()  # with these settings
    vacuum(engine)


def _fill(connection: sa.Connection, rows: int, nodes: Sequence[str], days: float) -> None:
    indices = [index for table in (journal, drift, status_intervals) for index in table.indexes]
    for index in indices:
        index.drop(connection)
    last, digest = connection.execute(sa.select(meta.c.value).where(meta.c.key == HEAD)).scalar_one().split()
    made = _Rows(int(last), digest)
    _passes(made, days)
    for _ in _stories(made, rows, nodes, days):
        if len(made.pages[journal]) >= _PAGE:
            _write(connection, made.pages)
    _write(connection, made.pages)
    connection.execute(meta.update().where(meta.c.key == HEAD).values(value=f"{made.last} {made.digest}"))
    connection.execute(meta.update().where(meta.c.key == FENCE).values(value="1"))  # of the one lease there was
    if connection.dialect.name == "postgresql":
        for table in (journal, drift, status_intervals):
            told = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"
            connection.exec_driver_sql(told)
    for index in indices:
        index.create(connection)


def vacuum(engine: sa.Engine) -> None:
    """Do what the autovacuum of PostgreSQL does within a minute, and `PRAGMA optimize` of a long-lived connection."""
    statement = "VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "PRAGMA optimize"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)


def _passes(made: _Rows, days: float) -> None:
    for number in range(int(days * 86400 / _RUN_S) + 1):
        began = BEGIN + timedelta(seconds=number * _RUN_S)
        made.add(runs, {
            "run": f"run-{number}", "command": "run", "commit_id": f"{number:040x}", "plan": "",
            "started_at": instant(began), "ended_at": instant(began + timedelta(seconds=_RUN_S)), "exit_code": 0,
            "summary": "stopped", "fleet": FLEET,
        })  # fmt: skip


def _stories(made: _Rows, rows: int, nodes: Sequence[str], days: float) -> Iterator[None]:
    chance, many = random.Random(18), max(rows // ROWS, 1) * _OF
    last: dict[str, datetime] = {}
    for number in range(many):
        at = BEGIN + timedelta(days=days * number / many)
        node = nodes[chance.randrange(len(nodes))]
        if last.get(node, BEGIN) + timedelta(hours=2) > at:
            node = nodes[(number * 7919) % len(nodes)]
        kind = number % _OF % (_OF // (_INCIDENTS + _IMAGES))
        if kind == 0:
            ill = number % _OF < _INCIDENTS * _OF // (_INCIDENTS + _IMAGES)
            _work(made, at, node, chance.choice(_SIGNS) if ill else "image.version", last.get(node, BEGIN))
            last[node] = at + timedelta(minutes=70)
        else:
            _came_and_went(made, at, node, chance.choice(_PATHS))
        yield
    _well_until_now(made, nodes, last, BEGIN + timedelta(days=days))


def _well_until_now(made: _Rows, nodes: Sequence[str], last: Mapping[str, datetime], now: datetime) -> None:
    """Leave the interval of each node open in which it is well since its last story, as a loop does that watches."""
    for node in nodes:
        since = instant(min(last.get(node, BEGIN), now))
        made.add(status_intervals, {
            "fleet": FLEET, "node": node, "pool": "training-1", "status": "converged", "out_of_service": 0, "code": "",
            "why": "", "since": since, "seen": since, "until": None,
        })  # fmt: skip
    made.add(coverage, {"fleet": FLEET, "since": instant(BEGIN), "seen": instant(now)})


def _came_and_went(made: _Rows, at: datetime, node: str, path: str) -> None:
    end = at + timedelta(minutes=4)
    seen = {"path": path, "kind": "drifted", "desired": "1", "observed": "60"}
    made.journal(at, node, "drift", detail=f'{path} drifted: "60" instead of "1"', data=to_json(seen))
    made.journal(
        end, node, "drift", detail=f"{path} as desired again", data=to_json({"path": path, "since": instant(at)})
    )
    _episode(made, at, end, node, path)


def _episode(made: _Rows, at: datetime, end: datetime, node: str, path: str) -> None:
    made.episodes += 1
    made.add(drift, {
        "id": made.episodes, "node": node, "path": path, "kind": "drifted", "desired": '"1"', "observed": '"60"',
        "first_seen": instant(at), "last_seen": instant(end), "ended_at": instant(end),
    })  # fmt: skip


def _work(made: _Rows, at: datetime, node: str, path: str, since: datetime) -> None:
    """Write an hour of work on a node for a value path, and the intervals of its status; it was converged `since`."""
    end, ill = at + timedelta(minutes=66), path.startswith("health.")
    fix = ("soft_restart", REMEDIATION) if ill else ("reimage", path)
    made.journal(at, node, "drift", detail=f'{path} drifted: "1" instead of "0"', data=to_json({"path": path}))
    steps = (("mark", f"{ISOLATED}{path}" if ill else path), ("drain", f"required by {fix[0]}"), fix,
             ("run_gate", "gate"), ("admit", "gate"))  # fmt: skip
    for minute, (action, cause) in zip((1, 3, 6, 14, 64), steps, strict=True):
        begun = at + timedelta(minutes=minute)
        intent = to_json({"boot_id": "8f0d5e2c-6c57-4f3b-b8d7-51a9f1c3a0de", "by": "runner"})
        number = made.journal(begun, node, "intent", action=action, token=1, detail=cause, data=intent)
        of = {"action": action, "attempt": number}
        if action != "admit":
            made.journal(
                begun + timedelta(minutes=1), node, "amendment", **of, data=to_json({"started": instant(begun)})
            )
        made.journal(begun + timedelta(minutes=2), node, "outcome", **of, data='"done"', detail="as it should be")
    made.journal(
        end, node, "drift", detail=f"{path} as desired again", data=to_json({"path": path, "since": instant(at)})
    )
    _episode(made, at, end, node, path)
    first = ("waiting", 1, ILL) if ill else ("planned", 0, "")
    for begun, over, (status, out, code) in (
        (since, at, ("converged", 0, "")),
        (at, at + timedelta(minutes=1), first),
        (at + timedelta(minutes=1), end, ("acting", 1, "")),
        (end, end + timedelta(minutes=4), ("acting", 0, "")),
    ):
        made.add(status_intervals, {
            "fleet": FLEET, "node": node, "pool": "training-1", "status": status, "out_of_service": out, "code": code,
            "why": path if code else "", "since": instant(begun), "seen": instant(begun), "until": instant(over),
        })  # fmt: skip


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(connection: sa.Connection, pages: dict[sa.Table, list[Row]]) -> None:
    for table in metadata.sorted_tables:
        if rows := pages.pop(table, []):
            (_copy if connection.dialect.name == "postgresql" else _insert)(connection, table, rows)
    pages[journal] = []


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    names = tuple(rows[0])
    told = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    connection.exec_driver_sql(told, [tuple(row[name] for name in names) for row in rows])


def _copy(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    names = tuple(rows[0])
    direct: Any = connection.connection.driver_connection
    with direct.cursor() as cursor, cursor.copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN") as out:
        for row in rows:
            out.write_row([row[name] for name in names])
