"""Events only wake the loop: what they told of is found in the next pass, whoever missed them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.converge.test_loop import HOUR, MINUTE, Looped, disable
from tests.converge.test_node_conditions import WATCHED, done, seconds_until_treated


@pytest.fixture
def deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looped]:
    """A loop that hears nothing of its cluster."""
    here = Looped(tmp_path, nodes=3, profile=WATCHED)
    monkeypatch.setattr(here.fabric, "watches", dict)
    yield here
    here.ledger.close()


def test_an_event_that_is_lost_loses_nothing(deaf: Looped) -> None:
    """Pitfall I4: a detector's condition persists, and so it is seen within an interval, as it lasts."""
    assert seconds_until_treated(deaf) < 5 * MINUTE


def test_each_pass_reads_again(deaf: Looped) -> None:
    """Conventions L1: drift that no event told of, and that changed between two passes, is acted upon as it is now."""
    here = deaf

    async def drifts() -> None:
        await here.clock.sleep(3 * MINUTE)
        here.ledger.hold("n1", "not yet", "ops", None, here.clock.now())
        disable(here.machine("n1"))
        disable(here.machine("n2"))
        await here.clock.sleep(10 * MINUTE)
        here.machine("n1").state.bios["SriovGlobalEnable"] = "Enabled"
        here.machine("n1").state.etag += 1
        await here.clock.sleep(10 * MINUTE)
        [hold] = here.ledger.holds()
        here.ledger.release(hold.subject, "ops", here.clock.now())

    here.go(HOUR, drifts)
    assert "set_bios" in done(here, "n2")
    assert done(here, "n1") == [], "what it was held back from is needed no more"
    assert here.serves("n1")
