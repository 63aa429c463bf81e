"""How long an event goes unseen, and how often a machine is asked for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from reconciler.converge.actions.context import ActionContext, growing_pause_s, poll
from tests.converge.world import World

Worlds = Callable[..., World]


def looks(event_s: float, longest_s: float) -> list[float]:
    """Return when it is looked for an event, up to the look that sees it."""
    at = [0.0]
    while at[-1] < event_s:
        at.append(at[-1] + growing_pause_s(at[-1], longest_s))
    return at


@given(event=st.floats(0.0, 3600.0), longest=st.sampled_from([2.0, 3.0, 5.0]))
def test_an_event_is_seen_within_a_tenth_of_its_time_and_never_later_than_with_fixed_pauses(
    event: float, longest: float
) -> None:
    seen = looks(event, longest)
    assert seen[-1] - event <= max(1.0, event / 10) + 1e-9
    assert seen[-1] - event <= longest + 1e-9
    # Ten looks in the first ten seconds, those of growing pauses, and then as many as ever.
    assert len(seen) <= 12 + 10 * math.log(max(longest, 1.0)) * 1.1 + event / longest


def test_a_machine_that_is_soon_there_is_seen_soon(world: Worlds) -> None:
    here = world(nodes=1)
    asked: list[float] = []

    async def wait() -> str | None:
        began = here.clock.elapsed

        async def probe() -> str | None:
            asked.append(here.clock.elapsed - began)
            return "there" if asked[-1] >= 42.0 else None

        of_the_clock = cast(ActionContext, SimpleNamespace(clock=here.clock))
        return await poll(of_the_clock, probe, within_s=600.0, every_s=5.0, soon=True)

    assert here.run(wait()) == "there"
    assert asked[-1] <= 46.2
    assert asked[:3] == [0.0, 1.0, 2.0]
