"""How far a run is: what the footer of a terminal shows, and what CI prints now and then."""

from __future__ import annotations

from reconciler.converge.dispatcher import Dispatcher
from reconciler.converge.events import RunProgress
from reconciler.converge.run import Ended
from reconciler.model.plan import BudgetLine, RolloutPlan, WaveState

_FAILED = (Ended.FAILED, Ended.CRASHED, Ended.STALE)
_OPEN = (WaveState.OPEN, WaveState.BAKING, WaveState.HALTED)


def run_progress(dispatcher: Dispatcher) -> RunProgress:
    """Return how far the dispatcher is with the nodes of its latest pass."""
    results = dispatcher.settled
    ended = {name: result.state for name, result in results.items() if result.state is not Ended.CONVERGED}
    left = {name: plan for name, plan in dispatcher.plans.items() if plan.changes and name not in ended}
    ends = [plan.end for plan in left.values() if plan.end is not None]
    fleet = _of_fleet(dispatcher.limits.budget_lines())
    wave, waves = _wave(dispatcher.limits.rollouts.plans)
    return RunProgress(
        nodes=len(left) + len(ended),
        done=sum(state is Ended.DONE for state in ended.values()),
        failed=sum(state in _FAILED for state in ended.values()),
        at_work=len(dispatcher.at_work),
        out=0 if fleet is None else len(fleet.out),
        limit=None if fleet is None else fleet.limit,
        wave=wave,
        waves=waves,
        ends_at=max(ends, default=None),
    )


def _of_fleet(lines: tuple[BudgetLine, ...]) -> BudgetLine | None:
    """Return the limit of the whole fleet that holds now, the tightest of several; None where there is none."""
    of_fleet = [one for one in lines if one.scope.startswith("fleet") and one.active and one.per_s is None]
    return min(of_fleet, key=lambda one: one.limit - len(one.out), default=None)


def _wave(rollouts: tuple[RolloutPlan, ...]) -> tuple[int, int]:
    """Return (wave, waves) of the rollout with the most waves to go; (0, 0) without a rollout."""
    found = [
        (at, len(rollout.waves))
        for rollout in rollouts
        if (at := next((n for n, wave in enumerate(rollout.waves, 1) if wave.state in _OPEN), 0))
    ]
    return max(found, key=lambda one: one[1] - one[0], default=(0, 0))
