"""What the footer shows of a run: it is asked for while events are told, and agrees with how the run ended."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.converge.events import Event, NodeSettled, RunPlanned, RunProgress
from reconciler.model.desired import BudgetLimit
from tests.converge.world import World

Worlds = Callable[..., World]


class Watching(list[Event]):
    """The events of a run, and how far it was at its beginning and after each node."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[RunProgress] = []

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, RunPlanned | NodeSettled):
            planned = next(one for one in self if isinstance(one, RunPlanned))
            self.found.append(planned.how_far())


def test_a_run_tells_how_far_it_is(world: Worlds) -> None:
    here = world(nodes=6, settings={"budgets": (BudgetLimit("fleet", "2"),)})
    here.adopt()
    assert here.apply().ended_at
    for name in here.fleet.nodes:
        here.machine(name).state.bios["SriovGlobalEnable"] = "Disabled"
    here.events = Watching()
    here.apply()
    first, *later = here.events.found
    assert (first.nodes, first.done, first.failed, first.limit) == (6, 0, 0, 2)
    assert first.ends_at is not None
    assert [one.done for one in later] == [1, 2, 3, 4, 5, 6]
    assert (later[-1].nodes, later[-1].at_work) == (6, 0)
    assert max(one.out for one in later) <= 2
