"""Endorsement keys and proved boots, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.measurements import Attestation

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def test_a_node_keeps_the_tpm_that_it_was_enrolled_with(ledger: SqlLedger) -> None:
    assert ledger.node("a").endorsement is None
    assert ledger.bind_endorsement("a", "e1", NOW) == ""
    assert ledger.bind_endorsement("a", "e1", NOW) == ""
    assert "another one than at its first enrolment: e2, not e1" in ledger.bind_endorsement("a", "e2", NOW)
    assert ledger.bind_endorsement("b", "e1", NOW) == "its TPM is that of node a"
    assert (ledger.node("a").endorsement, ledger.node("b").endorsement) == ("e1", None)
    assert [entry.event for entry in ledger.history("a")] == ["enrolled", "incident"]
    assert [entry.event for entry in ledger.history("b")] == ["incident"]
    assert ledger.audit().problem == ""


def test_the_last_boot_that_was_proved_is_on_record(ledger: SqlLedger) -> None:
    ledger.bind_endorsement("a", "e1", NOW)
    assert ledger.node("a").attestation is None
    for boot in ("b1", "b2"):
        proved = Attestation("reference", NOW + timedelta(1), "start", boot)
        ledger.save_attestation("a", proved, {"pcrs": {"4": "00"}})
        assert ledger.node("a").attestation == proved
    assert ledger.node("a").endorsement == "e1"


def test_another_tpm_is_accepted_by_a_person_alone(ledger: SqlLedger) -> None:
    assert ledger.refused_endorsement("a") == ""
    for node, fingerprint in (("a", "e1"), ("b", "e9")):
        ledger.bind_endorsement(node, fingerprint, NOW)
    ledger.save_attestation("a", Attestation("reference", NOW, "start", "b1"), {})
    assert ledger.refused_endorsement("a") == "", "none was refused"
    ledger.bind_endorsement("a", "e2", NOW)
    ledger.note("a", "incident", "of another kind", NOW)
    assert ledger.refused_endorsement("a") == "e2"
    assert ledger.accept_endorsement("a", "e0", "e2", "by ops: why", NOW) == "another TPM was enrolled meanwhile"
    assert ledger.accept_endorsement("a", "e1", "e9", "by ops: why", NOW) == "the TPM is that of node b"
    assert ledger.node("a").endorsement == "e1"
    assert ledger.accept_endorsement("a", "e1", "e2", "by ops: new mainboard", NOW) == ""
    assert (ledger.node("a").endorsement, ledger.node("a").attestation) == ("e2", None), "the old one's proof is void"
    assert ledger.refused_endorsement("a") == ""
    assert "e2, in place of e1, by ops: new mainboard" in ledger.history("a")[-1].detail
    assert ledger.bind_endorsement("a", "e2", NOW) == ""
    assert "another one" in ledger.bind_endorsement("a", "e1", NOW), "the old one is a stranger now"
    assert ledger.audit().problem == ""
