"""The actions of `explain`: what each is for, how long it takes, and what there would be without it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reconciler.model.boot_ways import choose
from reconciler.model.observed import Silent
from reconciler.model.plan import NodePlan, PlannedAction
from reconciler.model.units import format_duration
from reconciler.model.vocab import Certainty
from reconciler.planner.node import conditions as c
from reconciler.planner.node.why import Alternative, Cost
from reconciler.render.explanation import Explanation, within
from reconciler.render.text import count, disruption, estimate, plain
from reconciler.render.waiting import goes_anyway

HEAD = ("#", "action", "disruption", "way", "takes", "", "because", "without it")
_SHOWN = 3  # conditions that a sentence names
_AIMS = {
    c.IDENTITY: "show whose machine it is",
    c.POWER_ON: "switch it on",
    c.HOST_UP: "get its host to answer",
    c.REGISTERED: "enter it in the cluster",
    c.MEMBER: "make it a ready member of the cluster",
    c.MARKED: "take it out of service as ours",
    c.QUIESCED: "empty it of work",
    c.IN_SERVICE: "bring it back into service",
    c.BIOS: "set its BIOS",
    c.BOOT: "set how it boots",
    c.IMAGE: "install its image",
    c.SIGNATURE: "trust its image",
    c.HOST: "configure its host",
    c.GPU_PLAIN: "switch MIG off",
    c.GPU: "set its GPU mode",
    c.LABELS: "set its labels and taints",
    c.TRUST: "show that it can be trusted",
    c.GATE: "certify it",
    c.HARDWARE: "get all of its hardware to answer",
    c.HEALTHY: "cure it",
    c.TREATED: "treat it",
}
# Which conditions speak about a value, by the beginning of its path: what brings one about concerns the value.
_CONCERNS = {
    "identity": (c.IDENTITY,),
    "hardware": (c.HARDWARE,),
    "bios": (c.BIOS, c.BIOS_STAGED),
    "boot": (c.BOOT, c.BOOT_STAGED),
    "image": (c.IMAGE,),
    "host": (c.HOST,),
    "gpu": (c.GPU, c.GPU_PLAIN),
    "cluster.member": (c.REGISTERED, c.MEMBER),
    "cluster.labels": (c.LABELS,),
    "cluster.taints": (c.LABELS,),
    "trust": (c.TRUST,),
    "gate": (c.GATE,),
    "health": (c.HEALTHY, c.TREATED),
}


def concerned(made: Explanation) -> list[tuple[int, PlannedAction]]:
    """The planned actions that are there for the path asked for, with their place in the plan."""
    plan = made.node_plan
    if plan is None:
        return []
    spoken = _conditions(made.path, plan)
    return [
        (at, action)
        for at, action in enumerate(plan.actions, 1)
        if any(within(why, made.path) for why in action.because) or not spoken.isdisjoint(action.achieves)
    ]


def _conditions(path: str, plan: NodePlan) -> frozenset[str]:
    """Return the conditions about the value at `path`, or about something below it."""
    if within(path, "firmware"):
        component = path.removeprefix("firmware").removeprefix(".")
        achieved = (name for action in plan.actions for name in action.achieves)
        return frozenset(
            name
            for name in achieved
            if name.startswith((c.firmware_ok(""), c.firmware_staged("")))
            if not component or name.endswith(f":{component}")
        )
    parts = (names for start, names in _CONCERNS.items() if within(path, start) or within(start, path))
    return frozenset(name for names in parts for name in names)


def human_actions(made: Explanation) -> list[str]:
    plan, shown = made.node_plan, concerned(made)
    if plan is None or (made.path and not shown):
        return []
    if not shown:
        return ["nothing to do"] if plan.blocked is None else []
    anyway = "done all the same: " if goes_anyway(plan) else ""
    every = f"{anyway}the fewest actions that lead there, {_extent(plan)}"
    lines = [f"{every}; of these, for {made.path}:" if made.path else f"{every}:"]
    wide = max(len(action.id) for _, action in shown)
    for at, action in shown:
        lines.append(f"  {at:>2}. {action.id:<{wide}}  {', '.join(part for part in _manner(made, action) if part)}")
        lines.append(f"        because     {plain(_because(plan, action), 1000)}")
        other = made.alternatives.get(action.id)
        if other is not None:
            lines.append(f"        without it  {without(action.id, other)}")
    return lines


def _extent(plan: NodePlan) -> str:
    worst = f"up to {disruption(plan.disruption)}" if plan.disruption else "nothing disrupted"
    return f"{len(plan.actions)} in all, {worst}, {estimate(plan.actions)}"


def _manner(made: Explanation, action: PlannedAction) -> tuple[str, str, str, str]:
    """Say how much an action disrupts, how it gets in, how long it takes and whether it is sure to happen."""
    hurts = disruption(action.disruption) if action.disruption else ""
    return (
        hurts,
        _way(made, action),
        _takes(made, action),
        "if needed" if action.certainty is Certainty.PREDICTED else "",
    )


def _way(made: Explanation, action: PlannedAction) -> str:
    seen = made.observed
    if action.id != "reimage" or seen is None or isinstance(seen.inventory, Silent):
        return ""  # in place, no medium is booted
    way = choose(made.desired, seen.inventory.value.abilities)
    return f"by {way.value.replace('_', ' ')}" if way is not None else ""


def _takes(made: Explanation, action: PlannedAction) -> str:
    measured = made.estimates.of(made.desired.profile.inventory, action.name, action.target)
    if action.p90_s is None or measured is None or action.estimate_s != measured.median_s:
        return estimate([action])
    where = "on such hardware" if measured.same_hardware else "on any hardware"
    return f"{estimate([action])}, from {measured.runs} runs {where}"


def _because(plan: NodePlan, action: PlannedAction) -> str:
    """A sentence that all of a plan's situation repeats is no reason of this action."""
    return "; ".join(action.because) or plan.situation


def action_rows(made: Explanation) -> list[tuple[str, ...]]:
    """One row each, as HEAD says."""
    plan, rows = made.node_plan, list[tuple[str, ...]]()
    for at, action in concerned(made) if plan is not None else ():
        assert plan is not None
        other = made.alternatives.get(action.id)
        why = "" if other is None else without(action.id, other)
        rows.append((str(at), action.id, *_manner(made, action), _because(plan, action), why))
    return rows


def action_documents(made: Explanation) -> list[dict[str, Any]]:
    found = []
    for at, action in concerned(made):
        other = made.alternatives.get(action.id)
        found.append({"step": at, "action": action.id, "because": action.because, "without": _document(action, other)})
    return found


def _document(action: PlannedAction, other: Alternative | None) -> dict[str, Any] | None:
    if other is None:
        return None
    more = None if other.more is None else other.more._asdict()
    return {
        "sentence": without(action.id, other),
        "missing": other.missing,
        "own": other.own,
        "instead": other.instead,
        "spared": other.spared,
        "more": more,
    }


def without(action: str, other: Alternative) -> str:
    """Say what happens without `action`, as the end of a sentence that begins with "without it"."""
    if other.more is None:
        aims = list(dict.fromkeys(map(_aim, other.own or other.missing)))
        if len(aims) > _SHOWN:
            aims[_SHOWN - 1 :] = [f"{len(aims) - _SHOWN + 1} things more"]
        return f"no way to {_listed(aims, 'or')}" if aims else "no way to the goal"
    also = [name for name in other.spared if name != action]
    spares = f", which spares {_listed(also)}" if also else ""
    return f"{_listed(other.instead)} at the least{spares}: {_more(other.more)}"


def _aim(condition: str) -> str:
    name, _, target = condition.partition(":")
    return f"bring firmware {target} to its version" if target and name == "firmware_ok" else _AIMS[condition]


def _more(more: Cost) -> str:
    """The first difference decides; those after it may be in the other's favour."""
    parts = [
        (more.drains, count(abs(more.drains), "drain")),
        (more.reboots, count(abs(more.reboots), "reboot")),
        (more.seconds, format_duration(abs(more.seconds))),
        (more.actions, count(abs(more.actions), "action")),
    ]
    worse, better = [text for by, text in parts if by > 0], [text for by, text in parts if by < 0]
    if not worse:
        return "as good, but later in the catalogue"
    measure = ", by the catalogue's times" if more.seconds else ""  # which choose, whatever was measured since
    return f"{_listed(worse)} more" + (f", though {_listed(better)} less" if better else "") + measure


def _listed(parts: Iterable[str], word: str = "and") -> str:
    names = list(parts)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
