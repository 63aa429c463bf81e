"""The driver as it is wired: one memory of BMCs for a whole process, and secrets that are read anew."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observe import observe
from reconciler.drivers import secrets
from reconciler.drivers.endpoints import load_endpoints
from reconciler.lab.scenario import Scenario
from reconciler.lab.up import Options, running_lab
from reconciler.model.desired import Fleet
from reconciler.model.observed import Answered, Silent
from reconciler.spec import load_spec

pytestmark = pytest.mark.wire
NODES = 8


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
            fleet = load_spec(lab.spec, directory="fleet-spec")
            fabric = WireFabric(
                fleet, RealClock(), secrets.SecretStore.load(), load_endpoints(tmp_path / "endpoints.json")
            )
            try:
                for _ in range(2):
                    assert await seen(fleet, fabric) == {"refused": 3, "not asked": NODES - 3}
                file.write_text(right)
                monkeypatch.setattr(secrets, "REREAD_S", 0.0)
                assert await seen(fleet, fabric) == {"answers": NODES}
                file.unlink()  # what was read last goes on
                assert await seen(fleet, fabric) == {"answers": NODES}
            finally:
                await fabric.close()

    asyncio.run(steps())
