"""A ledger that fails in the middle of an apply: the run ends with an error that names it, and the next one goes on.

The trouble is real: files that may not grow, a lock that another process holds, a server that crashed or takes no
writes. It comes after some write to the fleet, so that attempts are in flight whose outcome can't be written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from reconciler.converge.run import Ended
from reconciler.drivers.ledger import SqlLedger, schema
from reconciler.drivers.ledger.rows import instant
from reconciler.model.errors import LedgerError
from tests.converge.test_fencing import Scribe, lasting
from tests.converge.world import World
from tests.ledger.postgresql import Server
from tests.ledger.test_damage import damage, files_of_at_most

Trouble = Callable[[pytest.FixtureRequest, str], AbstractContextManager[None]]
DRIFT = {"n*": ["bios_off", {"old_firmware": {"component": "nic0"}}, "sysctl_off"]}


@contextmanager
def full_disk(_request: pytest.FixtureRequest, _where: str) -> Iterator[None]:
    with files_of_at_most(16384):
        yield


@contextmanager
def locked(_request: pytest.FixtureRequest, where: str) -> Iterator[None]:
    with closing(sqlite3.connect(where, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def crashed_server(request: pytest.FixtureRequest, _where: str) -> Iterator[None]:
    server: Server = request.getfixturevalue("server")
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def no_writes(request: pytest.FixtureRequest, _where: str) -> Iterator[None]:
    server: Server = request.getfixturevalue("server")
    server.say("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.2)")
    try:
        yield
    finally:
        server.say(
            "SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()", "SELECT pg_sleep(0.2)",
        )  # fmt: skip


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgresql":
        yield request.getfixturevalue("postgresql")()
    else:
        yield str(tmp_path / "state" / "ledger.sqlite")


@pytest.mark.parametrize("moment", [3, 9])
@pytest.mark.parametrize(
    ("place", "trouble", "told"),
    [
        ("sqlite", full_disk, r"the ledger .*ledger\.sqlite can't be (read or )?written.*disk"),
        ("sqlite", locked, r"the ledger .*ledger\.sqlite is locked by another process; .*`fuser`"),
        (
            "postgresql",
            crashed_server,
            r"postgresql://r@/ledger\S* does not work: .*; check that the server is up",
        ),
        ("postgresql", no_writes, r"postgresql://r@/ledger\S* does not work: .*read-only transaction"),
    ],
    indirect=["place"],
)
def test_a_run_ends_with_a_clear_error_and_the_next_one_goes_on(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, trouble: Trouble, told: str, moment: int
) -> None:
    here = World(tmp_path, nodes=2, drift=DRIFT)
    here.ledger.close()
    here.ledger = SqlLedger(place, lock_timeout_s=0.2)
    here.adopt()
    with ExitStack() as lasts:

        def comes(number: int) -> None:
            if number == moment:
                lasts.enter_context(trouble(request, place))

        scribe = Scribe(here, comes)
        with pytest.raises(LedgerError, match=told) as raised:
            here.apply()
        written = len(scribe.writes)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("what was under way is parked, and the next run continues it")
    here.ledger.close()

    here.ledger = SqlLedger(place, lock_timeout_s=5.0)
    assert here.ledger.audit().problem == "", "nothing is half-written"
    assert here.ledger.unfinished(), "what was in flight is known"
    here.clock.elapsed += 61  # its lease may not have been given back
    done = here.apply()
    assert {result.state for result in done.results.values()} <= {Ended.DONE, Ended.CONVERGED}, done.results
    assert lasting(here) == [(0, 1, 0)] * 2, (
        f"something was done twice; the trouble came after {scribe.writes[:written]}"
    )
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert here.ledger.unfinished() == []
    assert here.ledger.leases() == []
    here.ledger.close()


def test_a_connection_that_is_lost_between_two_calls_is_not_even_noticed(server: Server, tmp_path: Path) -> None:
    place = server.database()
    here = World(tmp_path, nodes=1, drift={"n0": ["bios_off"]})
    here.ledger.close()
    here.ledger = SqlLedger(place)
    here.adopt()
    Scribe(here, lambda number: _cut(server) if number in (2, 5) else None)
    assert here.apply().results["n0"].state is Ended.DONE
    here.ledger.close()


def _cut(server: Server) -> None:
    """All connections, as a firewall that forgets or a failover does."""
    server.say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'r'")


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_a_node_with_a_damaged_row_is_left_alone_and_says_so_and_its_counters_stay(tmp_path: Path, place: str) -> None:
    """Pitfall M6. The row is of an attempt: to do without it would be to count one less."""
    here = World(tmp_path, nodes=2, drift={"n*": ["bios_off"]})
    here.ledger.close()
    here.ledger = SqlLedger(place, lock_timeout_s=5.0)
    here.adopt()
    lease = here.ledger.acquire("earlier", "a run", 60.0, here.clock.now())
    begun = here.ledger.begin("run-0", "n0", "power_cycle", "", "remediation", {}, lease.token, here.clock.now())
    here.ledger.finish(begun, "done", "", here.clock.now())
    damage(place, schema.journal, begun, at="yesterday")
    report = here.apply()
    assert report.results["n0"].state is Ended.NOT_STARTED
    assert f"time of attempt {begun} 'yesterday' is not a time" in report.results["n0"].detail
    assert report.results["n1"].state is Ended.DONE
    assert here.machine("n0").state.counters.bios_writes == 0
    assert not here.marked("n0")
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None
    assert "is not a time" in blocked.detail, "the next pass says it again"
    damage(place, schema.journal, begun, at=instant(here.clock.now()))
    assert len(here.ledger.node("n0").attempts) == 1, "nothing was forgotten for it"
    assert here.apply().results["n0"].state is Ended.DONE
    here.ledger.close()
