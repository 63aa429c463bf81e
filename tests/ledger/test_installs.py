"""Attempts at an installation, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.errors import LedgerError
from reconciler.model.install import InstallCause, InstallPhase
from reconciler.model.install_progress import InstallAttempt, closed, digest_of
from tests.ledger.conftest import Open

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ONE = InstallAttempt(digest_of("t1"), "a", '{"node":"a"}', "", NOW, token="t1")


def test_an_attempt_is_found_by_its_token_after_a_restart(ledger: SqlLedger, reopen: Open) -> None:
    ledger.save_install(ONE, NOW)
    told = replace(
        ONE, fetched=True, phase=InstallPhase.WRITING, detail="a\0b", percent=40, at=NOW, host_key="ssh-ed25519 AA",
        certificate="cert", attested_key="ssh-ed25519 AA", revoked=("k1", "k2"), incident="why",
        cause=InstallCause.DISK,
    )  # fmt: skip
    ledger.save_install(told, NOW, "writing")
    again = reopen()
    assert again.install(digest_of("t1")) == replace(told, detail="ab")
    assert again.install(digest_of("t2")) is None
    assert [entry.detail for entry in again.history("a") if entry.event == "install"] == ["writing"]


def test_the_newest_open_attempt_of_a_node_is_found_until_it_is_withdrawn(ledger: SqlLedger) -> None:
    two = replace(ONE, digest=digest_of("t2"), token="t2", begun_at=NOW + timedelta(seconds=1))
    for attempt in (ONE, two):
        ledger.save_install(attempt, NOW)
    assert ledger.open_install("a") == two
    assert ledger.open_install("b") is None
    ledger.save_install(closed(two, NOW), NOW)
    assert ledger.open_install("a") == ONE
    kept = ledger.install(two.digest)
    assert kept is not None
    assert (kept.token, kept.closed_at) == ("", NOW), "the token is forgotten, the attempt is not"


def test_revoked_keys_outlive_their_attempts(ledger: SqlLedger, reopen: Open) -> None:
    assert tuple(ledger.revoked_host_keys()) == ()
    ledger.save_install(closed(replace(ONE, revoked=("ssh-ed25519 AA", "ssh-ed25519 BB")), NOW), NOW)
    assert tuple(ledger.revoked_host_keys()) == ("ssh-ed25519 AA", "ssh-ed25519 BB")
    assert tuple(reopen().revoked_host_keys()) == ("ssh-ed25519 AA", "ssh-ed25519 BB")


def test_a_damaged_attempt_is_said_and_hides_no_other(ledger: SqlLedger, where: str) -> None:
    ledger.save_install(ONE, NOW)
    ledger.save_install(replace(ONE, digest="d2", node="b"), NOW)
    engine = sa.create_engine(where if "://" in where else f"sqlite:///{where}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE install_attempts SET status = '{' WHERE node = 'a'")
    engine.dispose()
    with pytest.raises(LedgerError, match="an install attempt of a"):
        ledger.install(ONE.digest)
    assert ledger.open_install("b") is not None
