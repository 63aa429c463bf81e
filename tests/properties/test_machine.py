"""Invariants 1 to 10, 13, 15 and 17, and that waves are never overtaken, by a state machine over a small fleet.

The machine is in tests/soak. 40 examples of 200 steps each where CI is set, and 200 of them in `make soak`, in shards
that chance treats apart, so that workers share them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from reconciler.converge.apply import ApplyReport
from tests.soak.machine import FleetMachine
from tests.soak.play import play
from tests.soak.shorten import replay

SHARDS = 20
EXAMPLES = {100: 40, 500: 200}.get(settings().max_examples, SHARDS)  # of the profiles ci and soak; else one a shard
thorough = EXAMPLES > SHARDS


@pytest.mark.parametrize("shard", range(SHARDS))
def test_fleet_keeps_its_invariants(shard: int) -> None:
    examples = EXAMPLES // SHARDS
    played = play(shard, examples, 200 if thorough else 60)
    assert played.broken == "", played.story
    if thorough:
        assert played.examples >= examples
        assert played.steps >= 200 * examples


def test_fleet_keeps_its_invariants_with_a_ledger_on_disk() -> None:
    """As runs keep it, which takes several times as long."""
    played = play(1000, 3 if thorough else 1, 200 if thorough else 60, on_disk=True)
    assert played.broken == "", played.story


def test_a_hang_in_post_is_ended_before_boot_settings_are_written() -> None:
    """Pitfall A8: its BMC refuses them meanwhile. They came first, for one boot less, and the node never came back."""
    steps: list[tuple[str, dict[str, Any]]] = [
        ("break_", {"kind": "hangs in POST", "name": "n6"}),
        ("drift", {"kind": "rebooted", "name": "n6"}),
        ("drift", {"kind": "Secure Boot off", "name": "n6"}),
        ("time_passes", {"length": 86400.0}),
    ]
    assert replay(steps) == ""


class Careless(FleetMachine):
    """Its fleet forgets who cordoned what, and its runs lift every cordon that they meet."""

    def run(self, *args: Any, **changes: Any) -> ApplyReport | None:
        for name in self.checker.foreign:
            self.world.kube.update_node(name, unschedulable=False)
        return super().run(*args, **changes)


def test_what_breaks_is_told_with_the_steps_that_it_takes() -> None:
    """The shards above are worth something only if a broken invariant is noticed, and can be seen again."""
    played = play(0, 20, 60, machine=Careless)
    assert played.broken.startswith("foreign_cordon_is_kept")
    assert next(name for name, _ in played.left) == "others_cordon"
    assert len(played.left) <= 2
    assert "--seed 0" in played.story
