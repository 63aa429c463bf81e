"""A BMC that takes the login that its vendor ships it with: every report says so, and nobody outside is told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observe import observe
from reconciler.drivers.secrets import SecretStore
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.model import desired as d
from reconciler.model.access import TlsPolicy
from reconciler.model.observed import Observation
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.publish import publish
from tests import builders as b
from tests.lab.redfish_bench import EPOCH, Clock, make_machine, make_trust

pytestmark = pytest.mark.wire


def fleet_at(urls: list[str], ca: str) -> d.Fleet:
    nodes = [b.node(f"n{at}", endpoints=d.Endpoints(url, None)) for at, url in enumerate(urls)]
    settings = replace(b.SETTINGS, tls=TlsPolicy(ca), cluster=None, installer=None)
    return d.Fleet(settings, d.SpecSource("spec", "c0ffee"), {node.node: node for node in nodes}, "digest")


def seen(tmp_path: Path, username: str, password: str, own: str) -> tuple[d.Fleet, Observation]:
    """Observe two BMCs: one has the password of the secret, the other one its own."""
    trust = make_trust(tmp_path)
    (tmp_path / "bmc.json").write_text(json.dumps({"username": username, "password": password}))
    (tmp_path / "bmc.json").chmod(0o600)
    (tmp_path / "secrets.yaml").write_text("secrets: {bmc: {file: bmc.json, allow: ['127.0.0.0/8']}}\n")

    async def run() -> tuple[d.Fleet, Observation]:
        fronts = [
            RedfishServer(make_machine(Clock()), username=username, password=one, epoch=EPOCH)
            for one in (password, own)
        ]
        urls = [f"https://127.0.0.1:{await front.start(trust.server)}" for front in fronts]
        fleet = fleet_at(urls, trust.ca.read_text())
        fabric = WireFabric(fleet, RealClock(), SecretStore.load(tmp_path / "secrets.yaml"), None)
        try:
            return fleet, await observe(fleet, list(fleet.nodes), fabric, RealClock())
        finally:
            await fabric.close()
            for front in fronts:
                await front.stop()

    return asyncio.run(run())


def test_it_is_told_in_every_report_and_never_tried_elsewhere(tmp_path: Path) -> None:
    fleet, observation = seen(tmp_path, "root", "calvin", "another")
    [told] = observation.insecure
    assert told.startswith("1 of 1 BMCs take the login that Dell's iDRAC comes with (secret bmc), those of n0: ")
    assert "calvin" not in told
    plan = plan_fleet(fleet, observation, LedgerSnapshot("ledger"), observation.finished_at, PlanRequest("plan", {}))
    assert plan.insecure == (told,)
    assert publish(fleet, observation, MemoryLedger("ledger"), b"k" * 32, {}).insecure == ()


def test_a_login_of_ones_own_is_no_finding(tmp_path: Path) -> None:
    _, observation = seen(tmp_path, "root", "calvin2", "calvin")
    assert observation.insecure == ()
