"""The cache gives what a fresh read would, whoever writes in between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger, schema
from reconciler.drivers.ledger.cache import Cache, CommitCount, Rows, Snapshot
from reconciler.drivers.ledger.changes import ANY, MOST
from reconciler.model.period_report import ServiceStatus
from reconciler.model.records import NodeRecord, Rollout
from reconciler.model.status import NodeStatus
from tests.ledger.conftest import Open
from tests.ledger.postgresql import Server
from tests.ledger.test_audit import tamper
from tests.ledger.test_damage import damage
from tests.ledger.test_ledger import certificate
from tests.ledger.test_migrating import migrated

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
NODES = ("a", "b", "c")
DAY = timedelta(days=1)


def everything(ledger: SqlLedger) -> object:
    return dict(ledger.nodes(NODES)), list(ledger.holds()), dict(ledger.rollouts())


def rollout(number: int) -> Rollout:
    return Rollout("train", f"digest-{number}", {"image.version": ("2",)}, {}, NODES, False, T0, "c0ffee")


@dataclass(frozen=True)
class Turn:
    ledger: SqlLedger
    node: str
    number: int

    @property
    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.number)

    def attempt(self) -> None:
        token = self.ledger.acquire(f"fleet-{self.number}", "runner", 60, self.now).token
        begun = self.ledger.begin("r", self.node, f"action-{self.number}", "", "", {}, token, self.now)
        if self.number % 3 == 0:
            self.ledger.finish(begun, "done", "", self.now)
        elif self.number % 3 == 1:
            self.ledger.resume(begun, "r2", token, self.now)

    def rolled_back(self) -> None:
        """A batch in which something was read."""
        with suppress(ZeroDivisionError), self.ledger.batch():
            self.ledger.set_nonce(self.node, "never", self.now)
            assert self.ledger.node(self.node).nonce == "never"
            _ = 1 / 0

    def drift(self) -> None:
        item = (self.node, "bios.X", "drifted", 1, self.number)
        self.ledger.record_drift("r", [item], [self.node], self.now)


WRITES: tuple[Callable[[Turn], object], ...] = (
    Turn.attempt,
    Turn.rolled_back,
    Turn.drift,
    lambda turn: turn.ledger.remember_identities({turn.node: (f"S{turn.number}", None)}, turn.now),
    lambda turn: turn.ledger.note_silences([(turn.node, "ssh", turn.number % 2 == 0)], turn.now),
    lambda turn: turn.ledger.remember_applied(turn.node, {"bios.X": turn.number}, "d", "c", turn.now),
    lambda turn: turn.ledger.remember_paths([turn.node], frozenset({f"bios.{turn.number}"})),
    lambda turn: turn.ledger.set_nonce(turn.node, f"n-{turn.number}", turn.now),
    lambda turn: turn.ledger.save_certificate(certificate(turn.node, turn.now)),
    lambda turn: turn.ledger.hold(turn.node, f"reason {turn.number}", "ops", None, turn.now),
    lambda turn: turn.ledger.hold("pool/train", f"reason {turn.number}", "ops", None, turn.now),
    lambda turn: turn.ledger.release(turn.node, "ops", turn.now),
    lambda turn: turn.ledger.start_rollout(rollout(turn.number), "r"),
    lambda turn: turn.ledger.redate_rollouts({"train": turn.now}),
    lambda turn: turn.ledger.forget([turn.node], turn.now),
)


@pytest.fixture
def two(reopen: Open) -> tuple[SqlLedger, SqlLedger]:
    return reopen(), reopen()


def test_whoever_writes_each_read_finds_what_a_fresh_one_would(two: tuple[SqlLedger, SqlLedger], reopen: Open) -> None:
    """Every kind of write, by one's own hand and by another's, in an order that nobody chose; looks in between."""
    chance = random.Random(7)
    todo = [*itertools.product(WRITES, (0, 1)), *itertools.product(WRITES, (0, 1))]
    chance.shuffle(todo)
    for number, (write, who) in enumerate(todo):
        write(Turn(two[who], chance.choice(NODES), number))
        if chance.random() < 0.7:
            fresh = reopen()
            truth = everything(fresh)
            fresh.close()
            assert everything(two[0]) == truth, f"the own look after {number}: {write}"
            assert everything(two[1]) == truth, f"the other's look after {number}: {write}"


def test_what_was_damaged_by_hand_between_two_reads_is_found(where: str, reopen: Open) -> None:
    """And a part that was found damaged is still said when another part was read again."""
    ledger = reopen()
    ledger.remember_applied("a", {"bios.X": 1}, "d", "c", T0)
    assert ledger.node("a").malformed == ""
    damage(where, schema.applied, value="tru")
    assert "applied value of bios.X is not JSON" in ledger.node("a").malformed
    ledger.set_nonce("a", "n", T0)
    assert "applied value of bios.X is not JSON" in ledger.node("a").malformed
    damage(where, schema.applied, value="1")
    assert ledger.node("a").malformed == ""
    assert ledger.node("a").nonce == "n"


def test_a_read_of_what_nobody_changed_asks_only_whether_it_changed(ledger: SqlLedger) -> None:
    ledger.remember_applied("a", {"bios.X": 1}, "d", "c", T0)
    ledger.save_certificate(certificate("a"))
    before = ledger.nodes(NODES)
    assert ledger.node("a") is before["a"]
    ledger.set_nonce("b", "n", T0)
    assert ledger.node("a") is before["a"], "what is written about one node is no news of another"
    ledger.set_nonce("a", "n", T0)
    assert ledger.node("a").certificate is before["a"].certificate, "only what was written to is read again"
    assert ledger.rollouts() is ledger.rollouts()
    assert ledger.holds() is ledger.holds()


def test_transactions_of_others_that_run_or_end_between_two_snapshots() -> None:
    earlier = Snapshot.of("5:9:5,7")
    assert Snapshot.of("5:9:5,7").ended_since(earlier) == frozenset()
    assert Snapshot.of("7:9:7").ended_since(earlier) == frozenset({5})
    assert Snapshot.of("5:11:5,7,10").ended_since(earlier) == frozenset({9})
    assert Snapshot.of("900000:900000:").ended_since(earlier) is None, "too many to name"
    assert Snapshot.of("3:4:").ended_since(earlier) is None, "another server's"
    assert CommitCount(3).ended_since(CommitCount(2)) is None


def changes_by(ended: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Two transactions changed something: holds of two nodes, and too much to list."""
    if 7 in ended:
        yield "holds", "a"
        yield "holds", "pool/train"
    if 9 in ended:
        yield ANY, ANY


def test_own_transactions_change_nothing_but_what_they_say() -> None:
    cache, record = Cache(), NodeRecord("a")
    cache.advance_to(Snapshot.of("7:7:"), changes_by)
    cache.tables |= {"holds": (), "rollouts": {}, "spells": Rows({"a": 1})}
    cache.put("a", record)
    cache.put("b", NodeRecord("b"))
    cache.own.add(7)
    cache.advance_to(Snapshot.of("8:8:"), changes_by)
    assert "holds" in cache.tables
    cache.advance_to(Snapshot.of("9:9:"), changes_by)
    assert "holds" in cache.tables, "transaction 8 wrote nothing that is cached"
    cache.advance_to(Snapshot.of("10:10:"), changes_by)
    assert not cache.records, "transaction 9 changed more than is listed"
    assert not cache.tables


def test_what_others_change_of_some_nodes_is_dropped_of_these_alone() -> None:
    cache = Cache()
    cache.advance_to(Snapshot.of("7:7:"), changes_by)
    cache.tables |= {"holds": (), "rollouts": {}}
    cache.put("a", NodeRecord("a"))
    cache.put("b", NodeRecord("b"))
    cache.advance_to(Snapshot.of("8:8:"), changes_by)
    assert list(cache.tables) == ["rollouts"]
    assert cache.record("a") is None
    assert cache.record("b") is not None


def test_transactions_that_write_nothing_of_the_ledger_cost_no_read(
    postgresql: Callable[[], str], server: Server
) -> None:
    """Those of other databases and of monitoring, and renewals of leases by others."""
    place = postgresql()
    ledger, other = SqlLedger(place), SqlLedger(place)
    ledger.remember_applied("a", {"bios.X": 1}, "d", "c", T0)
    before, holds = ledger.nodes(NODES), ledger.holds()
    server.say("CREATE TABLE IF NOT EXISTS foreign_one (at int)", "INSERT INTO foreign_one VALUES (1)")
    lease = other.acquire("demo", "standby", 60, T0)
    other.renew(lease, 60, T0)
    assert ledger.node("a") is before["a"]
    assert ledger.holds() is holds
    other.hold("a", "tracing a fault", "ops", None, T0)
    assert [one.reason for one in ledger.node("a").holds] == ["tracing a fault"]
    assert len(ledger.holds()) == 1
    ledger.close()
    other.close()


def test_what_another_fleet_or_an_operator_writes_costs_a_read_of_its_nodes_alone(
    postgresql: Callable[[], str],
) -> None:
    """Records and open intervals of the other nodes stay the very same values."""
    place, now, names = postgresql(), T0, [f"n{number}" for number in range(2 * MOST)]
    ledger, foreign = SqlLedger(place, fleet="one"), SqlLedger(place, fleet="two")
    with ledger.batch():
        for name in names:
            ledger.remember_applied(name, {"bios.X": 1}, "d", "c", T0)
    statuses = {name: ServiceStatus("train", NodeStatus.CONVERGED, False) for name in names}
    ledger.record_service_status(statuses, now, within=DAY, whole=True)
    before, known = ledger.nodes(names), ledger.known()
    read = _statements(ledger)
    with foreign.batch():
        foreign.remember_applied("x", {"bios.X": 1}, "d", "c", T0)
        foreign.remember_paths(["x"], frozenset({"bios.X"}))
        foreign.start_rollout(rollout(1), "r")
    foreign.record_service_status({"x": statuses["n1"]}, now, within=DAY, whole=True)
    foreign.hold("n1", "tracing a fault", "ops", None, T0)
    after = ledger.nodes(names)
    assert [name for name in names if after[name] is not before[name]] == ["n1"]
    assert ledger.known() == known, "x is another fleet's"
    ledger.record_service_status(statuses, now, within=DAY, whole=True)
    assert not [one for one in read if "WHERE true" in one or "WHERE" not in one], "no whole table is read"
    with foreign.batch():
        for name in names:
            foreign.set_nonce(name, "new", T0)
    assert {ledger.node(name).nonce for name in names} == {"new"}, "more than is listed, and all is read again"
    ledger.close()
    foreign.close()


def _statements(ledger: SqlLedger) -> list[str]:
    """Return a list that gets the statements about the largest tables from here on."""
    found: list[str] = []

    def keep(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if any(table in statement for table in ("FROM applied", "FROM spells", "FROM holds", "FROM journal")):
            found.append(statement)

    sa.event.listen(ledger._database._engine, "before_cursor_execute", keep)
    return found


@pytest.mark.parametrize("statement", ["UPDATE {} SET serial = 'S9'", "DELETE FROM {}", "TRUNCATE {}"])
def test_what_a_person_writes_with_a_shell_is_seen(postgresql: Callable[[], str], statement: str) -> None:
    place = postgresql()
    ledger = SqlLedger(place)
    ledger.remember_identities({"a": ("S1", None)}, T0)
    assert ledger.node("a").serial == "S1"
    engine = sa.create_engine(place.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql("SET search_path = ''")
        connection.exec_driver_sql(statement.format("public.nodes"))
    engine.dispose()
    assert ledger.node("a").serial == (None if "UPDATE" not in statement else "S9")
    ledger.close()


def test_the_list_of_writers_is_kept_short_and_is_restored(postgresql: Callable[[], str], server: Server) -> None:
    place = postgresql()
    ledger = SqlLedger(place)
    with ledger._database.write([]) as connection:
        connection.exec_driver_sql(
            "INSERT INTO changes (xid) SELECT -number FROM generate_series(100001, 100500) AS number"
        )
    for number in range(120):  # every fiftieth transaction deletes what is old
        ledger.set_nonce("a", str(number), T0)
    with ledger._database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM changes WHERE xid < 0").scalar_one() == 0
    copy, second = SqlLedger(again := server.restored(place)), SqlLedger(again)
    assert copy.node("a").nonce == "119"
    second.set_nonce("a", "another", T0)
    assert copy.node("a").nonce == "another"
    for one in (ledger, copy, second):
        one.close()


def test_an_older_ledger_gets_the_list_of_writers(ledger: SqlLedger, reopen: Open, where: str) -> None:
    if "://" in where:
        tamper(where, "DROP FUNCTION ledger_changed CASCADE", "DROP TABLE changes")
    tamper(where, "UPDATE meta SET value = '12' WHERE key = 'schema_version'")
    _are_seen(reopen(), reopen())


def test_the_list_of_nodes_comes_and_goes_with_its_version(where: str, reopen: Open) -> None:
    """Going back leaves the older list, which a migration takes up again."""
    ledger = reopen()
    ledger.set_nonce("a", "0", T0)
    ledger.close()
    migrated(where, 13)
    if "://" in where:
        tamper(where, "UPDATE nodes SET nonce = 'x'")  # listed as it was in that version
    _are_seen(reopen(), reopen())


def _are_seen(one: SqlLedger, other: SqlLedger) -> None:
    one.set_nonce("a", "1", T0)
    assert one.node("a").nonce == "1"
    other.set_nonce("a", "2", T0)
    assert one.node("a").nonce == "2"
