"""The server of install documents, as an installer asks it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from reconciler.drivers.installer import HttpInstaller
from reconciler.model.desired import InstallerPolicy


@pytest.mark.wire
def test_an_installer_that_has_its_document_has_started() -> None:
    async def ask() -> None:
        installer = HttpInstaller(InstallerPolicy("127.0.0.1:0", None, "http://127.0.0.1:1/boot.iso"))
        try:
            medium = await installer.publish("t1", {"node": "n0"})
            await installer.publish("t2", {"node": "n1"})
            async with ClientSession() as session:
                async with session.get(medium.replace("/t1/", "/other/").replace("boot.iso", "install.json")) as answer:
                    assert answer.status == 404
                assert not await installer.fetched("t1")
                async with session.get(medium.replace("boot.iso", "install.json")) as answer:
                    assert await answer.json() == {"node": "n0"}
            assert (await installer.fetched("t1"), await installer.fetched("t2")) == (True, False)
            await installer.withdraw("t1")
            assert not await installer.fetched("t1")
        finally:
            await installer.close()

    asyncio.run(ask())
