"""Plan the Helm releases of a cluster: what is to be done to each, and why it waits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from reconciler.model.observed import Answered, Silent
from reconciler.model.releases import DesiredRelease, ReleaseAction, ReleaseFacts, ReleasePlan, ReleaseStatus

Readings = Mapping[str, Answered[ReleaseFacts] | Silent]

_NO_REVISION: Final = (ReleaseStatus.ABSENT, ReleaseStatus.UNINSTALLED)


def plan_releases(
    wanted: Sequence[DesiredRelease], found: Readings, now: datetime, ours: Mapping[str, int]
) -> tuple[ReleasePlan, ...]:
    """Return a plan of each release, in the order in which they are installed.

    `found`: by name. `ours`: of each release that we began to change and did not end, the revision before it.
    """
    plans: list[ReleasePlan] = []
    for one in wanted:
        reading = found.get(one.name)
        before = [plan for plan in plans if plan.changes_something or (plan.ready is None and plan.waits)]
        plans.append(_plan(one, reading, now, ours.get(one.name), before[0].name if before else ""))
    return tuple(plans)


def _plan(
    wanted: DesiredRelease,
    reading: Answered[ReleaseFacts] | Silent | None,
    now: datetime,
    began: int | None,
    first: str,
) -> ReleasePlan:
    if reading is None or isinstance(reading, Silent):
        unread = "it was not read" if reading is None else f"it could not be read: {reading.detail}"
        return _made(wanted, ReleaseFacts(ReleaseStatus.UNKNOWN, not_ready=None), ReleaseAction.NOTHING, "", unread)
    facts = reading.value
    action, why, waits = _decide(wanted, facts, now, began)
    if action is not ReleaseAction.NOTHING and first and not waits:
        waits = f"{first} comes first"
    return _made(wanted, facts, action, why, waits)


def _decide(
    wanted: DesiredRelease, facts: ReleaseFacts, now: datetime, began: int | None
) -> tuple[ReleaseAction, str, str]:
    """Return what to do, why, and why it waits."""
    chart = f"{wanted.chart.name} {wanted.chart.version}"
    if facts.status.is_pending:
        return _pending(wanted, facts, now, began)
    if facts.status in _NO_REVISION:
        return ReleaseAction.INSTALL, f"there is no release {wanted.place}", ""
    if facts.status is ReleaseStatus.DEPLOYED and (facts.inputs == wanted.inputs or _is_as_declared(wanted, facts)):
        return ReleaseAction.NOTHING, "", ""
    if facts.status is not ReleaseStatus.DEPLOYED:
        return ReleaseAction.UPGRADE, f"revision {facts.revision} is {facts.status}", ""
    why = f"revision {facts.revision} is {facts.chart}, and the spec declares {chart}"
    same = facts.chart == f"{wanted.chart.name}-{wanted.chart.version}"
    return ReleaseAction.UPGRADE, f"{why} with other values" if same else why, ""


def _is_as_declared(wanted: DesiredRelease, facts: ReleaseFacts) -> bool:
    """Return whether a revision that somebody else installed is what the spec declares: it is left as it is."""
    return facts.chart == f"{wanted.chart.name}-{wanted.chart.version}" and facts.changes == ()


def _pending(
    wanted: DesiredRelease, facts: ReleaseFacts, now: datetime, began: int | None
) -> tuple[ReleaseAction, str, str]:
    """A helm may be at work. Ours died if we began it; any other is given as long as an install may take, twice."""
    what = f"revision {facts.revision} is {facts.status}"
    if began is not None and facts.revision in (began, began + 1, began + 2):
        return ReleaseAction.RECOVER, f"{what}, and the run that began it died", ""
    ends = None if facts.since is None else facts.since + timedelta(seconds=2 * wanted.timeout_s)
    if ends is None or now < ends:
        until = "" if ends is None else f" until {ends:%H:%M:%SZ}"
        return ReleaseAction.RECOVER, what, f"another helm may be at work on it{until}"
    return ReleaseAction.RECOVER, f"{what} for longer than any helm works on it", ""


def _made(wanted: DesiredRelease, facts: ReleaseFacts, action: ReleaseAction, why: str, waits: str) -> ReleasePlan:
    unread = facts.status is ReleaseStatus.UNKNOWN
    deployed = facts.status is ReleaseStatus.DEPLOYED
    return ReleasePlan(
        name=wanted.name,
        namespace=wanted.namespace,
        kind=wanted.kind,
        chart=f"{wanted.chart.name}-{wanted.chart.version}",
        runs=facts.chart,
        status=waits if unread else facts.status.value,
        action=action,
        why=why,
        waits=waits,
        changes=facts.changes or (),
        not_ready=facts.not_ready or (),
        ready=None if unread or facts.not_ready is None else deployed and not facts.not_ready,
        fingerprint=fingerprint(wanted, facts, action),
        where=str(wanted.position),
    )


def fingerprint(wanted: DesiredRelease, facts: ReleaseFacts, action: ReleaseAction) -> str:
    """Return the digest of what an approval binds: what is installed, over what, and what that changes."""
    shown = [(one.object, one.change, [(v.path, v.before, v.after) for v in one.values]) for one in facts.changes or ()]
    text = json.dumps([wanted.inputs, action.value, facts.chart, facts.inputs, shown])
    return hashlib.sha256(text.encode()).hexdigest()
