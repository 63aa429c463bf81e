"""Turn budgets, windows and other limits of a spec into values, and check that they can apply to something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from reconciler.model.desired import BreakGlass, BudgetLimit, Hours, Window
from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.units import parse_duration, parse_nodes
from reconciler.model.vocab import NodeState
from reconciler.spec.kinds import limits as kinds
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.resolve import choices
from reconciler.strict_yaml.parse import Steps

# --- values --------------------------------------------------------------------------------------------------------


def budget(spec: kinds.Budget) -> BudgetLimit:
    per_s = parse_duration(spec.per) if spec.per else None
    return BudgetLimit(spec.scope, spec.nodes, spec.reasons or (), per_s, hours(spec.during) if spec.during else None)


def windows(declared: Declarations) -> Iterator[Window]:
    """Yield the windows of the fleet, then those of its pools, each for its pool alone."""
    for window in declared.fleets[0].spec.windows:
        yield replace(_window(window), pools=window.pools)
    for name, pool in sorted(declared.pools.items()):
        for own in pool.spec.windows:
            yield replace(_window(own), pools=(name,))


def break_glass(spec: kinds.BreakGlass | None) -> BreakGlass | None:
    return BreakGlass(spec.reason, spec.by, spec.until) if spec else None


def _window(spec: kinds.Window) -> Window:
    return Window(spec.kind, hours(spec), reason=spec.reason or "")


def hours(spec: kinds.Hours) -> Hours:
    days = tuple(at for at, day in enumerate(kinds.Day) if day in spec.days)
    return Hours(days, _minute(spec.begin), _minute(spec.end), spec.timezone)


def _minute(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


# --- checks --------------------------------------------------------------------------------------------------------


def check_limits(
    fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: list[NodeSource]
) -> Iterator[Diagnostic]:
    yield from _budgets_apply(fleet, nodes)
    yield from _check_floors(fleet, declared, nodes)
    yield from _check_spares(fleet, declared, nodes)
    yield from _brake_can_trip(fleet, nodes)
    for index, window in enumerate(fleet.spec.windows):
        for at, name in enumerate(window.pools):
            if name not in declared.pools:
                problem = f"there is no pool {name!r}"
                yield fleet.problem(("windows", index, "pools", at), problem, did_you_mean(name, declared.pools))


def ended_holds(declared: Declarations, now: datetime) -> Iterator[Diagnostic]:
    for pool in declared.pools.values():
        entries: list[tuple[Steps, kinds.Hold | None]] = [((), pool.spec.hold)]
        entries += [(("nodes", index), entry.hold) for index, entry in enumerate(pool.spec.nodes)]
        for steps, hold in entries:
            if hold is not None and hold.until is not None and datetime.fromisoformat(hold.until) <= now:
                place: Steps = (*steps, "hold", "until")
                yield pool.problem(place, "this hold has ended", "remove it", severity="warning")


def _budgets_apply(fleet: DeclaredResource[FleetSpec], nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    labels = {label for node in nodes for label in node.domains}
    for index, limit in enumerate(fleet.spec.budgets):
        if limit.scope in {"fleet", "pool", "workload"}:
            continue
        place: Steps = ("budgets", index, "scope")
        if limit.scope not in labels:
            hint = did_you_mean(limit.scope, {"fleet", "pool", *labels})
            yield fleet.problem(place, f"no node has a failure domain {limit.scope!r}", hint)
            continue
        without = sum(limit.scope not in node.domains for node in nodes)
        if without:
            problem = f"{without} of {len(nodes)} nodes have no {limit.scope}, so this limit does not cover them"
            yield fleet.problem(place, problem, severity="warning")
    if all(limit.per or limit.scope == "workload" for limit in fleet.spec.budgets):
        problem = "no budget limits how many nodes may be out of service at once, so the limit is one node of the fleet"
        yield fleet.problem(("budgets",), problem, severity="warning")


def _brake_can_trip(fleet: DeclaredResource[FleetSpec], nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Yield a problem for a count that the number of nodes can't exceed: it would switch the brake off silently."""
    active = [node for node in nodes if node.state is NodeState.ACTIVE]
    domains = Counter(domain for node in active for domain in node.domains.items())
    brake = fleet.spec.brake
    sizes = {"fleet": (brake.fleet, len(active)), "domain": (brake.domain, max(domains.values(), default=0))}
    for scope, (limit, most) in sizes.items():
        if not limit.strip().endswith("%") and int(limit) >= most > 0:
            where = "the fleet" if scope == "fleet" else "the largest failure domain"
            problem = f"the brake can never trip: it allows {limit} bad nodes, and {where} has {most}"
            yield fleet.problem(("brake", scope), problem, "a share like 10% grows with the fleet")


def _personas(declared: Declarations, nodes: list[NodeSource]) -> Counter[str]:
    """Return how many active nodes each persona has."""
    active = Counter((node.pool, node.entry) for node in nodes if node.state is NodeState.ACTIVE)
    found: Counter[str] = Counter()
    for (pool, entry), count in active.items():
        persona = choices(declared, pool, entry).get("persona")
        if persona is not None:
            found[persona.value] += count
    return found


def _check_spares(
    fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: list[NodeSource]
) -> Iterator[Diagnostic]:
    if not fleet.spec.spares:
        return
    if fleet.spec.cluster is None:
        problem = "spares need a cluster: without one, nothing keeps work away from a node"
        yield fleet.problem(("spares",), problem, "name a Cluster in `cluster`")
    personas = _personas(declared, nodes)
    for name, share in fleet.spec.spares.items():
        place: Steps = ("spares", name)
        total = personas[name]
        if name not in declared.personas:
            yield fleet.problem(place, f"there is no Persona {name!r}", did_you_mean(name, declared.personas))
            continue
        if total == 0:
            yield fleet.problem(place, f"no active node has persona {name!r}", severity="warning")
            continue
        kept = parse_nodes(share, total)
        least = parse_nodes(fleet.spec.floor[name], total) if name in fleet.spec.floor else 0
        if kept >= total:
            yield fleet.problem(place, f"{share} of {total} nodes is {kept}, so none would do any work")
        elif kept + least >= total:
            problem = f"{kept} spares and a floor of {least} are all {total} nodes, so none may ever be taken out"
            yield fleet.problem(place, problem, "leave room for one at least")


def _check_floors(
    fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: list[NodeSource]
) -> Iterator[Diagnostic]:
    if not fleet.spec.floor:
        return
    personas = _personas(declared, nodes)
    for name, share in fleet.spec.floor.items():
        place: Steps = ("floor", name)
        total = personas[name]
        if name not in declared.personas:
            yield fleet.problem(place, f"there is no Persona {name!r}", did_you_mean(name, declared.personas))
        elif total == 0:
            yield fleet.problem(place, f"no active node has persona {name!r}", severity="warning")
        elif (keep := parse_nodes(share, total)) >= total:
            problem = f"{share} of {total} nodes is {keep}, so none may ever be taken out; leave room for one at least"
            yield fleet.problem(place, problem)
