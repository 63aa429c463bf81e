"""The attestor of installers, with real TPMs: who is enrolled, what counts once, and what is an incident."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.attestor import TpmAttestor
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate.attestation.exchange import Expected
from reconciler.gate.attestation.expected import expected_of_host, expected_of_installer
from reconciler.model.access import InstallerPolicy
from reconciler.model.attestor import AttestationVerdict, Attestor
from reconciler.model.errors import DriverError
from reconciler.model.install import (
    AttestationBegin,
    AttestationFinish,
    ContractError,
    InstallDocument,
    InstallImage,
    MachineIdentity,
    RootDisk,
)
from reconciler.model.measurements import FirmwareReference
from reconciler.model.vocab import ImageFormat
from tests import builders as b
from tests.gate.attestation import machine as m

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(bool(m.MISSING), reason=f"there is no {' and no '.join(m.MISSING)}"),
]

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def document(node: str, nonce: str = "n1") -> InstallDocument:
    image = InstallImage(name="i", version="1", url="http://x/i", sha256="0" * 64, format=ImageFormat.RAW)
    return InstallDocument(
        node=node, hostname=node, nonce=nonce, machine=MachineIdentity(serial="S", uuid=None), image=image,
        root_disk=RootDisk(serial="D"), attest=True,
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    found = SqlLedger(tmp_path / "ledger.sqlite")
    yield found
    found.close()


@pytest.fixture
def attestor(ledger: SqlLedger) -> Attestor:
    return TpmAttestor(lambda _: Expected(m.BOOT, m.PLATFORM), ledger, lambda: NOW)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[m.Machine]:
    with m.machine(tmp_path_factory.mktemp("tpm")) as found:
        found.boot()
        yield found


def begun(attestor: Attestor, machine: m.Machine, about: InstallDocument) -> AttestationFinish:
    return machine.finish(asyncio.run(attestor.begin(about, machine.begin())))


def finished(attestor: Attestor, about: InstallDocument, answer: AttestationFinish) -> AttestationVerdict:
    return asyncio.run(attestor.finish(about, answer))


def test_a_machine_is_enrolled_by_its_first_quote(attestor: Attestor, ledger: SqlLedger, machine: m.Machine) -> None:
    answer = begun(attestor, machine, document("a"))
    assert ledger.node("a").endorsement is None, "a key that was only named is not enrolled"
    assert finished(attestor, document("a"), answer) == AttestationVerdict(True)
    assert ledger.node("a").endorsement is not None
    assert finished(attestor, document("a", "n2"), begun(attestor, machine, document("a", "n2"))).trusted


def test_a_challenge_counts_once_and_for_one_attempt(attestor: Attestor, machine: m.Machine) -> None:
    answer = begun(attestor, machine, document("a"))
    assert finished(attestor, document("a"), answer).trusted
    assert "one counts once" in finished(attestor, document("a"), answer).reason
    answer = begun(attestor, machine, document("a"))
    assert "no challenge is open for this attempt" in finished(attestor, document("a", "n2"), answer).reason
    assert "no challenge is open" in finished(attestor, document("a"), answer).reason


def test_another_tpm_is_an_incident(attestor: Attestor, ledger: SqlLedger, machine: m.Machine, tmp_path: Path) -> None:
    assert finished(attestor, document("a"), begun(attestor, machine, document("a"))).trusted
    stolen = finished(attestor, document("b"), begun(attestor, machine, document("b")))
    assert stolen == AttestationVerdict(False, "its TPM is that of node a")
    with m.machine(tmp_path / "other") as other:
        other.boot()
        swapped = finished(attestor, document("a"), begun(attestor, other, document("a")))
    assert "another one than at its first enrolment" in swapped.reason
    assert [entry.event for entry in ledger.history("a")] == ["enrolled", "incident"]
    assert [entry.event for entry in ledger.history("b")] == ["incident"]


def test_another_boot_enrols_nothing(ledger: SqlLedger, machine: m.Machine) -> None:
    boot = replace(m.BOOT, applications=("0" * 64,))
    strict: Attestor = TpmAttestor(lambda _: Expected(boot, m.PLATFORM), ledger, lambda: NOW)
    judged = finished(strict, document("a"), begun(strict, machine, document("a")))
    assert "an EFI program was started that is not declared" in judged.reason
    assert ledger.node("a").endorsement is None


def test_what_can_t_be_judged_is_no_verdict(attestor: Attestor, ledger: SqlLedger, machine: m.Machine) -> None:
    begin = machine.begin()
    with pytest.raises(ContractError, match="ek is not base64"):
        asyncio.run(attestor.begin(document("a"), AttestationBegin(ek="!", ak=begin.ak)))
    with pytest.raises(ContractError, match="cut off"):
        asyncio.run(attestor.begin(document("a"), AttestationBegin(ek=base64.b64encode(b"x").decode(), ak=begin.ak)))
    with pytest.raises(DriverError, match="the attestation key is not sign"):
        asyncio.run(attestor.begin(document("a"), AttestationBegin(ek=begin.ek, ak=begin.ek)))
    unknown: Attestor = TpmAttestor(lambda _: "no measurements are declared", ledger, lambda: NOW)
    with pytest.raises(DriverError, match="a can't be attested: no measurements are declared"):
        asyncio.run(unknown.begin(document("a"), begin))


def test_what_is_expected_follows_from_the_spec() -> None:
    plain = b.node()
    wanted = b.node(profile=b.profile(image=b.MEASURED, measurements=b.PLATFORM))
    policy = InstallerPolicy("h:1", None, "http://x/i.iso", measurements=m.BOOT)
    assert expected_of_installer(wanted, policy) == Expected(m.BOOT, b.PLATFORM)
    assert expected_of_installer(wanted, replace(policy, measurements=None)) == (
        "no measurements are declared for the installer"
    )
    assert expected_of_installer(plain, policy) == "no measurements are declared for its hardware"
    assert b.MEASURED.measurements is not None
    versions = dict.fromkeys(("bmc", "bios", "nic0"), "2.0")
    platform = replace(b.PLATFORM, firmware=(FirmwareReference({"bios": "2.0"}, {"0": "00" * 32}),))
    measured = b.node(profile=replace(wanted.profile, measurements=platform))
    assert expected_of_host(measured, b.observed()) == Expected(b.MEASURED.measurements, platform, versions)
    assert expected_of_host(plain, b.observed()) == "no measurements are declared for its image"
    silent = b.observed(inventory=b.silent())
    assert expected_of_host(measured, silent) == "the BMC does not say which firmware the node has"
    assert expected_of_host(wanted, silent) == Expected(b.MEASURED.measurements, b.PLATFORM)  # no reference asks
