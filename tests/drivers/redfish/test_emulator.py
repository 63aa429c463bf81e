"""Against sushy-tools' emulator: a Redfish service that we did not write. It knows Basic and no sessions."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.conformance import RedfishSuite
from reconciler.model.conformance import CheckResult
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, BmcTask, Nic, RedfishHot, Silent
from reconciler.model.ports import FirmwareFile, PowerAction
from reconciler.model.vocab import Health, Power
from tests.drivers.redfish.bench import NOW, PASSWORD, USER, client

# Its machines take up to eleven seconds to switch; ours have no time for that.
EMULATOR = "import random, sushy_tools.emulator.main as emulator; random.randint = lambda *_: 0; emulator.main()"
UUID = "27946b59-9e44-4fa7-8e91-f3527a1ef094"

pytestmark = [
    pytest.mark.wire,
    pytest.mark.skipif(importlib.util.find_spec("sushy_tools") is None, reason="sushy-tools is not installed"),
]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("emulator")
    accounts = folder / "accounts"
    accounts.write_text(f"{USER}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
    system = {"uuid": UUID, "name": "fake", "power_state": "Off", "external_notifier": False}
    system["nics"] = [{"mac": "00:5c:52:31:3a:9c", "ip": "172.22.0.100"}]
    settings = {
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": [system],
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "SUSHY_EMULATOR_AUTH_FILE": str(accounts),
    }
    config = folder / "emulator.conf"
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", EMULATOR, "--config", str(config), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    pytest.fail("sushy-emulator does not start")


@pytest.fixture
def iso(tmp_path: Path) -> Iterator[str]:
    """URL of an image; the emulator fetches what it is told to insert."""
    (tmp_path / "boot.iso").write_bytes(b"not bootable")
    handler = partial(_Quiet, directory=str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/boot.iso"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def play(url: str, steps: Callable[[RedfishBmc], Any], **options: Any) -> Any:
    async def run() -> Any:
        bmc = client(url, **{"read_timeout": 10, **options})
        try:
            return await steps(bmc)
        finally:
            await bmc.close()

    return asyncio.run(run())


async def hot(bmc: RedfishBmc) -> RedfishHot:
    found = await bmc.hot()
    assert isinstance(found, Answered), found
    return found.value


def test_reads(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        found = await hot(bmc)
        assert (found.manufacturer, found.uuid, found.health) == ("Sushy Emulator", UUID, Health.OK)
        assert found.boot_override is not None
        assert found.boot_override.allowable == ("Pxe", "Cd", "Hdd", "UefiHttp")
        assert found.unknown.keys() == {"model", "serial", "boot_phase", "pending_bios", "tasks"} - (
            {"boot_phase"} if found.power is Power.OFF else set()
        )
        inventory = await bmc.inventory()
        assert isinstance(inventory, Answered)
        assert inventory.value.nics == (Nic("00:5c:52:31:3a:9c", "00:5c:52:31:3a:9c"),)
        assert inventory.value.secure_boot is False
        assert inventory.value.manager is not None
        assert inventory.value.bios is None
        assert "the BMC offers no Bios" in inventory.value.unknown["bios"]

    play(emulator, steps)


def test_power(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        for action, state in ((PowerAction.ON, Power.ON), (PowerAction.FORCE_OFF, Power.OFF)):
            for _ in range(2):  # again, though it is so already
                await bmc.power(action)
                assert (await hot(bmc)).power is state

    play(emulator, steps)


def test_boot_and_secure_boot(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        for device, word in (("cd", "Cd"), ("pxe", "Pxe"), ("disk", "Hdd")):
            await bmc.boot_once(device)
            override = (await hot(bmc)).boot_override
            assert override is not None
            assert (override.target, override.enabled) == (word, "Continuous")
        await bmc.boot_once("cd")
        await bmc.clear_boot_override()  # it knows no Disabled, and boots from disk instead
        override = (await hot(bmc)).boot_override
        assert override is not None
        assert override.target == "Hdd"
        for wanted in (True, False):
            await bmc.set_secure_boot(wanted)
            inventory = await bmc.inventory()
            assert isinstance(inventory, Answered)
            assert inventory.value.secure_boot is wanted

    play(emulator, steps)


def test_media(emulator: str, iso: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        await bmc.eject_media()
        assert await bmc.media() is None
        await bmc.insert_media(iso)
        assert await bmc.media() == iso
        await bmc.eject_media()
        assert await bmc.media() is None
        with pytest.raises(DriverError):
            await bmc.insert_media(iso.replace("boot", "missing"))

    play(emulator, steps)


def test_task_and_what_it_can_not_do(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        assert await bmc.task("/redfish/v1/TaskService/Tasks/42") == BmcTask(
            "/redfish/v1/TaskService/Tasks/42", "Completed", done=True, ok=True, percent=100
        )
        assert await bmc.task("/redfish/v1/TaskService/Tasks/43") is None
        for write in (
            bmc.stage_bios({"A": 1}),
            bmc.clear_bios(),
            bmc.reset(),
            bmc.update_firmware("BIOS", FirmwareFile("http://x/y")),
        ):
            with pytest.raises(DriverError) as caught:
                await write
            assert caught.value.kind is Failure.UNSUPPORTED

    play(emulator, steps)


def test_it_has_no_accounts_whose_password_could_be_changed(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        with pytest.raises(DriverError) as caught:
            await bmc.stage_password()
        assert caught.value.kind is Failure.UNSUPPORTED
        assert "AccountService" in caught.value.detail

    play(emulator, steps)


def test_conformance(emulator: str) -> None:
    """What the emulator lacks is said to be lacking, and what it has holds what the suite writes."""

    async def steps(bmc: RedfishBmc) -> None:
        suite = RedfishSuite(bmc, emulator)
        report = await suite.read()
        found = {one.check.name: one.result for one in report.outcomes}
        failed = {one.check.name: one.detail for one in report.outcomes if one.result is CheckResult.FAIL}
        # Its fake machine has no serial number, and links to parts that it can't answer for.
        assert failed.keys() == {
            "certificate", "protocol-version", "serial", "memory", "drives", "firmware-inventory"
        }  # fmt: skip
        assert "HTTP 500" in failed["drives"]
        assert found["session-login"] is CheckResult.NOT_OFFERED, "it has Basic alone"
        assert suite.serial is None

    play(emulator, steps)


def test_a_wrong_password(emulator: str) -> None:
    async def steps(bmc: RedfishBmc) -> None:
        with pytest.raises(DriverError) as caught:
            await bmc.media()
        assert caught.value.kind is Failure.AUTH

    play(emulator, steps, password="wrong")


def test_a_wrong_password_is_the_matter_of_all_who_name_the_bmc(emulator: str) -> None:
    """The emulator has no sessions: each request would be a login."""
    bmc_registry = BmcRegistry(lambda: NOW)

    async def steps(bmc: RedfishBmc) -> None:
        assert isinstance(await bmc.hot(), Silent)
        other = client(emulator, password="wrong", node="gpu-a002", bmc_registry=bmc_registry)
        found = await other.hot()
        assert isinstance(found, Silent)
        assert "of gpu-a002, asked for gpu-a001, refused secret 'bmc'" in found.detail
        right = client(emulator, node="gpu-a002", bmc_registry=bmc_registry)
        assert isinstance(await right.hot(), Answered)
        await right.close()

    play(emulator, steps, password="wrong", bmc_registry=bmc_registry)
