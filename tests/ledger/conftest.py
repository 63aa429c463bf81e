"""The same tests over an SQLite file and over a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.ledger.postgresql import NoServer, Server, running_server

Open = Callable[[], SqlLedger]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        with running_server() as found:
            yield found
    except NoServer as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgresql(server: Server) -> Callable[[], str]:
    """Makes a new, empty database; returns its URL."""
    return server.database


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state" / "demo.sqlite")
    database: Callable[[], str] = request.getfixturevalue("postgresql")
    return database()


@pytest.fixture
def reopen(where: str) -> Iterator[Open]:
    """Opens the test's ledger, each time as another process would."""
    opened: list[SqlLedger] = []

    def again() -> SqlLedger:
        opened.append(SqlLedger(where, lock_timeout_s=5.0))
        return opened[-1]

    yield again
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(reopen: Open) -> SqlLedger:
    return reopen()
