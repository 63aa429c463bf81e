"""`reconciler conformance ledger` on real databases, and on ones that are set up badly."""

from __future__ import annotations

import pwd
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.ledger.conformance import Bench
from reconciler.model.errors import DriverError, Failure
from tests.cli.shell import Done, reconciler, until
from tests.ledger.postgresql import Server

pytestmark = pytest.mark.wire
_UNSAFE = {"durable"}  # the tests' server runs with fsync=off, which is faster, and what the check is for


def conformance(where: str, *words: str) -> Done:
    return reconciler("conformance", "ledger", where, "--output", "json", *words)


def results(done: Done) -> dict[str, str]:
    return {one["name"]: one["result"] for one in done.json["checks"]}


def failed(done: Done) -> dict[str, str]:
    return {one["name"]: one["detail"] for one in done.json["checks"] if one["result"] == "fail"}


def tables(url: str) -> set[tuple[str, str]]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text("SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_|^info'")
        )
        found = {(row[0], row[1]) for row in rows}
    engine.dispose()
    return found


def changed(url: str, *statements: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_postgresql_passes_and_keeps_nothing_of_it(postgresql: Callable[[], str]) -> None:
    url = postgresql()
    SqlLedger(url).close()
    before = tables(url)
    done = conformance(url)
    skipped = dict.fromkeys(("write-schema", "write-lease", "write-expiry", "write-seen"), "not tried")
    assert results(done).items() >= skipped.items()
    assert failed(done).keys() == _UNSAFE, done.out
    assert "fsync is off" in failed(done)["durable"]
    assert done.code == 7
    written = conformance(url, "--allow-writes")
    assert failed(written).keys() == _UNSAFE, written.out + written.err
    assert set(results(written).values()) == {"pass", "fail"}
    assert tables(url) == before


def test_what_is_set_up_badly_fails_with_the_reason(postgresql: Callable[[], str]) -> None:
    url = postgresql()
    name = url.split("/")[3].partition("?")[0]
    changed(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert "synchronous_commit is off: a power cut loses intents" in failed(conformance(url))["durable"]
    changed(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    done = conformance(url, "--allow-writes")
    assert failed(done)["primary"] == "its transactions are read-only"
    assert "a schema can't be made" in failed(done)["write-schema"]


def test_a_database_that_is_away_is_not_failed(server: Server) -> None:
    done = conformance("postgresql://r@127.0.0.1:9/fleet")
    assert (done.code, set(results(done).values())) == (4, {"not tried"}), done.out
    assert reconciler("conformance", "ledger", "mysql://db/fleet").code != 0


def test_a_password_is_in_no_output(server: Server) -> None:
    done = conformance("postgresql://r:pa55w0rd@127.0.0.1:9/fleet")
    assert "pa55w0rd" not in done.out + done.err


def test_an_sqlite_file_passes_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    place = tmp_path / "fleet.sqlite"
    missing = conformance(str(place))
    assert (missing.code, "name a database that is there" in missing.err) == (64, True)
    SqlLedger(place).close()
    done = conformance(str(place), "--allow-writes")
    assert (done.code, failed(done)) == (0, {}), done.out + done.err
    assert set(results(done).values()) == {"pass", "not offered"}
    assert {file.name.split("-")[0] for file in tmp_path.iterdir()} == {"fleet.sqlite"}


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    place = tmp_path / "fleet.sqlite"
    place.write_bytes(b"not a database, and long enough to be read as one\n" * 100)
    done = conformance(str(place))
    assert (done.code, set(failed(done))) == (7, {"version", "durable"}), done.out + done.err
    assert "file is not a database" in failed(done)["version"]
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(place).execute("SELECT * FROM sqlite_master")


def test_a_lease_that_two_can_hold_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a database whose writes of two connections do not wait for one another."""
    place = tmp_path / "fleet.sqlite"
    SqlLedger(place).close()
    acquire = SqlLedger.acquire

    def careless(self: SqlLedger, scope: str, holder: str, *rest: object) -> object:
        return acquire(self, f"{scope}-{holder}", holder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "acquire", careless)
    done = conformance(str(place), "--allow-writes")
    assert done.code == 7
    assert "given to another, too" in failed(done)["write-lease"]


# --- behind a pooler --------------------------------------------------------------------------------------------------

_POOLER = """
[databases]
* = host={home} user=r
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = options,extra_float_digits
"""


@pytest.fixture
def pooled(postgresql: Callable[[], str]) -> Iterator[Callable[[str], str]]:
    """Returns the URL of a new database behind PgBouncer, which drops `options`, as many do. `mode`: it pools by."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed here")
    started: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        url = postgresql()
        name, home = url.split("/")[3].partition("?")[0], url.partition("host=")[2]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = Path(home) / f"{mode}.ini"  # where its user may read
        settings.write_text(_POOLER.format(home=home, port=port, mode=mode))
        settings.chmod(0o644)
        user = {"user": "postgres"} if pwd.getpwuid(settings.stat().st_uid).pw_name == "root" else {}
        started.append(
            subprocess.Popen([program, "-q", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
        )

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(listens, 20)
        return f"postgresql://r@127.0.0.1:{port}/{name}"

    yield start
    for one in started:
        one.terminate()
        one.wait(20)


@pytest.mark.tool
def test_a_pooler_by_transactions_fails_and_one_by_sessions_does_not(pooled: Callable[[str], str]) -> None:
    assert "pool by session, not transaction" in failed(conformance(pooled("transaction")))["session"]
    assert results(conformance(pooled("session")))["session"] == "pass"


@pytest.mark.tool
def test_the_real_ledger_is_not_written_where_a_pooler_drops_our_schema(pooled: Callable[[str], str]) -> None:
    url = pooled("session")
    done = conformance(url, "--allow-writes")
    for name in ("write-schema", "write-lease", "write-expiry", "write-seen"):
        assert "name the server itself" in failed(done)[name]
    assert tables(url) == set(), "nothing is made in the database itself"


# --- what is not as it should be -------------------------------------------------------------------------------------


def test_a_file_of_another_program_fails_and_is_left_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "other.sqlite"
    with sqlite3.connect(place) as other:
        other.execute("CREATE TABLE t (x)")
    before = place.read_bytes()
    done = conformance(str(place))
    assert done.code == 7
    assert failed(done).keys() == {"version", "durable"}
    assert "it belongs to another program" in failed(done)["version"]
    assert "its journal mode is delete" in failed(done)["durable"]
    assert place.read_bytes() == before


def test_a_database_that_goes_away_half_way_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "fleet.sqlite"
    SqlLedger(place).close()
    asked = Bench.asked

    def going(self: Bench, query: str, **values: object) -> object:
        if query.startswith("PRAGMA"):
            raise DriverError(Failure.UNREACHABLE, "the server closed the connection")
        return asked(self, query, **values)

    monkeypatch.setattr(Bench, "asked", going)
    done = conformance(str(place))
    assert (done.code, results(done)["answers"], results(done)["session"]) == (4, "pass", "not tried")


def test_what_a_database_refuses_is_a_failed_check(postgresql: Callable[[], str]) -> None:
    """As of one that knows no advisory locks: the checks after it are tried, too."""
    url = postgresql()
    changed(
        url,
        "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint) FROM PUBLIC",
        "CREATE ROLE plain LOGIN",
        f"GRANT ALL ON DATABASE {url.split('/')[3].partition('?')[0]} TO plain",
    )
    done = conformance(url.replace("r@", "plain@"), "--allow-writes")
    assert "permission denied for function pg_try_advisory_lock" in failed(done)["session"]
    assert results(done)["write-schema"] == "pass"
