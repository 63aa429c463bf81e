"""Outlets of rack PDUs: the driver on the lab's service, and on trees that real ones have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from reconciler.drivers.redfish import BmcRegistry, RedfishPdu
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.lab.hardware.mains import Mains
from reconciler.lab.wire.redfish_pdu import PduServer
from reconciler.model import desired as d
from reconciler.model.errors import DriverError, Failure
from tests.drivers.redfish.bench import NOW, PASSWORD, USER
from tests.lab.redfish_bench import Clock, make_machine, make_trust

T = TypeVar("T")
PDU = "https://pdu-a"
ALLOWED = "@Redfish.AllowableValues"

pytestmark = pytest.mark.wire


def on_a_pdu(
    directory: Path, work: Callable[[RedfishPdu, Mains], Awaitable[T]], serve: Any = None, password: str = PASSWORD
) -> T:
    """Run `work` on the driver at a lab's PDU with the outlets A1 and A2 of one machine."""
    trust, clock = make_trust(directory), Clock()
    fed = SimpleNamespace(outlets=(d.Outlet(PDU, "A1"), d.Outlet(PDU, "A2")))
    mains = Mains({"n0": fed}, {"n0": make_machine(clock)})  # type: ignore[dict-item]

    async def run() -> T:
        server = PduServer(mains, PDU, username=USER, password=PASSWORD, clock=clock)
        if serve is not None:
            server._document = serve(server._document)  # type: ignore[method-assign]
        port = await server.start(trust.server)
        pdu = RedfishPdu(
            f"https://127.0.0.1:{port}", secret="pdu", credentials=lambda: Credentials(USER, Secret(password)),
            ca_pem=trust.ca.read_text(), insecure=False, node=PDU, bmc_registry=BmcRegistry(lambda: NOW),
        )  # fmt: skip
        try:
            return await work(pdu, mains)
        finally:
            await pdu.close()
            await server.stop()

    return asyncio.run(run())


def test_outlets_are_switched_and_read_back(tmp_path: Path) -> None:
    async def work(pdu: RedfishPdu, mains: Mains) -> None:
        assert await pdu.outlets(["A1", "A2"]) == {"A1": True, "A2": True}
        await pdu.switch(["A1"], on=False)
        assert await pdu.outlets(["A1", "1/A2"]) == {"A1": False, "1/A2": True}
        assert mains.on == {(PDU, "A1"): False, (PDU, "A2"): True}
        await pdu.switch(["A1"], on=True)
        assert mains.on[PDU, "A1"]

    on_a_pdu(tmp_path, work)


@pytest.mark.parametrize("name", ["A9", "2/A1"])
def test_an_outlet_that_is_not_there_is_refused_before_any_is_switched(tmp_path: Path, name: str) -> None:
    async def work(pdu: RedfishPdu, mains: Mains) -> None:
        with pytest.raises(DriverError) as error:
            await pdu.switch(["A1", name], on=False)
        assert error.value.kind is Failure.REJECTED
        assert all(mains.on.values())

    on_a_pdu(tmp_path, work)


def bent(change: Callable[[dict[str, Any]], None]) -> Any:
    def serve(original: Callable[[str], dict[str, Any] | None]) -> Callable[[str], dict[str, Any] | None]:
        def document(where: str) -> dict[str, Any] | None:
            found = original(where)
            if found is not None and where.endswith("/A1"):
                change(found)
            return found

        return document

    return serve


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda found: found.pop("Actions"), "can't be switched: it offers no Outlet.PowerControl"),
        (lambda found: found.pop("PowerState"), "does not tell whether it gives power"),
        (
            lambda found: found["Actions"]["#Outlet.PowerControl"].update({f"PowerState{ALLOWED}": ["On"]}),
            "can't be switched off: it takes On",
        ),
    ],
)  # fmt: skip
def test_an_outlet_that_is_only_measured_is_unsupported(tmp_path: Path, change: Any, why: str) -> None:
    async def work(pdu: RedfishPdu, mains: Mains) -> None:
        with pytest.raises(DriverError, match=why) as error:
            await (pdu.outlets(["A1"]) if "tell" in why else pdu.switch(["A1"], on=False))
        assert error.value.kind is Failure.UNSUPPORTED
        assert all(mains.on.values())

    on_a_pdu(tmp_path, work, bent(change))


def test_a_wrong_password_is_told_as_such(tmp_path: Path) -> None:
    async def work(pdu: RedfishPdu, _: Mains) -> None:
        with pytest.raises(DriverError) as error:
            await pdu.outlets(["A1"])
        assert error.value.kind is Failure.AUTH

    on_a_pdu(tmp_path, work, password="wrong")


def test_a_silent_pdu_is_unreachable(tmp_path: Path) -> None:
    async def work(pdu: RedfishPdu, mains: Mains) -> None:
        mains.silent.add(PDU)
        with pytest.raises(DriverError) as error:
            await pdu.outlets(["A1"])
        assert error.value.kind in (Failure.UNREACHABLE, Failure.MALFORMED, Failure.TIMEOUT)

    on_a_pdu(tmp_path, work)
