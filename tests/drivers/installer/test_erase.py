"""An attempt that erases: its evidence is kept in the ledger, and nothing is certified for it."""

from __future__ import annotations

import pytest

from reconciler.model.install import EraseDocument, InstallPhase, MachineIdentity, load_contract
from tests.drivers.installer.conftest import NODE, TOKEN, Site, ask, new_host_key, report, run
from tests.drivers.installer.test_server import base_of

pytestmark = [pytest.mark.wire, pytest.mark.tool]

DOCUMENT = EraseDocument(node=NODE, nonce="n", machine=MachineIdentity(serial="S1", uuid=None), drives=("D1",))
ERASURE = {"serial": "D1", "model": "M", "firmware": "1", "method": "nvme sanitize, block erase", "tool": "nvme 2.3"}


def test_evidence_outlives_the_server_and_its_last_report_counts(site: Site) -> None:
    async def play() -> None:
        async with site.serving(site.ledger()) as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            assert load_contract(EraseDocument, (await ask("GET", f"{base}/install.json")).body) == DOCUMENT
            assert (await report(base, "erasing", erasure=ERASURE)).status == 204
            assert (await report(base, "erasing", erasure={**ERASURE, "log": "ff", "ended": True})).status == 204
            assert (await report(base, "erased")).status == 204
            assert (await report(base, "erasing", erasure=ERASURE)).status == 204
        async with site.serving(site.ledger()) as installer:
            found = await installer.progress(TOKEN)
            assert found.phase is InstallPhase.ERASED
            assert found.erasures["D1"]["log"] == "ff", "nothing counts after the last word"
            assert found.erasures["D1"]["ended"] is True

    run(play())


def test_no_host_key_is_certified_for_it(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None))
            assert (await report(base, "written")).status == 204
            assert (await ask("POST", f"{base}/hostkey", data=new_host_key(site.folder))).status == 400

    run(play())
