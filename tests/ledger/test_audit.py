"""The journal's chain: whatever somebody does to its rows behind our back is found, and the first such row is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.errors import LedgerError
from reconciler.model.install_progress import InstallAttempt, closed, digest_of
from reconciler.model.measurements import Attestation
from tests.ledger.conftest import Open
from tests.ledger.test_ledger import certificate, token
from tests.ledger.test_races import RUNNERS, together

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
ROWS = 6  # that `write_history` writes
COPY = (
    "INSERT INTO journal (id, at, run, node, event, action, target, attempt, token, detail, data, digest) "
    "SELECT {id}, at, run, node, event, action, target, attempt, token, detail, data, digest FROM journal WHERE id = 4"
)


def write_history(ledger: SqlLedger) -> None:
    fence = token(ledger)
    for number, outcome in enumerate(("transient", "done")):
        attempt = ledger.begin("r", "a", "set_bios", "", "bios.X", {"boot_id": "b"}, fence, T0)
        ledger.finish(attempt, outcome, "a BMC said: ü\0", T0 + timedelta(minutes=number))
    ledger.save_certificate(certificate("a"))
    ledger.record_drift("r", [("b", "bios.X", "drifted", "On", "Off")], ["a", "b"], T0)


def tamper(where: str, *statements: str) -> None:
    url = where.replace("postgresql:", "postgresql+psycopg:") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            assert connection.exec_driver_sql(statement).rowcount, statement
    engine.dispose()


def test_a_ledger_that_nobody_touched_is_as_it_was_written(reopen: Open) -> None:
    ledger = reopen()
    assert ledger.audit().problem == "", "one without a row too"
    write_history(ledger)
    ledger.close()
    found = reopen().audit()
    assert (found.rows, found.certificates, found.row, found.problem) == (ROWS, 1, None, "")
    assert found.head.isalnum()


@pytest.mark.parametrize(
    ("statements", "row", "problem", "told"),
    [
        (["UPDATE journal SET detail = 'it went well' WHERE id = 2"], 2, "changed", "outcome of a at 2026-11-01T12"),
        (["UPDATE journal SET data = '\"done\"' WHERE id = 2"], 2, "changed", ""),
        (["UPDATE journal SET token = 99 WHERE id = 3"], 3, "changed", "intent of a"),
        (["UPDATE journal SET digest = 'beef' WHERE id = 1"], 1, "changed", "intent of a"),
        ([f"UPDATE journal SET at = '2026-01-01T00:00:00+00:00' WHERE id = {ROWS}"], ROWS, "changed", "drift of b"),
        (["DELETE FROM journal WHERE id = 1"], 1, "removed", "row 1 is missing"),
        (["DELETE FROM journal WHERE id IN (3, 4)"], 3, "removed", "rows 3 to 4 are missing"),
        (["DELETE FROM journal WHERE id = 3", "UPDATE journal SET id = 3 WHERE id = 4"], 3, "changed", "outcome of a"),
        (
            [f"DELETE FROM journal WHERE id = {ROWS}"],
            ROWS,
            "cut off",
            f"ended with row {ROWS} once, and ends with row 5",
        ),
        (["DELETE FROM journal"], 1, "cut off", "ends with row 0"),
        ([COPY.format(id=ROWS + 1)], ROWS + 1, "inserted", f"the chain ends with row {ROWS}"),
        ([COPY.format(id=0)], 0, "inserted", "leads from row 0 to row 1"),
        (["UPDATE certificates SET document = '{}'"], 5, "certificate", "certificate 1 of node a was changed since"),
        (["DELETE FROM certificates"], 5, "certificate", "certificate 1 was removed"),
        (["UPDATE meta SET value = 'other' WHERE key = 'ledger_id'"], 1, "changed", ""),
        (["UPDATE meta SET value = '6 beef' WHERE key = 'journal_head'"], ROWS, "changed", "another digest"),
        (["DELETE FROM meta WHERE key = 'journal_head'"], None, "head", "is lost"),
        (["UPDATE meta SET value = 'x' WHERE key = 'journal_head'"], None, "head", "is 'x'"),
    ],
)
def test_what_was_done_behind_our_back_is_named(
    ledger: SqlLedger, where: str, statements: Sequence[str], row: int | None, problem: str, told: str
) -> None:
    write_history(ledger)
    tamper(where, *statements)
    found = ledger.audit()
    assert (found.row, found.problem) == (row, problem), found
    assert told in found.detail


def test_a_certificate_that_nothing_was_written_about_is_found(ledger: SqlLedger, where: str) -> None:
    write_history(ledger)
    tamper(where, "INSERT INTO certificates (id, node, issued_at, document) VALUES (77, 'b', 'now', '{}')")
    found = ledger.audit()
    assert (found.row, found.problem) == (None, "certificate")
    assert found.detail == "no row of the journal knows certificate 77 of node b: it was inserted"


@pytest.mark.parametrize(
    ("statements", "row", "problem", "told"),
    [
        (["UPDATE certificates SET node = 'b'"], 5, "certificate", "certificate 1 of node a was given to b since"),
        (
            ["UPDATE certificates SET issued_at = '2030-01-01T00:00:00+00:00'"],
            5, "certificate", "was issued at 2026-11-01T12:00:00.000000+00:00, and its time was changed since",
        ),
        (["UPDATE nodes SET serial = 'EVIL' WHERE node = 'a'"], 9, "identity", "or UUID of node a was changed"),
        (["UPDATE nodes SET uuid = 'EVIL' WHERE node = 'a'"], 9, "identity", "or UUID of node a was changed"),
        (["UPDATE nodes SET serial = NULL, uuid = NULL WHERE node = 'a'"], 9, "identity", "of node a was changed"),
        (["DELETE FROM nodes WHERE node = 'a'"], 9, "identity", "the serial number of node a was removed"),
        (
            ["INSERT INTO nodes (node, serial, fleet) VALUES ('z', 'EVIL', '')"],
            None, "identity", "no row of the journal knows the serial number of z: it was inserted",
        ),
        (["UPDATE meta SET value = '0' WHERE key = 'fencing_token'"], 1, "fence", "is 0, and the row was written"),
        (["UPDATE meta SET value = 'x' WHERE key = 'fencing_token'"], None, "fence", "is 'x': nobody can take a lease"),
        (["DELETE FROM meta WHERE key = 'fencing_token'"], None, "fence", "is lost: nobody can take a lease"),
        (["UPDATE leases SET token = 9"], None, "fence", "is 1, and the lease on demo has 9"),
    ],
)  # fmt: skip
def test_what_decisions_rest_on_is_covered(
    ledger: SqlLedger, where: str, statements: Sequence[str], row: int | None, problem: str, told: str
) -> None:
    write_history(ledger)
    ledger.remember_identities({"a": ("S-1", None)}, T0)
    ledger.remember_identities({"b": ("S-2", "U-2")}, T0)
    ledger.remember_identities({"a": (None, "U-1")}, T0)
    ledger.note_silences([("c", "ssh", True)], T0)
    ledger.set_nonce("d", "n", T0)
    found = ledger.audit()
    assert (found.problem, found.identities) == ("", 2), found
    tamper(where, *statements)
    found = ledger.audit()
    assert (found.row, found.problem) == (row, problem), found
    assert told in found.detail
    assert "rollouts" in found.not_covered


@pytest.mark.parametrize(
    ("statement", "row", "told"),
    [
        ("UPDATE attestations SET endorsement = 'EVIL'", 9, "the TPM or the proved boot of node a was changed since"),
        ("UPDATE attestations SET boot_id = 'EVIL'", 9, "of node a was changed since"),
        ("DELETE FROM attestations", 9, "the TPM or the proved boot of node a was removed"),
        (
            "INSERT INTO attestations (node, endorsement) VALUES ('z', 'EVIL')",
            None, "no row of the journal knows the TPM or the proved boot of node z: it was inserted",
        ),
        ("UPDATE install_attempts SET host_key = 'EVIL'", 12, "an install of node a was changed since"),
        ("UPDATE install_attempts SET revoked = ''", 12, "an install of node a was changed since"),
        ("UPDATE install_attempts SET document = '{}'", 12, "an install of node a was changed since"),
        ("UPDATE install_attempts SET node = 'b'", 12, "an install of node b was changed since"),
        ("DELETE FROM install_attempts", 12, "an install of node a was removed"),
    ],
)  # fmt: skip
def test_tpms_and_installs_are_covered(
    ledger: SqlLedger, where: str, statement: str, row: int | None, told: str
) -> None:
    write_history(ledger)
    begun = InstallAttempt(digest_of("t"), "a", '{"node":"a"}', "", T0, token="t")
    ledger.bind_endorsement("a", "e1", T0)  # rows 7 and 8
    ledger.save_attestation("a", Attestation("reference", T0, "start", "boot"), {})  # 9 and 10
    ledger.save_install(begun, T0)  # 11
    ledger.save_install(replace(begun, host_key="k1", revoked=("k1", "k2")), T0)  # 12
    ledger.save_install(closed(replace(begun, host_key="k1", revoked=("k1", "k2"), percent=9), T0), T0)
    found = ledger.audit()
    assert (found.problem, found.rows) == ("", 12), "how far it is, is no part of its seal"
    assert not [entry for entry in ledger.history("a") if entry.event == "seal"], "people need not see seals"
    tamper(where, statement)
    found = ledger.audit()
    assert (found.row, found.problem) == (row, "seal"), found
    assert told in found.detail


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attestations SET endorsement = 'EVIL'",
        "DELETE FROM attestations",
        "UPDATE install_attempts SET revoked = ''",
    ],
)
def test_what_we_write_later_does_not_hide_what_somebody_changed(ledger: SqlLedger, where: str, statement: str) -> None:
    begun = InstallAttempt(digest_of("t"), "a", '{"node":"a"}', "", T0, token="t", revoked=("k1",))
    ledger.bind_endorsement("a", "e1", T0)
    ledger.save_install(begun, T0)
    tamper(where, statement)
    ledger.save_attestation("a", Attestation("reference", T0, "start", "boot"), {})
    found = ledger.install(begun.digest)
    assert found is not None
    ledger.save_install(replace(found, host_key="k3"), T0)
    assert ledger.audit().problem == "seal"


def test_a_fence_that_is_lost_is_an_error_for_who_would_write(ledger: SqlLedger, where: str) -> None:
    tamper(where, "DELETE FROM meta WHERE key = 'fencing_token'")
    with pytest.raises(
        LedgerError, match="fencing token is None, so nobody may write; restore the ledger from a backup"
    ):
        ledger.acquire("demo", "x", 60, T0)


def test_the_head_of_an_empty_journal_is_part_of_every_later_one(ledger: SqlLedger) -> None:
    noted = ledger.audit().head
    assert ledger.audit(noted).problem == ""
    write_history(ledger)
    assert ledger.audit(f" {noted}\n").problem == ""
    assert ledger.audit("").problem == ""
    assert ledger.audit("beef").problem == "rewritten"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET detail = x'ff00' WHERE id = 2",
        "UPDATE journal SET data = x'ff00' WHERE id = 5",
        "UPDATE journal SET digest = x'ff00' WHERE id = 2",
        "UPDATE journal SET attempt = 'x' WHERE id = 2",
        "UPDATE certificates SET document = x'ff00'",
        "UPDATE certificates SET node = x'ff00'",
        "UPDATE certificates SET issued_at = 7",
        "UPDATE nodes SET serial = x'ff00'",
        "UPDATE nodes SET node = x'ff00'",
        "UPDATE leases SET token = 'x'",
        "UPDATE meta SET value = x'ff00' WHERE key = 'journal_head'",
        "UPDATE meta SET value = '² beef' WHERE key = 'journal_head'",
        "UPDATE meta SET value = '99999999999999999999999 beef' WHERE key = 'journal_head'",
        "UPDATE meta SET value = x'ff00' WHERE key = 'fencing_token'",
        "UPDATE meta SET value = '²' WHERE key = 'fencing_token'",
        "UPDATE attestations SET endorsement = x'ff00'",
        "UPDATE attestations SET node = x'ff00'",
        "UPDATE install_attempts SET revoked = 7",
        "UPDATE journal SET data = x'ff00' WHERE event = 'seal'",
    ],
)
def test_cells_of_any_type_are_findings_and_no_tracebacks(tmp_path: Path, statement: str) -> None:
    """SQLite stores whatever it is given, whatever the column says."""
    where = str(tmp_path / "ledger.sqlite")
    ledger = SqlLedger(where)
    write_history(ledger)
    ledger.remember_identities({"a": ("S-1", None)}, T0)
    ledger.bind_endorsement("a", "e1", T0)
    ledger.save_install(InstallAttempt(digest_of("t"), "a", "{}", "", T0, token="t"), T0)
    tamper(where, statement)
    assert ledger.audit().problem
    ledger.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_an_older_ledger_is_accepted_as_it_is(ledger: SqlLedger, reopen: Open, where: str, damaged: bool) -> None:
    """Version 3 wrote no rows of identities: that they lack is no alarm."""
    write_history(ledger)
    ledger.note_silences([("c", "ssh", True)], T0)
    tamper(
        where,
        "INSERT INTO nodes (node, serial, uuid, identity_at, fleet) VALUES ('a', 'S-1', NULL, NULL, '')",
        "INSERT INTO nodes (node, serial, uuid, identity_at, fleet) VALUES ('b', 'S', 'U', '2026-11-01T00:00:00Z', '')",
        "INSERT INTO nodes (node, nonce, fleet) VALUES ('n', 'n', '')",
        "DROP TABLE gate_tests",
        "DROP TABLE gate_results",
        "DROP TABLE gate_outputs",
        "DROP TABLE install_attempts",
        "DROP TABLE attestations",
        "UPDATE meta SET value = '3' WHERE key = 'schema_version'",
        *(["UPDATE meta SET value = 'x' WHERE key = 'journal_head'"] if damaged else []),
    )
    again = reopen()
    found = again.audit()
    assert (found.problem, found.identities) == (("head", 0) if damaged else ("", 2)), found
    if not damaged:
        again.remember_identities({"a": ("S-9", None)}, T0)
        assert again.audit().problem == ""
        assert again.node("b").serial == "S"


def test_tpms_and_installs_of_an_older_ledger_are_accepted_as_they_are(
    ledger: SqlLedger, reopen: Open, where: str
) -> None:
    """Version 6 wrote no seals."""
    tamper(
        where,
        "INSERT INTO attestations (node, endorsement) VALUES ('a', 'e1')",
        "INSERT INTO install_attempts (digest, node, token, document, network, status, host_key, certificate, "
        "attested_key, revoked, begun_at) VALUES ('d', 'b', '', '{}', '', '{}', '', '', '', 'k1', '2026-11-01')",
        "DROP TABLE gate_tests",
        "DROP TABLE gate_results",
        "DROP TABLE gate_outputs",
        "UPDATE meta SET value = '6' WHERE key = 'schema_version'",
    )
    again = reopen()
    assert (again.audit().rows, again.audit().problem) == (2, "")
    tamper(where, "UPDATE attestations SET endorsement = 'EVIL'")
    assert (again.audit().row, again.audit().problem) == (1, "seal")


def test_a_chain_that_was_written_anew_lacks_the_head_that_somebody_noted(ledger: SqlLedger, where: str) -> None:
    """Whoever can write to the whole database can forge a consistent chain."""
    write_history(ledger)
    noted = ledger.audit().head
    ledger.hold("a", "more", "ops", None, T0)
    assert ledger.audit(noted).problem == "", "a head of earlier on is part of the chain"
    restart = f"UPDATE meta SET value = '0 {ledger.id}' WHERE key = 'journal_head'"
    tamper(where, "DELETE FROM journal", "DELETE FROM certificates", restart)
    ledger.hold("a", "nothing ever happened", "ops", None, T0)
    assert ledger.audit().problem == ""
    found = ledger.audit(noted)
    assert (found.row, found.problem) == (None, "rewritten")
    assert noted in found.detail


def test_a_ledger_that_lost_its_head_writes_nothing(ledger: SqlLedger, where: str) -> None:
    write_history(ledger)
    tamper(where, "DELETE FROM meta WHERE key = 'journal_head'")
    with pytest.raises(LedgerError, match="the head of the chain is lost; restore it from a backup"):
        ledger.hold("a", "x", "ops", None, T0)
    assert list(ledger.holds()) == [], "not the hold without its row either"


def test_what_is_rolled_back_leaves_no_gap(ledger: SqlLedger) -> None:
    write_history(ledger)

    def die_half_way() -> None:
        with ledger.batch():
            ledger.hold("a", "never", "ops", None, T0)
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        die_half_way()
    ledger.hold("a", "after", "ops", None, T0)
    found = ledger.audit()
    assert (found.rows, found.problem) == (ROWS + 1, "")


def test_runners_that_write_at_once_make_one_chain(reopen: Open) -> None:
    ledgers = [reopen() for _ in range(RUNNERS)]

    def write(number: int) -> None:
        for turn in range(10):
            ledgers[number].hold(f"n{number}", f"turn {turn}", "ops", None, T0)
            with ledgers[number].batch():
                items = [(f"n{number}", f"bios.{turn}.{at}", "drifted", 1, 2) for at in range(5)]
                ledgers[number].record_drift("r", items, [f"n{number}"], T0)
                ledgers[number].save_certificate(certificate(f"n{number}"))
            assert ledgers[number].audit().problem == "", "while others write too"

    together(write)
    found = ledgers[0].audit()
    assert (found.problem, found.detail) == ("", "")
    assert found.certificates == RUNNERS * 10
    assert found.rows == RUNNERS * (10 * (1 + 5 + 1) + 9 * 5), "a hold, new and ended drift, a certificate each turn"
