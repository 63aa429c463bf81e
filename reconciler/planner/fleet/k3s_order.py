"""The order of work in a K3s cluster: servers one at a time, and agents after them.

The budget counts nodes that are out of service, so two servers that are out already, as all are of a new cluster, would
go at once. Here a server waits while another one is worked on or is not Ready, whatever the budget allows: etcd takes
in one member at a time, and a second one away may be one too many (docs.k3s.io, "High Availability Embedded etcd").
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

from reconciler.model.k3s import (
    DeprecatedApi,
    DesiredK3s,
    K3sRole,
    minor_of,
    release_of,
    removed_by,
    servers_away,
    way_without,
    why_not_away,
)
from reconciler.model.k3s_datastore import not_saved
from reconciler.model.kubelets import may_be_behind
from reconciler.model.plan import BlockCode, Blocked, NodePlan, PlannedAction
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.workload import disrupts

JOIN = "join"
INSTALL = "install_k3s"


def goes_in_order(action: PlannedAction, k3s: DesiredK3s | None) -> bool:
    """Return whether the action waits for other nodes. On a server, whatever may take it away does."""
    if k3s is None:
        return False
    return spec_of(action.name).in_order or (k3s.role is K3sRole.SERVER and disrupts(action))


@dataclass(frozen=True, slots=True)
class K3sOrder:
    """`wanted`: active nodes -> what they are to run. `versions`: those in the cluster -> version of their kubelet.

    `elsewhere`: servers -> why they can't keep their state where the spec says. `in_database`: servers that keep it in
    a database -> HOST:PORT of that; "" = not told. `ready`: members of the control plane -> Ready. `at_work`: nodes
    that are worked on. `deprecated`: servers -> the deprecated APIs that theirs was asked for; None or no entry: it is
    not known.
    """

    wanted: Mapping[str, DesiredK3s] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    ready: Mapping[str, bool] = field(default_factory=dict)
    at_work: Collection[str] = ()
    deprecated: Mapping[str, tuple[DeprecatedApi, ...] | None] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    in_database: Mapping[str, str] = field(default_factory=dict)

    @property
    def servers(self) -> list[str]:
        return sorted(name for name, one in self.wanted.items() if one.role is K3sRole.SERVER)

    def refusal(self, plan: NodePlan, actions: Collection[PlannedAction]) -> Blocked | None:
        """Return why these actions of a plan have to wait for other nodes; None = they need not."""
        why = self.why(plan.node, actions)
        return Blocked(BlockCode.BUDGET, why) if why else None

    def why(self, node: str, actions: Collection[PlannedAction]) -> str:
        """Return why these actions on a node have to wait for other nodes, in words; "" = they need not."""
        own, names = self.wanted.get(node), self._names(node, actions)
        if own is None or not names:
            return ""
        return self._server(node, own, names) if own.role is K3sRole.SERVER else self._agent(names)

    def kind(self, node: str, actions: Collection[PlannedAction]) -> Hashable:
        """Return a key of these actions: agents with equal keys get equal answers, and each server one of its own."""
        own, names = self.wanted.get(node), self._names(node, actions)
        return node if own is not None and names and own.role is K3sRole.SERVER else names

    def _names(self, node: str, actions: Collection[PlannedAction]) -> frozenset[str]:
        """Return which of these actions wait for other nodes."""
        own = self.wanted.get(node)
        return frozenset(action.name for action in actions if goes_in_order(action, own))

    def _server(self, node: str, own: DesiredK3s, names: Collection[str]) -> str:
        if why := self._elsewhere(node):
            return why
        busy = [name for name in self.servers if name != node and name in self.at_work]
        if busy:
            return f"servers of K3s go one at a time, and {busy[0]} is worked on"
        if not self.ready:
            first = self.servers[0]
            return "" if node == first else f"the cluster begins with {first}, and no server is in it yet"
        if set(self.ready) == {node} and any(spec_of(name).installs for name in names):
            if not own.external:
                return "it is the only server, and etcd with all that the cluster knows would go with its disk"
            if self.in_database.get(node) != own.database:
                return f"it is the only server, and whether its state is in the database at {own.database} is not known"
            if not own.bootstrap:
                return "it is the only server: it begins again with its database only with `k3s.bootstrap: true`"
        starts_again = names == {JOIN} and node in self.ready
        external = bool(self.in_database) and not self.elsewhere
        if not starts_again and (why := why_not_away(self.ready, node, external=external)):
            return why + way_without(servers_away(self.ready, node)[:1], self.wanted)
        if INSTALL not in names:
            return ""
        return (
            self._skips(node, own) or self._strands(node, own) or self._removes(node, own) or self._unsaved(node, own)
        )

    def _elsewhere(self, node: str) -> str:
        """Return why no server is changed while one has its state elsewhere: a new one would begin a second cluster."""
        if node in self.elsewhere:
            return self.elsewhere[node]
        other = next(iter(sorted(self.elsewhere)), "")
        return f"server {other}: {self.elsewhere[other]}" if other else ""

    def _from(self, node: str) -> tuple[str, str]:
        """Return the version from which a server takes the cluster to its own, and how that is said; "" = from none.

        One that joins anew goes on from the oldest of the other servers, as each of those would with an upgrade: it
        uses their database, and its API server serves the same agents and clients.
        """
        if runs := self.versions.get(node, ""):
            return runs, f"it runs {runs}"
        known = [(runs, name) for name in self.servers if "+k3s" in (runs := self.versions.get(name, ""))]
        if not known:
            return "", ""
        runs, name = min(known, key=lambda one: (release_of(one[0]), one[1]))
        return runs, f"it joins anew, and server {name} runs {runs}"

    def _unsaved(self, node: str, own: DesiredK3s) -> str:
        """Return why the server may not have this version: nobody said that the database is saved."""
        return not_saved(own) if self._from(node)[0] not in ("", own.version) else ""

    def _skips(self, node: str, own: DesiredK3s) -> str:
        """Return why this version can't follow the one that the server runs ("Version Skew Policy", upgrade order)."""
        runs, said = self._from(node)
        if "+k3s" not in runs:
            return ""
        step = minor_of(own.version)[1] - minor_of(runs)[1]
        if step in (0, 1):
            return ""
        if step < 0:
            return (
                f"{said}, and {own.version} is older: K3s goes back to an older minor only together with a "
                "snapshot of etcd that was taken on it (docs.k3s.io/upgrades/roll-back), and never server by server"
            )
        return (
            f"{said}, and {own.version} is {step} minors newer: servers go up one minor at a time; declare the "
            "versions between, one after the other"
        )

    def _strands(self, node: str, own: DesiredK3s) -> str:
        """Return which agent runs a kubelet too old for the version ("Version Skew Policy"), whatever the spec says."""
        if not self._is_newer(node, own):
            return ""
        minor = minor_of(own.version)
        for name, runs in sorted(self.versions.items()):
            if self.wanted[name].role is K3sRole.SERVER or "+k3s" not in runs:
                continue
            if minor[1] - minor_of(runs)[1] > (most := may_be_behind(minor_of(runs))):
                return (
                    f"agent {name} runs {runs}, and servers of {own.version} support kubelets of at most {most} minors "
                    f"less: declare a version between for all, and let {name} be upgraded, or quarantine it"
                )
        return ""

    def _removes(self, node: str, own: DesiredK3s) -> str:
        """Return which APIs that are in use the version would end; each API server counts what it was asked for."""
        if not self._is_newer(node, own):
            return ""
        for name in (one for one in self.servers if self.versions.get(one) and self._is_newer(one, own)):
            asked = self.deprecated.get(name)
            if asked is None:
                return f"whether APIs are in use that {own.version} lacks is not known: server {name} did not say"
            ended = [one for one in removed_by(own.version, asked) if one.name not in own.allow_deprecated]
            if ended:
                return (
                    f"{ended[0].name} is in use ({name}), and {own.version} has it no more"
                    + (f", as {len(ended) - 1} others" if len(ended) > 1 else "")
                    + ": let who asks for it ask for another version, or name it in `k3s.allowDeprecated`"
                )
        return ""

    def _is_newer(self, node: str, own: DesiredK3s) -> bool:
        """Return whether the version is of a later minor than the one that a server goes on from."""
        runs, _ = self._from(node)
        return "+k3s" in runs and minor_of(own.version) > minor_of(runs)

    def _agent(self, names: Collection[str]) -> str:
        if JOIN in names and not any(self.ready.get(name) for name in self.servers):
            return "no server of K3s is Ready that it could join"
        if INSTALL not in names:
            return ""
        behind = [name for name in self.servers if self.versions.get(name, "") not in ("", self.wanted[name].version)]
        return f"servers go first, and {behind[0]} runs {self.versions[behind[0]]}" if behind else ""
