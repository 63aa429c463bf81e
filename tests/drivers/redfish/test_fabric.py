"""The driver as it is wired: one memory of BMCs for a whole process, and secrets that are read anew."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observe import observe
from reconciler.drivers import secrets, source_watch
from reconciler.drivers.endpoints import load_endpoints
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.redfish import event_posts, event_stream
from reconciler.drivers.source_watch import Pauses
from reconciler.lab.scenario import Scenario
from reconciler.lab.up import Options, running_lab
from reconciler.lab.wire import redfish
from reconciler.lab.wire.redfish_quirks import Quirks
from reconciler.model.access import EventListenerPolicy
from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Silent
from reconciler.model.vocab import NewsSource
from reconciler.spec import load_spec
from tests.drivers.redfish.test_event_stream import until

pytestmark = pytest.mark.wire
NODES = 8


class SetClock(RealClock):
    """A wall clock that somebody sets."""

    by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


async def seen(fleet: Fleet, fabric: WireFabric) -> Counter[str]:
    """Count the BMCs that answer, and collect the reasons of the silent ones."""
    found: Counter[str] = Counter()
    observation = await observe(fleet, list(fleet.nodes), fabric, RealClock())
    for node in observation.nodes.values():
        if isinstance(node.hot, Answered):
            found["answers"] += 1
            continue
        assert isinstance(node.hot, Silent)
        found["not asked" if "was not asked" in node.hot.detail else "refused"] += 1
        assert node.node in node.hot.detail
        assert "'bmc'" in node.hot.detail
    return found


def test_a_wrong_secret_is_sent_to_three_and_a_corrected_one_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        options = Options(tmp_path, Scenario.model_validate({"nodes": {}}), nodes=NODES, seed=1)
        async with running_lab(options, lambda: None) as lab:
            file = tmp_path / "secrets" / "bmc.json"
            right = file.read_text()
            wrong = json.dumps({**json.loads(right), "password": "not this one"})
            file.write_text(wrong)
            fleet, clock = load_spec(lab.spec, directory="fleet-spec"), SetClock()
            fabric = WireFabric(fleet, clock, secrets.SecretStore.load(), load_endpoints(tmp_path / "endpoints.json"))
            try:
                for _ in range(2):
                    assert await seen(fleet, fabric) == {"refused": 3, "not asked": NODES - 3}
                file.write_text(right)
                monkeypatch.setattr(secrets, "REREAD_S", 0.0)
                assert await seen(fleet, fabric) == {"answers": NODES}
                file.unlink()  # what was read last goes on
                assert await seen(fleet, fabric) == {"answers": NODES}
                clock.by = timedelta(minutes=-37)
                bmc = fabric.bmc(next(iter(fleet.nodes.values())))
                assert bmc is not None
                assert abs(clock.now() - (await bmc.hot()).at) < timedelta(minutes=1), "dated as all other sources are"
            finally:
                await fabric.close()

    asyncio.run(steps())


def test_a_bmc_without_a_stream_posts_its_events_once_it_is_proved_to_be_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec says where; another address takes the subscription with it, and none leaves none that is renewed."""
    monkeypatch.setattr(redfish, "quirks_of_make", lambda _: Quirks(event_stream="", event_posts="types"))
    monkeypatch.setattr(source_watch, "_LOOK_S", 0.05)
    monkeypatch.setattr(event_stream, "PAUSES", Pauses(0.1, 0.2, 0.1))
    monkeypatch.setattr(event_posts, "_LOOK_S", 0.05)

    async def steps() -> None:
        options = Options(tmp_path, Scenario.model_validate({"nodes": {}}), nodes=1, seed=1)
        ledger = SqlLedger(tmp_path / "ledger.sqlite")
        async with running_lab(options, lambda: None) as lab:
            fleet = load_spec(lab.spec, directory="fleet-spec")
            (name,) = fleet.nodes
            undeclared = replace(fleet.nodes[name], serial=None, uuid=None)
            asked = replace(fleet.settings, bmc_events=EventListenerPolicy("192.0.2.1:8090"))  # a lab is on loopback
            fleet = replace(fleet, nodes={name: undeclared}, settings=asked)
            machine = lab.lab.machines[name]
            overlay = load_endpoints(tmp_path / "endpoints.json")
            fabric = WireFabric(fleet, RealClock(), secrets.SecretStore.load(), overlay, ledger=ledger)
            assert fabric._acting is not None, "what acts loads all that it may use before it begins"
            news: list[str] = []

            async def hear() -> None:
                async with aclosing(fabric.watches()[NewsSource.BMC_EVENTS].changes()) as names:
                    async for name in names:
                        news.append(name)

            task = asyncio.create_task(hear())
            try:
                await asyncio.sleep(1.0)
                assert machine.state.subscriptions == {}, "nothing says whose BMC it is"
                now = RealClock().now()
                ledger.remember_identities({name: (machine.state.serial, machine.state.uuid)}, now)
                await until(lambda: len(machine.state.subscriptions) == 1)
                (first,) = machine.state.subscriptions.values()
                assert first["Destination"].startswith("http://127.0.0.1:")
                await until(lambda: bool(getattr(fabric._acting_ports()._posted_events._listener, "_expected", None)))
                machine.inject("failed_part", part="dimm", index=3, how="logged")
                await until(lambda: name in news)
                moved = replace(asked, bmc_events=EventListenerPolicy("192.0.2.2:8090"))
                await fabric.refit(replace(fleet, settings=moved))
                await until(lambda: first not in machine.state.subscriptions.values())
                await until(lambda: len(machine.state.subscriptions) == 1)
                kept = dict(machine.state.subscriptions)
                await fabric.refit(replace(fleet, nodes={}, settings=moved))
                await asyncio.sleep(0.5)
                assert machine.state.subscriptions == kept, "a node that left the spec is not touched"
            finally:
                task.cancel()
                await asyncio.wait([task])
                await fabric.close()
                ledger.close()

    asyncio.run(steps())
