"""Report the passes of `reconciler run` in words; outages, brakes and incidents when they begin and end."""

from __future__ import annotations

from reconciler.converge.brake import OWNER
from reconciler.converge.events import LoopTold, Progress
from reconciler.converge.status import held_by_brake, node_status
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.status import NodeStatus
from reconciler.model.units import format_duration

NAMED = 8  # nodes that a message names
_MINUTE_S = 60.0  # from here on nobody needs tenths of a second


class PassMessages:
    """Remembers what was reported last, so that nothing is reported twice."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._outage = ""
        self._braked = ""
        self._incidents: frozenset[tuple[str, str]] = frozenset()

    def outage(self, outage: str) -> None:
        """Report that this machine reaches no node, or reaches them again. `outage`: as ObservationPass.outage."""
        if outage != self._outage:
            message = outage or "nodes answer again"
            self._progress(LoopTold("blind" if outage else "seeing", message, problem=bool(outage)))
        self._outage = outage

    def planned(self, plan: Plan, observation: Observation, at_work: int) -> None:
        """Report what the pass found. `at_work`: how many nodes are being worked on."""
        self._tell_brake(plan)
        self._tell_incidents(plan)
        seconds = (observation.finished_at - observation.started_at).total_seconds()
        differ, unknown = plan.totals.nodes_with_changes, len(plan.incomplete)
        waiting = sum(node.waits_for_person for node in plan.nodes.values())
        held = sum(node_status(node, acting=False) is NodeStatus.HELD for node in plan.nodes.values())
        took = format_duration(seconds) if seconds >= _MINUTE_S else f"{seconds:.1f} s"
        seen = f"{len(plan.nodes)} nodes seen in {took}"
        fields: dict[str, str | int | float] = {
            "seconds": round(seconds, 3),
            "nodes": len(plan.nodes),
            "changes": differ,
            "at_work": at_work,
            "unknown": unknown,
            "waiting": waiting,
            "held": held,
            "plan": plan.id,
        }
        message = f"{seen}: {differ} differ, {at_work} at work, {unknown} unknown"
        if waiting:
            message += f", {waiting} {'waits' if waiting == 1 else 'wait'} for a person"
        if held:
            message += f", {held} held"
        self._progress(LoopTold("pass", message, fields=fields))

    def _tell_brake(self, plan: Plan) -> None:
        """Report the storm brake with its cause and the nodes that it holds back, and that it is lifted."""
        if plan.braked == self._braked:
            return
        self._braked = plan.braked
        held = held_by_brake(plan)
        message = "the storm brake is lifted"
        if plan.braked:
            shown = ", ".join(held[:NAMED]) + (f" and {len(held) - NAMED} more" if len(held) > NAMED else "")
            why = plan.braked.removeprefix(f"{OWNER}: ")
            message = f"the storm brake is set: {why}. It holds back {shown or 'nothing yet'}"
        self._progress(LoopTold("brake", message, problem=bool(plan.braked), fields={"held_back": len(held)}))

    def _tell_incidents(self, plan: Plan) -> None:
        current = {one.key: one for one in plan.incidents}
        for key, one in current.items():
            if key not in self._incidents:
                many = "1 node" if len(one.nodes) == 1 else f"{len(one.nodes)} nodes"
                told = f"{one.signal} on {many} of {one.scope}: {one.detail}"
                fields: dict[str, str | int | float] = {"signal": one.signal, "nodes": len(one.nodes)}
                self._progress(LoopTold("incident", told, problem=True, fields=fields))
        for signal, scope in sorted(self._incidents - current.keys()):
            self._progress(LoopTold("incident_over", f"{signal} of {scope}: the incident is over"))
        self._incidents = frozenset(current)
