"""Rollouts and durations, on SQLite and PostgreSQL; and a ledger of the first version, which had neither."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.errors import LedgerError
from reconciler.model.install_progress import InstallAttempt
from reconciler.model.measurements import Attestation
from reconciler.model.period_report import ServiceStatus
from reconciler.model.records import Rollout
from reconciler.model.status import NodeStatus
from tests.ledger.conftest import Open
from tests.ledger.test_ledger import certificate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ONE = Rollout(
    "train", "d1", {"image.version": ("2",)}, {"image.version": ("1", None)}, ("b", "a"), False, NOW, "c0ffee"
)


def _execute(where: str, *statements: str) -> None:
    url = where.replace("postgresql://", "postgresql+psycopg://") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_the_newest_rollout_of_each_pool_is_read_as_it_was_written(ledger: SqlLedger) -> None:
    two = replace(ONE, digest="d2", rollback=True, members=("a",))
    other = replace(ONE, pool="serve")
    for rollout in (ONE, other, two):
        ledger.start_rollout(rollout, "run-1")
    assert ledger.rollouts() == {"train": two, "serve": other}


def test_the_newest_rollout_of_a_pool_is_dated_anew_where_the_clock_was_set(ledger: SqlLedger, reopen: Open) -> None:
    two, other, later = replace(ONE, digest="d2"), replace(ONE, pool="serve"), NOW + timedelta(hours=3)
    for rollout in (ONE, two, other):
        ledger.start_rollout(rollout, "run-1")
    assert ledger.rollouts()["train"].started_at == NOW
    ledger.redate_rollouts({"train": later})
    assert ledger.rollouts() == reopen().rollouts() == {"train": replace(two, started_at=later), "serve": other}


def test_a_damaged_rollout_is_said(ledger: SqlLedger, where: str) -> None:
    ledger.start_rollout(ONE, "run-1")
    _execute(where, "UPDATE rollouts SET document = '{}'")
    with pytest.raises(LedgerError, match="rollout 1 of pool train is damaged"):
        ledger.rollouts()


def test_a_ledger_of_version_1_becomes_one_of_now_and_keeps_what_it_had(
    ledger: SqlLedger, where: str, reopen: Open
) -> None:
    ledger.hold("a", "under test", "ops", None, NOW)
    for node in ("a", "b", "a"):
        ledger.save_certificate(certificate(node, NOW))
    ledger.close()
    _execute(
        where,
        "DROP TABLE gate_tests",
        "DROP TABLE gate_results",
        "DROP TABLE gate_outputs",
        "DROP TABLE install_attempts",
        "DROP TABLE attestations",
        "DROP TABLE spells",
        "DROP TABLE watches",
        "DROP TABLE rollouts",
        "ALTER TABLE holds DROP COLUMN position",
        "ALTER TABLE nodes DROP COLUMN paths",
        "ALTER TABLE nodes DROP COLUMN fleet",
        "ALTER TABLE runs DROP COLUMN fleet",
        "DROP TABLE path_sets",
        "ALTER TABLE leases DROP COLUMN since",
        "ALTER TABLE journal DROP COLUMN digest",
        "UPDATE journal SET data = 'null' WHERE event = 'certificate'",
        "DELETE FROM meta WHERE key = 'journal_head'",
        "UPDATE meta SET value = '1' WHERE key = 'schema_version'",
    )
    again = reopen()
    assert [hold.reason for hold in again.holds()] == ["under test"]
    again.start_rollout(ONE, "run-1")
    assert again.rollouts() == {"train": ONE}
    again.record_service_status(
        {"a": ServiceStatus("train", NodeStatus.HELD, out=False)}, NOW, within=timedelta(hours=2), whole=True
    )
    assert [spell.status for spell in again.past(NOW, NOW).status_intervals] == [NodeStatus.HELD]
    again.release("a", "ops", NOW)
    again.save_install(InstallAttempt("d1", "a", "{}", "", NOW, token="t"), NOW)
    assert again.open_install("a") == InstallAttempt("d1", "a", "{}", "", NOW, token="t")
    again.save_attestation("a", Attestation("reference", NOW, "start", "boot"), {})
    assert again.node("a").attestation == Attestation("reference", NOW, "start", "boot")
    found = again.audit()
    assert (found.rows, found.certificates, found.problem) == (8, 3, ""), "what version 1 wrote is part of the chain"
    _execute(where, "UPDATE certificates SET document = '{}' WHERE id = 2")
    assert again.audit().detail == "certificate 2 of node b was changed since"


def test_durations_are_of_attempts_that_ended_done_in_one_go(ledger: SqlLedger) -> None:
    lease = ledger.acquire("fleet", "me", 60, NOW)

    def attempt(node: str, outcome: str, seconds: float, *, resumed: bool = False) -> None:
        began = ledger.begin("run-1", node, "reimage", "", "image.version", {}, lease.token, NOW)
        if resumed:
            ledger.resume(began, "run-2", lease.token, NOW)
        ledger.finish(began, outcome, "", NOW + timedelta(seconds=seconds))

    attempt("a", "done", 600)
    attempt("a", "transient", 60)
    attempt("b", "done", 900, resumed=True)
    attempt("c", "done", 700)
    ledger.begin("run-1", "d", "reimage", "", "", {}, lease.token, NOW)
    assert ledger.durations() == [("c", "reimage", "", 700.0), ("a", "reimage", "", 600.0)]
    assert ledger.durations(limit=1) == [("c", "reimage", "", 700.0)]


def test_what_was_managed_of_a_node_is_kept_until_it_is_forgotten(ledger: SqlLedger) -> None:
    assert ledger.node("a").paths is None
    ledger.remember_paths(["a", "b"], frozenset({"bios.A", "host.hostname"}))
    ledger.remember_paths(["b"], frozenset({"bios.B"}))
    assert ledger.node("a").paths == frozenset({"bios.A", "host.hostname"})
    assert ledger.node("b").paths == frozenset({"bios.B"})
    ledger.remember_applied("a", {"bios.A": 1}, "digest", "", NOW)
    ledger.forget(["a"], NOW)
    assert ledger.node("a").paths is None
