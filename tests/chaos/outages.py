"""Outages of the services that a run needs: each begins at a given point and ends after some seconds.

They are as real as one machine allows: connections to the API server are cut and refused, another process locks the
ledger's file, a PostgreSQL server ends the ledger's connections and refuses new ones, the node's BMC does not answer.
The run itself continues.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from reconciler.lab import control

KILLED, API_AWAY, DATABASE_AWAY, POSTGRESQL_AWAY, BMC_AWAY = COLUMNS = (
    "killed", "API server away", "database away", "PostgreSQL away", "BMC away",
)  # fmt: skip
LOCK_S = 2.0  # lock timeout of the target process; other runs wait for 10 s
# In wall clock time: longer than a kubectl deadline in a scaled lab, and than LOCK_S.
AWAY_S = {API_AWAY: 8.0, DATABASE_AWAY: LOCK_S + 2.0, POSTGRESQL_AWAY: 4.0, BMC_AWAY: 8.0}
_PIECE = 1 << 16


class Forwarder:
    """A loopback port that forwards to another one. During an outage it cuts connections and refuses new ones."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._away = False
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def interrupt(self, seconds: float) -> None:
        self._away = True
        threading.Timer(seconds, self._restore).start()

    def _restore(self) -> None:
        self._away = False

    def _listen(self, port: int) -> socket.socket:
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(64)
        return found

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if self._away:
                _reset(near)
            else:
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as far:
            while not self._away:
                for ready in select.select([near, far], [], [], 0.02)[0]:
                    piece = ready.recv(_PIECE)
                    if not piece:
                        near.close()
                        return
                    (far if ready is near else near).sendall(piece)
        _reset(near)


def _reset(connection: socket.socket) -> None:
    """Close a connection with a TCP reset, as a port without a listener does."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


def api_outage(endpoints: Path) -> tuple[dict[str, Path], Callable[[], None]]:
    """Return kubeconfigs by cluster that go through a forwarder, and the function that begins its outage.

    The endpoints file stays as it is, because plans bind it.
    """
    forwarders: list[Forwarder] = []
    found = {}
    for name, cluster in json.loads(endpoints.read_text())["clusters"].items():
        given = endpoints.parent / cluster["kubeconfig"]
        text = given.read_text()
        [port] = {int(number) for number in re.findall(r"https://127\.0\.0\.1:(\d+)", text)}
        forwarders.append(Forwarder(port))
        mine = found[name] = given.with_name(f"kubeconfig-{endpoints.stem}-{name}")
        mine.touch(mode=0o600)
        mine.write_text(text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{forwarders[-1].port}"))

    def begin() -> None:
        for forwarder in forwarders:
            forwarder.interrupt(AWAY_S[API_AWAY])

    return found, begin


def database_outage(ledger: Path) -> Callable[[], None]:
    """Return a function that locks the ledger's file for longer than the target process waits."""

    def hold(locked: threading.Event) -> None:
        connection = sqlite3.connect(ledger, isolation_level=None, timeout=30.0)
        connection.execute("BEGIN IMMEDIATE")
        locked.set()
        time.sleep(AWAY_S[DATABASE_AWAY])
        connection.execute("ROLLBACK")
        connection.close()

    def begin() -> None:
        locked = threading.Event()
        threading.Thread(target=hold, args=(locked,), daemon=False).start()
        locked.wait(timeout=30.0)

    return begin


def postgresql_outage(ledger: str) -> Callable[[], None]:
    """Return a function that cuts all connections to the ledger's database and refuses new ones for a while."""
    url = sa.make_url(ledger).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    name = engine.dialect.identifier_preparer.quote(str(url.database))

    def allow(connections: bool) -> None:
        with engine.connect() as connection:
            connection.execute(sa.text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {str(connections).lower()}"))

    def begin() -> None:
        allow(False)
        with engine.connect() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
            connection.execute(sa.text(cut), {"name": url.database})
        threading.Timer(AWAY_S[POSTGRESQL_AWAY], allow, (True,)).start()

    return begin


def bmc_outage(lab: Path, node: str) -> Callable[[], None]:
    """Return a function that makes the BMC unreachable for a while; its operations continue."""

    def begin() -> None:
        control.inject_fault(lab, node, "bmc_unreachable", {})
        threading.Timer(AWAY_S[BMC_AWAY], lambda: control.clear_fault(lab, node, "bmc_unreachable")).start()

    return begin
