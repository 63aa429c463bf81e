"""The boot medium for machines that boot over PXE, by their MAC address, and whom it is kept from."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession, TCPConnector

from reconciler.drivers.installer import HttpInstaller
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import AttemptCredential, load_contract
from tests.drivers.installer.conftest import DOCUMENT, TOKEN, Site, ask, report, run
from tests.drivers.installer.test_server import base_of

pytestmark = pytest.mark.wire

MAC = "52:54:00:ab:cd:01"
CREDENTIAL = AttemptCredential(url="", mac=MAC, address="10.0.0.7/24")


async def offered(installer: HttpInstaller, token: str = TOKEN) -> tuple[str, str]:
    """Offer an attempt; return its base, and the base by MAC address."""
    base = base_of(await installer.publish(token, DOCUMENT, CREDENTIAL, pxe=True))
    return base, f"{base.removesuffix(token)}boot/{MAC.replace(':', '-')}"


async def ask_from(address: str, url: str) -> int:
    async with ClientSession(connector=TCPConnector(local_addr=(address, 0))) as session, session.get(url) as answer:
        return answer.status


def test_ipxe_and_uefi_http_boot_find_the_attempt_of_their_mac_address(site: Site) -> None:
    async def play() -> None:
        async with site.serving(pxe=True) as installer:
            base, by_mac = await offered(installer)
            script = await ask("GET", f"{by_mac}/boot.ipxe")
            assert script.text == f"#!ipxe\nsanboot --no-describe {by_mac}/boot.iso || exit 1"
            assert TOKEN not in script.text
            medium = await ask("GET", f"{by_mac}/boot.iso")
            assert medium.body == (await ask("GET", f"{base}/boot.iso")).body
            at = medium.body.index(b'{"address"')
            assert load_contract(AttemptCredential, medium.body[at : at + 4096]).url == base
            part = await ask("GET", f"{by_mac}/boot.iso", headers={"Range": "bytes=0-99"})
            assert (part.status, part.body) == (206, medium.body[:100])
            for spelled in (MAC, MAC.upper(), MAC.replace(":", "")):
                found = await ask("HEAD", f"{by_mac.rpartition('/')[0]}/{spelled}/boot.iso")
                assert found.status == 200, spelled

    run(play())


def test_nothing_is_offered_by_a_mac_address_that_the_spec_did_not_ask_for(site: Site) -> None:
    async def play() -> None:
        async with site.serving(pxe=True) as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, CREDENTIAL))
            by_mac = f"{base.removesuffix(TOKEN)}boot/{MAC}"
            assert (await ask("GET", f"{by_mac}/boot.iso")).status == 404, "this attempt goes another way"
            _, by_mac = await offered(installer)
            other = f"{by_mac[:-2]}02"
            assert (await ask("GET", f"{other}/boot.ipxe")).status == 404
            assert (await ask("GET", f"{other}/boot.iso")).status == 404
            with pytest.raises(DriverError, match="names no MAC address") as caught:
                await installer.publish("6a" * 16, DOCUMENT, None, pxe=True)
            assert caught.value.kind is Failure.REJECTED
        async with site.serving() as installer:
            with pytest.raises(DriverError, match="does not offer it"):
                await offered(installer)

    run(play())


def test_whoever_asks_first_is_the_only_one_who_is_answered(site: Site) -> None:
    async def play() -> None:
        async with site.serving(pxe=True) as installer:
            _, by_mac = await offered(installer)
            assert await ask_from("127.0.0.2", f"{by_mac}/boot.ipxe") == 200
            assert await ask_from("127.0.0.3", f"{by_mac}/boot.ipxe") == 404
            assert await ask_from("127.0.0.3", f"{by_mac}/boot.iso") == 404
            await offered(installer)
            assert await ask_from("127.0.0.3", f"{by_mac}/boot.iso") == 404, "publishing again changes nothing"
            assert await ask_from("127.0.0.2", f"{by_mac}/boot.iso") == 200

    run(play())


@pytest.mark.parametrize("ends", ["fetched", "withdrawn", "reported"])
def test_an_attempt_is_offered_until_its_installer_has_the_document(site: Site, ends: str) -> None:
    """From then on the MAC address opens nothing, and the installer goes on by its token."""

    async def play() -> None:
        async with site.serving(pxe=True) as installer:
            base, by_mac = await offered(installer)
            assert (await ask("GET", f"{by_mac}/boot.iso")).status == 200
            if ends == "fetched":
                assert (await ask("GET", f"{base}/install.json")).status == 200
            elif ends == "withdrawn":
                await installer.withdraw(TOKEN)
            else:
                assert (await report(base, "written")).status == 204
            assert (await ask("GET", f"{by_mac}/boot.ipxe")).status == 404
            assert (await ask("GET", f"{by_mac}/boot.iso")).status == 404
            if ends == "fetched":
                assert (await report(base, "started")).status == 204

    run(play())


def test_another_leader_offers_it_again_from_what_the_ledger_has(site: Site) -> None:
    async def play() -> None:
        async with site.serving(site.ledger(), pxe=True) as installer:
            await offered(installer)
        async with site.serving(site.ledger(), pxe=True) as installer:
            base = base_of(await installer.publish(TOKEN, DOCUMENT, None, pxe=True))
            assert (await ask("GET", f"{base.removesuffix(TOKEN)}boot/{MAC}/boot.iso")).status == 200

    run(play())
