"""A quote over SSH, with a real TPM behind the commands that are run on the host."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reconciler.converge.attestation import attest
from reconciler.gate.attestation.host import begin_command
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.gate import BootProof, CommandResult, Verdict
from reconciler.model.observed import Answered, HostFacts, Silent
from tests import builders as b
from tests.gate.attestation import machine as m

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(bool(m.MISSING), reason=f"there is no {' and no '.join(m.MISSING)}"),
]

WANTED = b.node(profile=b.profile(image=replace(b.IMAGE, measurements=m.BOOT), measurements=m.PLATFORM))
PLACES = dict(line.split("=", 1) for line in begin_command()[2].splitlines()[:4])


@dataclass
class TpmHost:
    """A host whose commands run here, with the TPM and the files of a test machine."""

    machine: m.Machine
    instead: dict[int, CommandResult] = field(default_factory=dict)  # of the nth command
    ran: int = 0

    @property
    def reached(self) -> bool:
        return True

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        raise NotImplementedError

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        self.ran += 1
        if self.ran in self.instead:
            return self.instead[self.ran]
        self.machine.run("tpm2_flushcontext", "-t")
        script = argv[2]
        for name, place in self.machine.places.items():
            script = script.replace(f"{name}={PLACES[name]}", f"{name}='{place}'")
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
            [*argv[:2], script, *argv[3:]], capture_output=True, text=True, env=self.machine.environment,
            timeout=timeout, input=stdin, check=False,
        )  # fmt: skip
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def anew(self, *, renewal_of: str = "") -> TpmHost:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[m.Machine]:
    with m.machine(tmp_path_factory.mktemp("tpm")) as found:
        found.boot()
        yield found


def asked(host: TpmHost, desired: Any = WANTED, versions: str = "1.0") -> BootProof:
    firmware = {"BIOS": replace(b.inventory().firmware["BIOS"], version=versions)}  # type: ignore[index]
    seen = b.observed(inventory=b.inventory(firmware=firmware))
    return asyncio.run(attest(desired, host, seen, VirtualClock()))


def test_a_host_proves_what_it_booted(machine: m.Machine) -> None:
    proof = asked(TpmHost(machine))
    assert proof.judgement.valid, proof.judgement.reasons
    assert proof.phase == "start"
    assert proof.endorsement is not None
    assert proof.evidence["pcrs"]["0"] == m.PCRS[0]
    assert proof.evidence["applications"] == (m.BOOT_LOADER, m.UKI)


def test_another_boot_fails_and_tells_what_was_measured(machine: m.Machine) -> None:
    other = replace(m.BOOT, applications=(m.BOOT_LOADER, "0" * 64))
    wanted = b.node(profile=b.profile(image=replace(b.IMAGE, measurements=other), measurements=m.PLATFORM))
    proof = asked(TpmHost(machine), wanted)
    assert proof.judgement.verdict is Verdict.FAIL
    assert proof.evidence["applications"] == (m.BOOT_LOADER, m.UKI)
    assert asked(TpmHost(machine), versions="1.1").judgement.reasons == ("no reference is declared for bios 1.1",)


def test_a_host_without_an_answer_is_an_error_and_no_verdict(machine: m.Machine) -> None:
    for instead, why in (
        ({1: CommandResult(127, "", "sh: tpm2_createek: not found\n")}, "made no keys: sh: tpm2_createek: not found"),
        ({1: CommandResult(-1, "", "", timed_out=True)}, "made no keys: it did not end in time"),
        ({1: CommandResult(0, "hello", "")}, "did not tell the TPM's keys"),
        (
            {2: CommandResult(1, "", "ERROR: Esys_Quote(0x921) - lockout mode\nERROR: Unable to run tpm2_quote\n")},
            "gave no quote: ERROR: Esys_Quote(0x921) - lockout mode",
        ),
        ({2: CommandResult(1, "", "ERROR: Unable to run tpm2_quote\n")}, "gave no quote: ERROR: Unable to run"),
        ({2: CommandResult(0, "{}", "")}, "did not tell the quote"),
    ):
        proof = asked(TpmHost(machine, instead))
        assert proof.judgement.verdict is Verdict.ERROR
        assert why in proof.judgement.reasons[0]


def test_an_old_answer_fails(machine: m.Machine) -> None:
    answers: list[CommandResult] = []

    class Recorder(TpmHost):
        async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
            answers.append(await super().run(argv, timeout=timeout, stdin=stdin))
            return answers[-1]

    assert asked(Recorder(machine)).judgement.valid
    replayed = asked(TpmHost(machine, {2: answers[1]}))
    assert replayed.judgement.verdict is Verdict.FAIL
    assert "the secret is wrong" in replayed.judgement.reasons[0]
