"""The K3s of a fleet's cluster at a glance: servers, agents, etcd and certificates."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.desired import Desired, Fleet
from reconciler.model.fleet_overview import K3sOverview
from reconciler.model.k3s import DUE, K3sFacts, K3sRole
from reconciler.model.observed import Answered, Observation, Observed
from reconciler.model.vocab import NodeState


def k3s_overview(fleet: Fleet, names: Iterable[str], seen: Observation) -> K3sOverview | None:
    """Return what is known of K3s on these nodes; None where the spec builds none on any of them."""
    nodes = [fleet.nodes[name] for name in names if name in fleet.nodes]
    active = [one for one in nodes if one.profile.k3s is not None and one.state is NodeState.ACTIVE]
    if not active:
        return None
    servers = [one.node for one in active if _role(one) is K3sRole.SERVER]
    agents = [one.node for one in active if _role(one) is K3sRole.AGENT]
    ready = {one.node for one in active if _is_ready(seen.nodes.get(one.node))}
    facts = {one.node: _facts(seen.nodes.get(one.node)) for one in active}
    members = [name for name in servers if (found := facts[name]) is not None and found.datastore]
    database = next((one.profile.k3s.database for one in active if one.profile.k3s and one.profile.k3s.external), "")
    known = not database and all(facts[name] is not None for name in servers)
    spare = len(ready.intersection(members)) - (len(members) // 2 + 1) if known and members else None
    ending = tuple(sorted(name for name, found in facts.items() if found is not None and found.renewal == DUE))
    ends = [(found.ends, name) for name, found in facts.items() if found is not None and found.ends is not None]
    return K3sOverview(
        len(servers), len(ready.intersection(servers)), len(agents), len(ready.intersection(agents)), len(members),
        spare, database, ending, min(ends, default=None),
    )  # fmt: skip


def _role(node: Desired) -> K3sRole | None:
    return None if node.profile.k3s is None else node.profile.k3s.role


def _is_ready(seen: Observed | None) -> bool:
    member = seen.member.value if seen is not None and isinstance(seen.member, Answered) else None
    return member is not None and member.ready is True


def _facts(seen: Observed | None) -> K3sFacts | None:
    return seen.host.value.k3s if seen is not None and isinstance(seen.host, Answered) else None
