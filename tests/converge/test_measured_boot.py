"""Measured boots from the install to admission, on lab machines whose TPM is a model: a lie is never admitted.

The judge is the product's: TpmAttestor on the ledger while the installer runs, and a quote over SSH afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.attestation import attest
from reconciler.drivers.attestor import TpmAttestor
from reconciler.gate.attestation.expected import expected_of_installer
from reconciler.lab.hardware.tpm import LIES
from reconciler.model import desired as d
from reconciler.model.access import InstallerPolicy
from reconciler.model.attestor import AttestationVerdict
from reconciler.model.desired import Rung
from reconciler.model.gate import BootProof
from reconciler.model.install import AttestationChallenge, AttestationFinish, InstallDocument
from reconciler.model.measurements import BootMeasurements, FirmwareReference, PlatformMeasurements
from reconciler.model.observed import Observed
from reconciler.model.ports import Clock, Host
from tests.converge.world import IMAGE, PROFILE, QuickGate, World
from tests.gate.attestation import machine as m

Worlds = Callable[..., World]
INSTALLER = BootMeasurements(("11" * 32,), {"start": "22" * 32})
PLATFORM = PlatformMeasurements(m.KEYS, (FirmwareReference({}, {"0": m.PCRS[0], "2": m.PCRS[2]}),))
MEASURED = replace(PROFILE, image=replace(IMAGE, measurements=m.BOOT), measurements=PLATFORM)


WHY = {
    "altered_uki": "an EFI program was started that is not declared",
    "replayed_quote": "the quote is not for this nonce and this host key",
    "other_tpm": "",  # it says nothing that is wrong, but is not this node's
    "software_key": "the secret is wrong: the attestation key is not in the TPM",
    "truncated_log": "the event log does not explain PCR",
}


class TpmGate(QuickGate):
    """A gate that asks the TPM of the host. `said`: why it did not believe it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    async def attest(self, desired: d.Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:
        self.attested.append(desired.node)
        proof = await attest(desired, host, observed, clock)
        self.said.append("; ".join(proof.judgement.reasons))
        return proof


class Judge(TpmAttestor):
    """The product's judge. `said`: its verdicts, "" for a good one."""

    said: list[str]

    async def finish(self, document: InstallDocument, finish: AttestationFinish) -> AttestationVerdict:
        verdict = await super().finish(document, finish)
        self.said = [*getattr(self, "said", []), verdict.reason]
        return verdict


@pytest.fixture
def measured(world: Worlds) -> Worlds:
    def make(**changes: Any) -> World:
        policy = InstallerPolicy("127.0.0.1:0", None, "http://x/i.iso", measurements=INSTALLER)
        here = world(
            nodes=1, drift={"n*": ["old_image"]}, profile=MEASURED, gate=TpmGate(), settings={"installer": policy},
            **changes,
        )  # fmt: skip

        def expected(node: str) -> Any:
            return expected_of_installer(here.fleet.nodes[node], policy)

        here.lab.installs.attestor = Judge(expected, here.ledger, here.clock.now)
        return here

    return make


def test_a_machine_is_installed_and_admitted_by_two_quotes_of_its_tpm(measured: Worlds) -> None:
    here = measured()
    report = here.apply()
    assert here.serves("n0"), (report.results["n0"].detail, here.did("n0"), here.machine("n0").state.installer)
    assert isinstance(here.gate, TpmGate)
    assert here.gate.attested == ["n0"], "by SSH, after the installer's own"
    assert here.machine("n0").state.counters.installs == 1
    assert here.ledger.node("n0").attestation is not None


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_while_the_installer_runs_is_never_admitted(measured: Worlds, lie: str) -> None:
    here = measured()
    machine = here.machine("n0")
    if lie in ("replayed_quote", "other_tpm"):  # of an honest boot before, and of the TPM that the node is bound to
        here.apply()
        assert here.serves("n0")
        _want_other_image(here)
    machine.inject("tpm", lie=lie)
    written = machine.state.counters.installs
    here.apply(wait_s=0.0)
    assert not here.serves("n0")
    assert machine.state.counters.installs == written, "no host key was certified, and nothing boots"
    assert isinstance(here.lab.installs.attestor, Judge)
    assert (WHY[lie] or "its TPM is another one") in here.lab.installs.attestor.said[-1]


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_of_the_booted_host_is_never_admitted(measured: Worlds, lie: str) -> None:
    here = measured()
    machine = here.machine("n0")

    async def installed_then_lies() -> Any:
        return await here.applying(wait_s=0.0)

    asked = machine.tpm_answer
    answers = 0

    def answer(challenge: AttestationChallenge, host_key: str) -> AttestationFinish:
        nonlocal answers
        answers += 1
        if answers == 1:  # the installer's
            found = asked(challenge, host_key)
            machine.inject("tpm", lie=lie)
            return found
        return asked(challenge, host_key)

    machine.tpm_answer = answer  # type: ignore[method-assign]
    report = here.run(installed_then_lies())
    assert machine.state.counters.installs == 1
    assert not here.serves("n0")
    assert isinstance(here.gate, TpmGate)
    assert WHY[lie] in here.gate.said[0]
    assert (WHY[lie] or "another one") in report.results["n0"].detail


def test_a_node_in_service_that_boots_something_else_is_out_at_the_first_quote(measured: Worlds) -> None:
    here = _serving(measured)
    _boot_anew(here, lie="altered_uki")
    report = here.apply(wait_s=0.0)
    assert not here.serves("n0"), report.results["n0"].detail
    plan = here.plan().nodes["n0"]
    assert plan.isolated == ("health.boot_refuted",)
    assert WHY["altered_uki"] in plan.situation
    asked = len(here.gate.said)  # type: ignore[attr-defined]
    here.clock.elapsed += 3600.0
    here.apply(wait_s=0.0)
    assert len(here.gate.said) == asked, "the TPM says of one boot what it said before"  # type: ignore[attr-defined]
    assert not here.serves("n0")


def test_the_next_boot_is_asked_anew(measured: Worlds) -> None:
    here = _serving(measured)
    _boot_anew(here, lie="altered_uki")
    here.apply(wait_s=0.0)
    here.machine("n0").clear("tpm")
    here.apply(wait_s=0.0)
    assert not here.serves("n0"), "the boot is the same"
    _boot_anew(here)
    report = here.apply()
    assert here.serves("n0"), report.results["n0"].detail
    assert not here.plan().nodes["n0"].illness


def test_a_node_in_service_whose_tpm_is_silent_is_out_after_three_tries(measured: Worlds) -> None:
    """Whoever altered its system would keep the quote back. The boot before was proved, so its image can do it."""
    here = _serving(measured)
    here.machine("n0").inject("tpm_gone")
    _boot_anew(here)
    report = here.apply(wait_s=0.0)
    assert not here.serves("n0"), report.results["n0"].detail
    plan = here.plan().nodes["n0"]
    assert plan.isolated == ("health.boot_unproved",)
    assert "Could not load tcti" in plan.situation
    assert "asked 3 times" in plan.situation


def test_a_silent_tpm_that_speaks_in_the_next_boot_brings_its_node_back(measured: Worlds) -> None:
    here = _serving(measured)
    here.machine("n0").inject("tpm_gone")
    _boot_anew(here)
    here.apply(wait_s=0.0)
    here.machine("n0").clear("tpm_gone")
    _boot_anew(here)
    report = here.apply()
    assert here.serves("n0"), report.results["n0"].detail
    assert not here.plan().nodes["n0"].illness


def test_a_node_that_never_proved_a_boot_stays_in_service_when_measurements_are_declared(world: Worlds) -> None:
    """Its image may have no tools to ask the TPM: declaring measurements must not empty a fleet."""
    here = world(nodes=1)
    here.gate = TpmGate()
    here.apply()
    assert here.serves("n0")
    here.machine("n0").inject("tpm_gone")
    node = here.fleet.nodes["n0"]
    here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=MEASURED)})
    for _ in range(4):
        here.apply(wait_s=0.0)
        here.clock.elapsed += 7200.0
    assert here.serves("n0")
    assert not here.plan().nodes["n0"].illness
    assert len(here.gate.said) >= 3


@pytest.mark.parametrize("way", ["a hold that was released", "other measurements"])
def test_what_was_put_right_is_asked_again_of_the_same_boot(measured: Worlds, way: str) -> None:
    here = _serving(measured)
    _boot_anew(here, lie="altered_uki")
    here.apply(wait_s=0.0)
    here.machine("n0").clear("tpm")
    here.clock.elapsed += 60.0
    if way == "other measurements":
        node = here.fleet.nodes["n0"]
        reviewed = replace(PLATFORM, endorsement_authorities="reviewed")
        here.fleet = replace(
            here.fleet, nodes={"n0": replace(node, profile=replace(node.profile, measurements=reviewed, digest="new"))}
        )
        assert not here.plan().nodes["n0"].illness
        return
    here.ledger.hold("n0", "the loader was put back", "ops", None, here.clock.now())
    here.ledger.release("n0", "ops", here.clock.now())
    here.clock.elapsed += 60.0
    report = here.apply()
    assert here.serves("n0"), report.results["n0"].detail


def test_the_ladder_heals_what_a_boot_heals(measured: Worlds) -> None:
    assert PROFILE.remediation is not None
    here = _serving(measured, replace(PROFILE.remediation, ladder=(Rung("power_cycle", 1),)))
    machine = here.machine("n0")
    _boot_anew(here, lie="altered_uki")
    order = machine.power

    def honest(action: str) -> None:
        machine.clear("tpm")
        order(action)

    machine.power = honest  # type: ignore[method-assign]
    report = here.apply()
    assert here.serves("n0"), report.results["n0"].detail
    assert "power_cycle" in here.did("n0")


def _serving(measured: Worlds, remediation: d.Remediation | None = None) -> World:
    here = measured()
    node = here.fleet.nodes["n0"]
    here.fleet = replace(
        here.fleet,
        nodes={"n0": replace(node, profile=replace(node.profile, remediation=remediation, digest="measured"))},
    )
    here.apply()
    assert here.serves("n0")
    return here


def _boot_anew(here: World, lie: str = "") -> None:
    machine = here.machine("n0")
    if lie:
        machine.inject("tpm", lie=lie)
    machine.reboot()
    here.clock.elapsed += 1800.0


def _want_other_image(here: World) -> None:
    """Let the spec want another version, which measures the same."""
    image = replace(MEASURED.image or IMAGE, version="2026.12.0", sha256="12" * 32)
    node = here.fleet.nodes["n0"]
    here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=replace(node.profile, image=image))})
    here.signatures = {(image.name, image.version): True}
    here.lab.images[image.name, image.version] = dict(image.contents)
    here.machine("n0").measured = {(IMAGE.name, IMAGE.version): m.BOOT, (image.name, image.version): m.BOOT}
