"""The status part of `explain`: the state of the node, what holds it back since when, and when it may go."""

from __future__ import annotations

from typing import Any

from reconciler.model.drift import ACTIONABLE, DriftClass
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.planner.fleet.permit import takes_out
from reconciler.render.explanation import Explanation
from reconciler.render.plan import limit, out
from reconciler.render.text import clock, count, fold, plain
from reconciler.render.waiting import WaitStart, holds, limits, mark, may_go, rollout_words, rollouts, since

HEADLINES = {
    BlockCode.STOPPED: "the whole fleet is stopped",
    BlockCode.DOMAIN: "its failure domain has an incident",
    BlockCode.STORM: "the storm brake is set",
    BlockCode.HELD: "held",
    BlockCode.QUARANTINED: "quarantined",
    BlockCode.RETIRED: "retired",
    BlockCode.DECOMMISSIONED: "decommissioned",
    BlockCode.UNKNOWN: "left alone: not enough is known",
    BlockCode.UNDER_WAY: "something is under way on it",
    BlockCode.IDENTITY: "left alone: it may be another machine",
    BlockCode.BUDGET: "waits for the budget",
    BlockCode.WINDOW: "waits for a window",
    BlockCode.BACKOFF: "waits after a failure",
    BlockCode.ROLLOUT: "waits for its wave",
    BlockCode.HALTED: "its rollout is halted",
    BlockCode.FOREIGN_CORDON: "cordoned by somebody else",
    BlockCode.FOREIGN_HOLD: "an operator of the cluster maintains it",
    BlockCode.FOREIGN_MARK: "another reconciler has it",
    BlockCode.IMPOSSIBLE: "left alone: what the spec says can't be done to it",
    BlockCode.NO_PATH: "left alone: nothing leads to what the spec says",
    BlockCode.ATTEMPTS: "given up: its attempts are used up",
    BlockCode.GATE: "failed its gate, waits for a repair",
    BlockCode.CRASHED: "left alone: an internal error",
    BlockCode.JOINING: "not in the fleet yet",
    BlockCode.NO_DRAIN: "left alone: nothing can drain it",
}


def headline(made: Explanation) -> str:
    """The state of the node in one line, which is all that is read when the pager rings."""
    plan = made.node_plan
    if plan is None:
        return ""
    differing = sum(item.kind in ACTIONABLE for item in plan.drift)
    differs = f"{count(differing, 'value')} not as specified" if differing else ""
    unknown = sum(item.kind is DriftClass.UNKNOWN for item in plan.drift)
    lacks = f"{unknown} not known" if unknown else ""
    if made.under_way:
        what = made.under_way
    elif plan.blocked is not None:
        what = HEADLINES[plan.blocked.code]
    elif made.plan is not None and made.plan.refused:
        what = "its plan is refused"
    elif plan.actions:
        what = "goes when the budget allows" if _in_a_queue(made, plan) else "goes next"
    else:
        what = "nothing to do"
    return ", ".join(part for part in (service(plan), differs, lacks, what) if part)


def _in_a_queue(made: Explanation, plan: NodePlan) -> bool:
    """Return whether other nodes may go first: this plan knows of none."""
    return made.alone and takes_out(plan)


def service(plan: NodePlan) -> str:
    return {True: "in service", False: "out of service", None: "not known whether in service"}[plan.in_service]


def human_waiting(made: Explanation) -> list[str]:
    plan = made.node_plan
    if plan is None:
        return []
    lines = [f"now {service(plan)}; goal: {_goal(plan)}"]
    lines += [f"  not read: {line}" for line in plan.incomplete]
    lines += [f"  {line}" for line in _context(made)]
    if plan.blocked is not None:
        lines.append(f"held back ({plan.blocked.code.value}): {plan.blocked.detail}")
    elif plan.actions:
        lines.append(_free(made, plan))
    lines += [f"  {line}" for line in _since(made)]
    lines += [f"  {'may go' if at == 0 else '      '}  {said}" for at, said in enumerate(may_go(made))]
    lines += [f"  {'limits' if at == 0 else '      '}  {said}" for at, said in enumerate(limit_words(made))]
    return [plain(line, 2000) for line in lines]


def _goal(plan: NodePlan) -> str:
    """Describe the goal, without what the reason of the block repeats."""
    goal = plan.goal.value.replace("_", " ")
    if plan.situation.startswith(goal):
        return plan.situation
    return goal if plan.blocked is not None and plan.blocked.detail in plan.situation else f"{goal}, {plan.situation}"


def _free(made: Explanation, plan: NodePlan) -> str:
    """Describe a node that nothing holds back."""
    if made.plan is not None and made.plan.refused:
        return f"held back: the plan is refused as a whole: {'; '.join(made.plan.refused)}"
    if _in_a_queue(made, plan):
        return "nothing known holds it back; other nodes were not planned: `reconciler plan` tells which go first"
    when = f", expected from {clock(plan.start)} to {clock(plan.end)}" if plan.start and plan.end else ""
    return f"nothing holds it back: the next apply goes to work on it{when}"


def _since(made: Explanation) -> list[str]:
    found = since(made)
    return [] if found is None else [f"since   {clock(found.at)} ({made.ago(found.at)}), when {found.what}"]


def _context(made: Explanation) -> list[str]:
    """Describe what was done to the node, and what it is part of."""
    lines = []
    found = mark(made)
    if found is not None:
        by = f" under plan {found.plan}" if found.plan else ""
        lines.append(f"marked at {found.at} by ledger {found.ledger}{by}: {found.reason}")
    if made.record is not None and made.record.attempts:
        last = made.record.attempts[-1]
        action = f"{last.action}:{last.target}" if last.target else last.action
        at = last.ended_at or last.at
        detail = f" ({last.detail})" if last.detail else ""
        lines.append(f"last done to it: {action}, {last.outcome}{detail}, {clock(at)} ({made.ago(at)})")
    lines += rollout_words(made)
    plan = made.node_plan
    if plan is not None and plan.postponed:
        lines.append(f"left for its wave: {', '.join(plan.postponed)}")
    return lines


def limit_words(made: Explanation) -> list[str]:
    plan, found = made.node_plan, []
    waits = plan is not None and plan.blocked is not None
    for line, first in limits(made):
        allows, counts = limit(line)
        used = f"{counts}: {out(line)}" if line.out else f"none {counts}"
        before = f"; {'before' if waits else 'with'} it go {fold(first)}" if first else ""
        found.append(f"{line.scope}: {allows}; {used}{before}")
    return found


def waiting_document(made: Explanation) -> dict[str, Any] | None:
    plan = made.node_plan
    if plan is None:
        return None
    began = since(made)
    return {
        "headline": headline(made),
        "under_way": made.under_way,
        "code": None if plan.blocked is None else plan.blocked.code.value,
        "detail": "" if plan.blocked is None else plan.blocked.detail,
        "since": None if began is None else _moment(began),
        "until": None if plan.blocked is None or plan.blocked.until is None else plan.blocked.until.isoformat(),
        "may_go": may_go(made),
        "start": None if plan.start is None else plan.start.isoformat(),
        "end": None if plan.end is None else plan.end.isoformat(),
        "holds": [
            {"subject": hold.subject, "owner": hold.owner, "reason": hold.reason, "since": hold.since.isoformat()}
            for hold in holds(made)
        ],
        "limits": [
            {
                "scope": line.scope,
                "limit": line.limit,
                "total": line.total,
                "rule": line.rule,
                "out": line.out,
                "before_it": first,
            }
            for line, first in limits(made)
        ],
        "rollouts": [
            {
                "pool": rollout.pool,
                "digest": rollout.digest,
                "wave": None if made.alone else at + 1,
                "waves": None if made.alone else len(rollout.waves),
                "state": rollout.waves[at].state.value,
                "detail": rollout.waves[at].detail,
                "halted": rollout.halted,
                "resume": rollout.resume,
            }
            for rollout, at in rollouts(made)
        ],
        "alone": made.alone,
    }


def _moment(found: WaitStart) -> dict[str, str]:
    return {"at": found.at.isoformat(), "what": found.what}
