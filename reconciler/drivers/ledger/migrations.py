"""Create a ledger, or migrate one to another version of the schema: up, and down where that loses nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.drivers.ledger import chain, schema, seals
from reconciler.drivers.ledger.anchors import ANCHOR
from reconciler.drivers.ledger.changes import list_changes, list_no_nodes, list_nodes, unlist_changes
from reconciler.drivers.ledger.rows import LONG_AGO, instant, to_json
from reconciler.drivers.ledger.schema import FENCE, HEAD, LEDGER_ID, VERSION, meta
from reconciler.model.errors import LedgerError


def _create(connection: sa.Connection) -> None:
    schema.metadata.create_all(connection, checkfirst=False)  # the database is empty
    list_changes(connection)
    list_nodes(connection)
    own = str(uuid.uuid4())
    rows = {LEDGER_ID: own, FENCE: "0", HEAD: f"0 {own}"}
    connection.execute(meta.insert(), [{"key": key, "value": value} for key, value in rows.items()])


def _add_rollouts(connection: sa.Connection) -> None:
    key = "SERIAL" if connection.dialect.name == "postgresql" else "INTEGER"
    for statement in (
        f"CREATE TABLE rollouts (id {key} PRIMARY KEY, pool TEXT NOT NULL, digest TEXT NOT NULL, "
        "document TEXT NOT NULL, rollback INTEGER NOT NULL, started_at TEXT NOT NULL, commit_id TEXT NOT NULL, "
        "run TEXT NOT NULL, fleet TEXT NOT NULL DEFAULT '')",
        "CREATE INDEX ix_rollouts_pool ON rollouts (pool)",
        "ALTER TABLE holds ADD COLUMN position TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE nodes ADD COLUMN paths TEXT",
        "ALTER TABLE nodes ADD COLUMN fleet TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN fleet TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE path_sets (digest TEXT PRIMARY KEY, paths TEXT NOT NULL)",
        "ALTER TABLE leases ADD COLUMN since TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE journal ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
    ):
        connection.exec_driver_sql(statement)
    _chain_journal(connection)


def _chain_journal(connection: sa.Connection) -> None:
    """Chain the rows of version 1 as they are. Certificates are matched with rows by node and time."""
    bound: dict[tuple[str, str], list[str]] = {}
    issued = connection.exec_driver_sql("SELECT id, node, issued_at, document FROM certificates ORDER BY id DESC")
    for number, node, at, document in issued:
        bound.setdefault((node, at), []).append(to_json(chain.seal_of(number, document)))
    query = "SELECT id, at, run, node, event, action, target, attempt, token, detail, data FROM journal ORDER BY id"
    last, digest = 0, connection.execute(sa.select(meta.c.value).where(meta.c.key == LEDGER_ID)).scalar_one()
    chained = []
    for found in connection.exec_driver_sql(query).mappings():
        row = dict(found)
        if row["event"] == "certificate" and bound.get((row["node"], row["at"])):
            row["data"] = bound[row["node"], row["at"]].pop()
        last, digest = row["id"], chain.digest_of(digest, row)
        chained.append({"row": last, "sealed": row["data"], "digest": digest})
    if chained:
        connection.execute(sa.text("UPDATE journal SET data = :sealed, digest = :digest WHERE id = :row"), chained)
    connection.execute(meta.insert().values(key=HEAD, value=f"{last} {digest}"))


def _add_status_intervals(connection: sa.Connection) -> None:
    key = "SERIAL" if connection.dialect.name == "postgresql" else "INTEGER"
    for statement in (
        f"CREATE TABLE spells (id {key} PRIMARY KEY, fleet TEXT NOT NULL, node TEXT NOT NULL, pool TEXT NOT NULL, "
        "status TEXT NOT NULL, out_of_service INTEGER, code TEXT NOT NULL, why TEXT NOT NULL, since TEXT NOT NULL, "
        "seen TEXT NOT NULL, until TEXT)",
        "CREATE INDEX spells_node ON spells (fleet, node, since)",
        "CREATE INDEX spells_until ON spells (fleet, until)",
        "CREATE UNIQUE INDEX spells_open ON spells (fleet, node) WHERE until IS NULL",
        "CREATE TABLE watches (fleet TEXT PRIMARY KEY, since TEXT NOT NULL, seen TEXT NOT NULL)",
    ):
        connection.exec_driver_sql(statement)


def _seal_identities(connection: sa.Connection) -> None:
    """Bind the present identities as they are, as in `_chain_journal`."""
    rows = connection.exec_driver_sql(
        "SELECT node, serial, uuid, identity_at FROM nodes WHERE serial IS NOT NULL OR uuid IS NOT NULL ORDER BY node"
    )
    sealed = [
        {
            "at": at or instant(LONG_AGO),
            "run": "",
            "node": node,
            "event": chain.IDENTITY,
            "detail": "taken over from an older ledger",
            "data": to_json(chain.identity_of(serial, number)),
        }
        for node, serial, number, at in rows
    ]
    if not sealed:
        return
    with suppress(LedgerError):  # its head is damaged: the ledger still opens, and `audit verify` reports it
        chain.append(connection, sealed)


def _add_install_attempts(connection: sa.Connection) -> None:
    for statement in (
        "CREATE TABLE install_attempts (digest TEXT PRIMARY KEY, node TEXT NOT NULL, token TEXT NOT NULL, "
        "document TEXT NOT NULL, network TEXT NOT NULL, status TEXT NOT NULL, host_key TEXT NOT NULL, "
        "certificate TEXT NOT NULL, attested_key TEXT NOT NULL, revoked TEXT NOT NULL, begun_at TEXT NOT NULL, "
        "closed_at TEXT)",
        "CREATE INDEX install_attempts_node ON install_attempts (node, begun_at)",
    ):
        connection.exec_driver_sql(statement)


def _add_attestations(connection: sa.Connection) -> None:
    for statement in (
        "CREATE TABLE attestations (node TEXT PRIMARY KEY, endorsement TEXT, boot_id TEXT, reference TEXT, at TEXT, "
        "phase TEXT)",
        "CREATE INDEX ix_attestations_endorsement ON attestations (endorsement)",
    ):
        connection.exec_driver_sql(statement)


def _seal_rows(connection: sa.Connection) -> None:
    """Bind the present TPMs, proved boots and installs as they are, as in `_chain_journal`."""
    common = {"at": instant(LONG_AGO), "run": "", "event": seals.SEAL, "detail": "taken over from an older ledger"}
    rows = [
        common | {"node": row["node"], "data": to_json(seals.row_seal(table, row))}
        for table, row in seals.sealed_rows(connection)
    ]
    if rows:
        with suppress(LedgerError):
            chain.append(connection, rows)


def _add_gate_results(connection: sa.Connection) -> None:
    """Add the tables of results. Certificates of before stay where they are, and are read there."""
    key, real, bytes_, layout = "INTEGER", "DOUBLE", "BLOB", " WITHOUT ROWID"
    if connection.dialect.name == "postgresql":
        key, real, bytes_, layout = "SERIAL", "DOUBLE PRECISION", "BYTEA", ""
    for statement in (
        f"CREATE TABLE gate_tests (id {key} PRIMARY KEY, node TEXT NOT NULL, attempt INTEGER NOT NULL, "
        "profile TEXT NOT NULL, test TEXT NOT NULL, tool TEXT NOT NULL, tool_version TEXT NOT NULL, "
        "verdict TEXT NOT NULL, reasons TEXT NOT NULL, peers TEXT NOT NULL, started_at TEXT NOT NULL, "
        "ended_at TEXT NOT NULL, output TEXT NOT NULL)",
        "CREATE INDEX gate_tests_node ON gate_tests (node, id)",
        "CREATE TABLE gate_results (run INTEGER NOT NULL, metric TEXT NOT NULL, part TEXT NOT NULL, "
        f"value {real} NOT NULL, unit TEXT NOT NULL, PRIMARY KEY (run, metric, part)){layout}",
        f"CREATE TABLE gate_outputs (digest TEXT PRIMARY KEY, content {bytes_} NOT NULL)",
    ):
        connection.exec_driver_sql(statement)


def _add_outbox(connection: sa.Connection) -> None:
    for statement in (
        "CREATE TABLE IF NOT EXISTS channels (fleet TEXT NOT NULL, channel TEXT NOT NULL, state TEXT NOT NULL, "
        "at TEXT NOT NULL, PRIMARY KEY (fleet, channel))",
        "CREATE TABLE IF NOT EXISTS outbox (key TEXT PRIMARY KEY, fleet TEXT NOT NULL, channel TEXT NOT NULL, "
        "thread TEXT NOT NULL, severity TEXT NOT NULL, over INTEGER NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, "
        "since TEXT NOT NULL, number INTEGER NOT NULL, tries INTEGER NOT NULL, error TEXT NOT NULL, next_at TEXT)",
    ):
        connection.exec_driver_sql(statement)


def _add_repairs(connection: sa.Connection) -> None:
    key = "SERIAL" if connection.dialect.name == "postgresql" else "INTEGER"
    for statement in (
        f"CREATE TABLE IF NOT EXISTS repairs (id {key} PRIMARY KEY, node TEXT NOT NULL, phase TEXT NOT NULL, "
        "document TEXT NOT NULL, since TEXT NOT NULL, changed_at TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS repairs_node ON repairs (node, id)",
        "CREATE TABLE IF NOT EXISTS tickets (fleet TEXT NOT NULL, tracker TEXT NOT NULL, thread TEXT NOT NULL, "
        "number TEXT NOT NULL, url TEXT NOT NULL, begun_at TEXT NOT NULL, PRIMARY KEY (fleet, tracker, thread))",
    ):
        connection.exec_driver_sql(statement)
    if "about" not in {column["name"] for column in sa.inspect(connection).get_columns("outbox")}:
        connection.exec_driver_sql("ALTER TABLE outbox ADD COLUMN about TEXT NOT NULL DEFAULT '[]'")


def _add_history_indices(connection: sa.Connection) -> None:
    for statement in (
        "CREATE INDEX IF NOT EXISTS journal_intents ON journal (at) WHERE event = 'intent'",
        "CREATE INDEX IF NOT EXISTS journal_outcomes ON journal (at) WHERE event = 'outcome'",
        "CREATE INDEX IF NOT EXISTS journal_leases ON journal (token) WHERE event = 'lease'",
        "CREATE INDEX IF NOT EXISTS drift_ended ON drift (ended_at)",
        "CREATE TABLE IF NOT EXISTS open_attempts (attempt INTEGER PRIMARY KEY)",
        "DELETE FROM open_attempts",
        "INSERT INTO open_attempts SELECT id FROM journal AS began WHERE event = 'intent' AND NOT EXISTS "
        "(SELECT 1 FROM journal AS ended WHERE ended.attempt = began.id AND ended.event = 'outcome')",
    ):
        connection.exec_driver_sql(statement)


def _drop_history_indices(connection: sa.Connection) -> None:
    for index in ("journal_intents", "journal_outcomes", "journal_leases", "drift_ended"):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {index}")
    connection.exec_driver_sql("DROP TABLE IF EXISTS open_attempts")  # the journal has the same


def _add_index_of_anchors(connection: sa.Connection) -> None:
    connection.exec_driver_sql("CREATE INDEX IF NOT EXISTS journal_anchors ON journal (attempt) WHERE event = 'prune'")


def _drop_index_of_anchors(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP INDEX IF EXISTS journal_anchors")


def _add_day_sums(connection: sa.Connection) -> None:
    """Add an empty table: a leader fills it by and by, and until then reports read rows."""
    data = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS day_sums (what TEXT NOT NULL, fleet TEXT NOT NULL, day TEXT NOT NULL, "
        f"number INTEGER NOT NULL, ids BIGINT NOT NULL, rules TEXT NOT NULL, data {data} NOT NULL, "
        "PRIMARY KEY (what, fleet, day))"
    )


def _drop_day_sums(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP TABLE IF EXISTS day_sums")


def _pruned(connection: sa.Connection) -> str:
    anchors = sa.select(sa.func.count()).select_from(schema.journal).where(schema.is_event(schema.journal, ANCHOR))
    pruned = connection.execute(anchors).scalar_one()
    return "the journal was pruned, which a version before 12 takes for damage" if pruned else ""


@dataclass(frozen=True, slots=True)
class Migration:
    """The way from one version to the next. `adds`: for people, what the newer one has.

    `down`: the way back, for what the older version can do without; None: it would lose rows or leave them unsealed.
    `obstacle` says why this very ledger can't go back; "" = it can.
    """

    up: Callable[[sa.Connection], None]
    adds: str
    down: Callable[[sa.Connection], None] | None = None
    obstacle: Callable[[sa.Connection], str] = lambda _connection: ""


# Migration n leads from version n to version n + 1; the first creates a new ledger of the newest version. The others
# change what a released version wrote, and have their own DDL, because the tables in `schema` are always the newest.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(_create, "the ledger"),
    Migration(_add_rollouts, "rollouts, fleets that share a ledger, the chain of the journal"),
    Migration(_add_status_intervals, "the status of nodes over time"),
    Migration(_seal_identities, "rows of the journal that bind serial numbers and UUIDs"),
    Migration(_add_install_attempts, "attempts at installations, and revoked host keys"),
    Migration(_add_attestations, "TPMs and proved boots"),
    Migration(_seal_rows, "rows of the journal that bind TPMs, proved boots and installs"),
    Migration(_add_gate_results, "what gates measured, and what their tools printed"),
    Migration(_add_outbox, "messages that no channel has taken yet"),
    Migration(_add_repairs, "orders to exchange parts, and tickets"),
    Migration(_add_history_indices, "indices of the history", _drop_history_indices),
    Migration(_add_index_of_anchors, "an index of what was pruned", _drop_index_of_anchors, _pruned),
    Migration(list_changes, "the list of who wrote to cached tables (PostgreSQL)", unlist_changes),
    Migration(list_nodes, "the nodes that each of them wrote about (PostgreSQL)", list_no_nodes),
    Migration(_add_day_sums, "sums of past days", _drop_day_sums),
)
SCHEMA_VERSION = len(MIGRATIONS)


def read_version(connection: sa.Connection) -> int | None:
    """Return the schema's version, None for an empty database. ValueError: it is no ledger, or damaged."""
    tables = set(sa.inspect(connection).get_table_names())
    if meta.name not in tables:
        if tables & set(schema.metadata.tables):
            raise ValueError("it has tables of a ledger but no version")
        if tables:
            raise ValueError("it belongs to another program: it has tables, and none of them is ours")
        return None
    row = connection.execute(sa.select(meta.c.value).where(meta.c.key == VERSION)).one_or_none()
    if row is None or not row.value.isdigit():
        raise ValueError(f"its version {'is missing' if row is None else f'{row.value!r} is not a number'}")
    return int(row.value)


def obstacles(connection: sa.Connection, version: int, to: int) -> Iterator[tuple[int, str]]:
    """Yield each version that this ledger can't be taken back from without loss, with the reason, newest first."""
    for number in range(version, to, -1):
        one = MIGRATIONS[number - 1]
        why = f"version {number - 1} has no place for {one.adds}" if one.down is None else one.obstacle(connection)
        if why:
            yield number, why


def migrate(connection: sa.Connection, version: int | None, to: int = SCHEMA_VERSION) -> None:
    """Run all migrations from `version` to `to`, in the caller's transaction: a failed one changes nothing.

    On the way down there must be no obstacle.
    """
    if connection.dialect.name == "postgresql":  # an index of ten million rows takes longer than any query may
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    if version is None:
        _create(connection)
        connection.execute(meta.insert().values(key=VERSION, value=str(SCHEMA_VERSION)))
        return
    for one in MIGRATIONS[version:to]:
        one.up(connection)
    for one in reversed(MIGRATIONS[to:version]):
        assert one.down is not None  # see `obstacles`
        one.down(connection)
    connection.execute(meta.update().where(meta.c.key == VERSION).values(value=str(to)))
