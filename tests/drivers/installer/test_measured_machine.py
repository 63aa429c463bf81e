"""A lab machine with a TPM against the server over HTTP: its host key is certified after an honest quote alone."""

from __future__ import annotations

import pytest

from reconciler.drivers.attestor import TpmAttestor
from reconciler.gate.attestation.exchange import Expected
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tpm import LIES
from reconciler.model.install import AttestationChallenge, dump_contract, load_contract
from reconciler.model.measurements import BootMeasurements
from tests.drivers.installer.conftest import DOCUMENT, TOKEN, Site, ask, new_host_key, report, run
from tests.drivers.installer.test_server import base_of
from tests.gate.attestation import machine as m
from tests.lab.machines import Time, example_lab

pytestmark = [pytest.mark.wire, pytest.mark.tool]

BOOT = BootMeasurements(("11" * 32,), {"start": "22" * 32})


async def exchanged(site: Site, machine: Machine, key: str) -> tuple[int, int]:
    """Have one exchange as its installer does; return the answers to the quote and to the host key."""
    async with site.serving(site.ledger()) as installer:
        document = DOCUMENT.model_copy(update={"attest": True})
        base = base_of(await installer.publish(TOKEN, document, None))
        assert (await report(base, "written")).status == 204
        begun = await ask("POST", f"{base}/attest/begin", data=dump_contract(machine.tpm_keys()))
        assert begun.status == 200, begun.text
        answer = machine.tpm_answer(load_contract(AttestationChallenge, begun.body), key)
        proved = await ask("POST", f"{base}/attest/finish", data=dump_contract(answer))
        return proved.status, (await ask("POST", f"{base}/hostkey", data=key)).status


@pytest.mark.parametrize("lie", ["", *LIES])
def test_a_host_key_is_certified_after_an_honest_quote_alone(site: Site, lie: str) -> None:
    machine = next(iter(example_lab("clean", Time()).machines.values()))
    machine.measured = {(disk.image, disk.version): BOOT for disk in machine.state.disks.values()}
    key = " ".join(new_host_key(site.folder).split()[:2])
    ledger = site.ledger()
    site.attestor = TpmAttestor(lambda _: Expected(BOOT, m.PLATFORM), ledger, site.time.now)
    if lie in ("replayed_quote", "other_tpm"):  # of an honest exchange before, and of the TPM that the node is bound to
        run(prove(site, machine, key))
    if lie:
        machine.inject("tpm", lie=lie)

    async def play() -> None:
        assert await exchanged(site, machine, key) == ((403, 409) if lie else (204, 200))

    run(play())


async def prove(site: Site, machine: Machine, key: str) -> None:
    async with site.serving() as installer:
        base = base_of(await installer.publish(TOKEN, DOCUMENT.model_copy(update={"attest": True}), None))
        begun = await ask("POST", f"{base}/attest/begin", data=dump_contract(machine.tpm_keys()))
        answer = machine.tpm_answer(load_contract(AttestationChallenge, begun.body), key)
        assert (await ask("POST", f"{base}/attest/finish", data=dump_contract(answer))).status == 204
