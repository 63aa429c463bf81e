"""`reconciler isolation`: which cordons a retraction lifts by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.app import isolation
from reconciler.model.records import RETRACTED
from reconciler.model.vocab import NodeState
from tests.converge.test_isolation import NONE_OUT, WATCHED, fall_ill
from tests.converge.test_loop import HOUR
from tests.converge.world import World


@dataclass
class VirtualWorkspace:
    """What the use case needs of a workspace, in virtual time."""

    world: World

    @property
    def fleet(self) -> Any:
        return self.world.fleet

    @property
    def clock(self) -> Any:
        return self.world.clock

    def fabric(self) -> Any:
        return self.world.fabric


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path, profile=WATCHED, nodes=20, racks=20, settings={"budgets": NONE_OUT})
    found.adopt()
    found.apply()
    found.clock.elapsed += 2 * HOUR
    monkeypatch.setattr(isolation, "run_async", found.run)
    return found


def test_a_retraction_lifts_the_cordons_that_nobody_else_has_a_reason_for(here: World) -> None:
    fall_ill(here, "n1", "n2", "n3", persistent=True)
    here.apply(wait_s=0.0)
    workspace: Any = VirtualWorkspace(here)
    ledger: Any = here.ledger
    assert [(one.node, one.drained) for one in isolation.isolated(workspace, ledger)] == [
        ("n1", False),
        ("n2", False),
        ("n3", False),
    ]
    here.ledger.hold(RETRACTED + "condition_GpuUnhealthy", "wrong", "ops", None, here.clock.now())
    away = replace(here.fleet.nodes["n2"], state=NodeState.QUARANTINED)
    here.fleet = replace(here.fleet, nodes={**here.fleet.nodes, "n2": away})
    here.ledger.note_silences([("n3", "health.gpu_missing", True)], here.clock.now())
    assert dict(isolation.lift_cordons(workspace, ledger)) == {
        "n1": "back in service",
        "n2": "left as it is: the spec says `state: quarantined`",
        "n3": "left as it is: the ledger has evidence of health.gpu_missing as well",
    }
    assert [here.serves(name) for name in ("n1", "n2", "n3")] == [True, False, False]
