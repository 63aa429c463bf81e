"""A process that lives for days: how many sessions it opens, and that no write is ever sent twice (lab, wire)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.quirks import Table, packaged
from reconciler.drivers.redfish.session import LIFETIME_S
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import Quirks, Silence
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import FirmwareFile, PowerAction
from tests.drivers.redfish.bench import NOW, client
from tests.lab.redfish_bench import BIOS_IMAGE, EPOCH, ISO, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

pytestmark = pytest.mark.wire

IMPATIENT = Table(())  # waits for writes no longer than for reads


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


class Lab:
    def __init__(self, quirks: Quirks, trust: Trust) -> None:
        self.clock = Clock()
        self.machine = make_machine(self.clock)
        self.front = RedfishServer(self.machine, username=USERNAME, password=PASSWORD, quirks=quirks, epoch=EPOCH)
        self.trust = trust

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.seconds)

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.machine.catch_up()

    def play(self, steps: Callable[[RedfishBmc], Awaitable[None]], **options: Any) -> None:
        async def run() -> None:
            port = await self.front.start(self.trust.server)
            bmc = client(
                f"https://127.0.0.1:{port}",
                username=USERNAME,
                password=PASSWORD,
                ca_pem=self.trust.ca.read_text(),
                insecure=False,
                **{"now": self.now, "bmc_registry": BmcRegistry(self.now), **options},
            )
            try:
                await steps(bmc)
            finally:
                await bmc.close()
                await self.front.stop()
                await asyncio.sleep(0.01)  # TLS says goodbye

        asyncio.run(run())


@pytest.mark.parametrize(
    ("every_s", "passes", "sessions"),
    [
        (60.0, 200, 1),  # kept between passes
        (1500.0, 100, 1 + int(100 * 1500 / LIFETIME_S)),  # and not for ever
        (2000.0, 20, 20),  # the BMC ends sessions after half an hour without a request
    ],
)
def test_sessions_of_many_passes(trust: Trust, every_s: float, passes: int, sessions: int) -> None:
    lab = Lab(Quirks(max_sessions=2), trust)

    async def steps(bmc: RedfishBmc) -> None:
        for _ in range(passes):
            assert isinstance(await bmc.hot(), Answered)
            assert lab.front.open_sessions == 1
            lab.pass_time(every_s)
        assert abs(lab.front.logins - sessions) <= 1
        assert lab.front.refused_logins == 0
        assert isinstance(await bmc.hot(), Answered)
        await bmc.close()
        assert lab.front.open_sessions == 0

    lab.play(steps)


def test_a_bmc_that_restarts_is_logged_in_to_again(trust: Trust) -> None:
    lab = Lab(Quirks(), trust)

    async def steps(bmc: RedfishBmc) -> None:
        for restarts in range(1, 6):
            assert isinstance(await bmc.hot(), Answered)
            assert (lab.front.logins, lab.front.open_sessions) == (restarts, 1)
            await bmc.reset()
            for _ in range(6):  # while it restarts it is asked, but not each time
                assert isinstance(await bmc.hot(), Silent)
                lab.pass_time(5)
            lab.pass_time(200)
        assert lab.front.refused_logins == 0

    lab.play(steps)


WRITES: dict[str, Callable[[RedfishBmc], Awaitable[object]]] = {
    "power": lambda bmc: bmc.power(PowerAction.FORCE_OFF),
    "bios": lambda bmc: bmc.stage_bios({"QuietBoot": False}),
    "secure boot": lambda bmc: bmc.set_secure_boot(False),
    "boot order": lambda bmc: bmc.set_boot_order(["Pxe"]),
    "boot once": lambda bmc: bmc.boot_once("pxe"),
    "insert": lambda bmc: bmc.insert_media(ISO),
    "eject": lambda bmc: bmc.eject_media(),
    "firmware": lambda bmc: bmc.update_firmware("BIOS", FirmwareFile(BIOS_IMAGE)),
    "reset": lambda bmc: bmc.reset(),
}


@pytest.mark.parametrize("silence", [Silence.HANG, Silence.CLOSE])
def test_no_write_without_an_answer_is_sent_twice(trust: Trust, silence: Silence) -> None:
    """The BMC does as told and never says so (A3). A read tells afterwards, at once."""

    async def one(name: str) -> None:
        lab = Lab(Quirks(swallows_writes=True, unreachable=silence), trust)
        port = await lab.front.start(trust.server)
        bmc = client(
            f"https://127.0.0.1:{port}",
            username=USERNAME,
            password=PASSWORD,
            ca_pem=trust.ca.read_text(),
            insecure=False,
            read_timeout=0.4,
            bmc_registry=BmcRegistry(lab.now, quirks=IMPATIENT),
        )
        assert isinstance(await bmc.hot(), Answered)
        lab.front.requests.clear()
        with pytest.raises(DriverError) as caught:
            await WRITES[name](bmc)
        assert caught.value.kind is Failure.AMBIGUOUS, name
        writes = {call: count for call, count in lab.front.requests.items() if call[0] != "GET"}
        assert list(writes.values()) == [1], (name, writes)
        if name != "reset":
            assert isinstance(await bmc.hot(), Answered), name
        assert lab.front.logins == 1
        await bmc.close()
        await lab.front.stop()

    async def steps() -> None:
        await asyncio.gather(*map(one, WRITES))
        await asyncio.sleep(0.01)

    asyncio.run(steps())


def test_a_write_that_a_caller_gives_up_is_not_sent_by_anybody_later(trust: Trust) -> None:
    """The deadline of an action strikes while the write is under way: what comes next is a look."""
    lab = Lab(Quirks(slow_writes_s=0.6), trust)

    async def steps(bmc: RedfishBmc) -> None:
        await bmc.hot()
        lab.front.requests.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await bmc.power(PowerAction.FORCE_OFF)
        lab.pass_time(10)
        found = await bmc.hot()
        assert isinstance(found, Answered)
        assert found.value.power == "off"
        await asyncio.sleep(0.5)
        assert sum(count for call, count in lab.front.requests.items() if call[0] == "POST") == 1

    lab.play(steps)


def test_a_session_that_expires_before_a_write_costs_no_second_write(trust: Trust) -> None:
    """A 401 is an answer: nothing was done. The write that is sent after the login is the first that counts."""
    lab = Lab(Quirks(), trust)

    async def steps(bmc: RedfishBmc) -> None:
        await bmc.hot()
        lab.pass_time(7200)
        await bmc.stage_bios({"QuietBoot": False})
        assert lab.machine.state.counters.bios_writes == 1
        assert lab.front.logins == 2

    lab.play(steps)


def test_writes_are_not_sent_in_one_breath(trust: Trust) -> None:
    """Writes keep the gap that the table gives for every make (A12); reads follow at once."""
    lab = Lab(Quirks(), trust)

    async def steps(bmc: RedfishBmc) -> None:
        await bmc.hot()
        began = time.perf_counter()
        for device in ("pxe", "cd", "disk", "pxe"):
            await bmc.boot_once(device)
        assert time.perf_counter() - began > 3 * packaged().standard.write_gap >= 0.15

    lab.play(steps)
