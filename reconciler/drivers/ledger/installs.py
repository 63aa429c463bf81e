"""Attempts at an installation, with what their installers reported and the host keys that were certified."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import clean, instant, to_instant, to_json, to_object
from reconciler.drivers.ledger.schema import install_attempts, journal
from reconciler.drivers.ledger.writing import write_journal, write_sealed
from reconciler.model.errors import LedgerError
from reconciler.model.install import InstallCause, InstallPhase
from reconciler.model.install_progress import InstallAttempt

_PLAIN = ("digest", "node", "token", "document", "network", "host_key", "certificate", "attested_key")


class SqlInstalls(SqlRole):
    def save_install(self, attempt: InstallAttempt, now: datetime, told: str = "") -> None:
        status = {
            "fetched": attempt.fetched,
            "phase": attempt.phase,
            "detail": clean(attempt.detail),
            "percent": attempt.percent,
            "at": None if attempt.at is None else instant(attempt.at),
            "incident": clean(attempt.incident),
            "erasures": attempt.erasures,
            "cause": attempt.cause,
        }
        row = {name: getattr(attempt, name) for name in _PLAIN} | {
            "status": to_json(status),
            "revoked": "\n".join(attempt.revoked),
            "begun_at": instant(attempt.begun_at),
            "closed_at": None if attempt.closed_at is None else instant(attempt.closed_at),
        }
        with self._database.write([install_attempts], [attempt.node]) as connection:
            write_sealed(connection, instant(now), install_attempts, row)
            if told:
                with self._database.write([journal], [attempt.node]):
                    write_journal(connection, instant(now), "", attempt.node, "install", detail=told)

    def install(self, digest: str) -> InstallAttempt | None:
        return self._found(sa.select(install_attempts).where(install_attempts.c.digest == digest))

    def open_install(self, node: str) -> InstallAttempt | None:
        table = install_attempts.c
        query = sa.select(install_attempts).where(table.node == node, table.closed_at.is_(None))
        return self._found(query.order_by(table.begun_at.desc()).limit(1))

    def installs(self) -> Sequence[InstallAttempt]:
        """Return every attempt. LedgerError: one of the rows is damaged."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(install_attempts).order_by(install_attempts.c.begun_at)).all()
        return [_decoded(row) for row in rows]

    def certified_install(self, node: str) -> InstallAttempt | None:
        table = install_attempts.c
        query = sa.select(install_attempts).where(table.node == node, table.certificate != "")
        return self._found(query.order_by(table.begun_at.desc()).limit(1))

    def revoked_host_keys(self) -> Sequence[str]:
        query = sa.select(install_attempts.c.revoked).where(install_attempts.c.revoked != "")

        def read(connection: sa.Connection) -> tuple[str, ...]:
            return tuple(line for (cell,) in connection.execute(query) for line in cell.splitlines())

        return self._whole_table(install_attempts, read)

    def _found(self, query: sa.Select[Any]) -> InstallAttempt | None:
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _decoded(row)


def _decoded(row: Any) -> InstallAttempt:
    try:
        return _attempt(row)
    except (ValueError, KeyError) as error:
        raise LedgerError(f"the ledger has a damaged row, an install attempt of {row.node}: {error}") from None


def _attempt(row: Any) -> InstallAttempt:
    status = to_object(row.status, "its status")
    at, phase, cause = status["at"], status["phase"], status.get("cause")  # those of earlier versions have none
    return InstallAttempt(
        **{name: getattr(row, name) for name in _PLAIN},
        begun_at=to_instant(row.begun_at, "its start"),
        closed_at=None if row.closed_at is None else to_instant(row.closed_at, "its end"),
        fetched=status["fetched"],
        phase=None if phase is None else InstallPhase(phase),
        detail=status["detail"],
        percent=status["percent"],
        at=None if at is None else to_instant(at, "its last call"),
        incident=status["incident"],
        cause=None if cause is None else InstallCause(cause),
        revoked=tuple(row.revoked.splitlines()),
        erasures=status.get("erasures", {}),
    )
