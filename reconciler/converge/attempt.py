"""One attempt at one action: counted in the journal before it is tried, and all that the action may reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.converge.actions.context import ActionContext
from reconciler.converge.events import ActionStep
from reconciler.converge.guarded_ports import GuardedBmc, TimedCluster, TimedHost
from reconciler.converge.run import Run
from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed
from reconciler.model.plan import NodePlan, PlannedAction
from reconciler.model.records import NodeRecord
from reconciler.planner.node import conditions as c


@dataclass(frozen=True, slots=True)
class Subject:
    """The node as it was read for this attempt, and the plan that was made of it."""

    desired: Desired
    observed: Observed
    record: NodeRecord
    plan: NodePlan

    @property
    def boot_id(self) -> str | None:
        host = self.observed.host
        return host.value.boot_id if isinstance(host, Answered) else None


def begin(
    run: Run, subject: Subject, action: PlannedAction, now: datetime
) -> tuple[int, Mapping[str, Any], Mapping[str, Any]]:
    """(attempt, intent, what a dead run intended): counted before it is tried, or gone on with."""
    node = subject.desired.node
    left = run.resumed.pop((node, action.name, action.target), None)
    if left is not None:
        run.ledger.resume(left.attempt, run.id, run.lease.token(), now)
        return left.attempt, left.intent, left.intent
    intent = {"at": now.isoformat(), "boot_id": subject.boot_id, "plan": run.plan_id}
    cause = REMEDIATION if c.TREATED in action.achieves else ", ".join(action.because)
    attempt = run.ledger.begin(run.id, node, action.name, action.target, cause, intent, run.lease.token(), now)
    return attempt, intent, {}


def context_of(
    run: Run,
    subject: Subject,
    action: PlannedAction,
    attempt: int,
    intent: Mapping[str, Any],
    resumed: Mapping[str, Any],
) -> ActionContext:
    """`intent`: as journaled; `resumed`: of an earlier attempt whose run died, {} when there is none."""
    desired, observed, record = subject.desired, subject.observed, subject.record
    settings, clock, lease = run.fleet.settings, run.clock, run.lease
    bmc, host, cluster = run.fabric.bmc(desired), run.fabric.host(desired), run.fabric.cluster()
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    return ActionContext(
        action=action,
        desired=desired,
        observed=observed,
        record=record,
        drift=subject.plan.drift,
        comparer=run.planner.comparer,
        settings=settings,
        bmc_port=None if bmc is None else GuardedBmc(bmc, desired, facts, record, clock, settings, lease),
        host_port=None if host is None else TimedHost(host, clock, settings, lease),
        cluster_port=None if cluster is None else TimedCluster(cluster, clock, settings, lease),
        installer_port=run.fabric.installer(),
        gate=run.gate,
        ledger=run.ledger,
        clock=clock,
        attempt=attempt,
        intent=intent,
        resumed=resumed,
        plan=run.plan_id,
        step=lambda text: run.progress(ActionStep(desired.node, action.id, text)),
    )
