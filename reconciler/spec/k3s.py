"""Check a K3s cluster of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.model.errors import Diagnostic
from reconciler.model.k3s import KUBECONFIG, minor_of
from reconciler.model.kubelets import may_be_behind
from reconciler.model.vocab import NodeState
from reconciler.spec.kinds.cluster import ClusterSpec, ClusterType
from reconciler.spec.kinds.k3s import Datastore, K3s
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource

SERVERS: Final = (1, 3, 5)  # etcd of an even count survives no more failures than one member less


def check_k3s(declared: Declarations, nodes: Sequence[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problems of each Cluster of type k3s, and of those that say what only K3s has."""
    for cluster in declared.clusters.values():
        spec = cluster.spec
        if spec.type is not ClusterType.K3S:
            if spec.k3s is not None:
                yield cluster.problem(("k3s",), "only a cluster of `type: k3s` has it")
        elif spec.k3s is None:
            yield cluster.problem(("type",), "a cluster of `type: k3s` says in `k3s` what it is to be")
        else:
            yield from _checked(cluster, spec.k3s, declared, nodes)


def _checked(
    cluster: DeclaredResource[ClusterSpec], k3s: K3s, declared: Declarations, nodes: Sequence[NodeSource]
) -> Iterator[Diagnostic]:
    if cluster.spec.join is not None:
        yield cluster.problem(("join",), "nodes join K3s with a token of their own, and with no command")
    if k3s.servers not in declared.pools:
        yield cluster.problem(("k3s", "servers"), f"there is no NodePool {k3s.servers!r}")
        return
    ours = declared.fleets and declared.fleets[0].spec.cluster == cluster.name
    servers = [node for node in nodes if node.pool == k3s.servers and node.state is NodeState.ACTIVE]
    aside = [node.name for node in nodes if node.pool == k3s.servers and node.state is not NodeState.ACTIVE]
    yield from _check_datastore(cluster, k3s)
    yield from _check_images(cluster, k3s)
    if ours and k3s.datastore is Datastore.EXTERNAL:
        if not servers:
            yield cluster.problem(("k3s", "servers"), "it has no active node that could serve")
    elif ours and len(servers) not in SERVERS:
        yield _wrong_count(cluster, len(servers), aside)
    if ours and k3s.allow_downtime and len(servers) > 1:
        problem = f"{len(servers)} servers go one at a time, and the API stays: nothing has to be allowed"
        yield cluster.problem(("k3s", "allowDowntime"), problem, "take it away")
    for node in nodes if ours else ():
        if node.endpoints.host is None:
            yield cluster.problem(("type",), f"node {node.name} has no `host`: K3s is installed over SSH")
            break
    tells = ours and any(one.kubernetes for one in declared.fleets[0].spec.notifications)
    if tells and cluster.spec.kubeconfig is None:
        hint = f"name a secret with the {KUBECONFIG} of a server, which has the address 127.0.0.1 in it"
        yield cluster.problem(("type",), "Events are written in it, for which it needs a `kubeconfig`", hint)
    yield from _skew(cluster, k3s)


def _wrong_count(cluster: DeclaredResource[ClusterSpec], servers: int, aside: Sequence[str]) -> Diagnostic:
    """Return what is wrong with a count of active servers: no error where some are set aside, as a lost one has to be.

    An invalid spec would keep the whole fleet on the one before, in which the lost server is still active.
    """
    problem = f"it has {servers} active nodes, and 1, 3 or 5 can serve"
    if not servers or not aside:
        hint = "etcd keeps its quorum best with 3, or 5; 1 survives no failure"
        return cluster.problem(("k3s", "servers"), problem, hint)
    hint = f"{', '.join(aside)} {'is' if len(aside) == 1 else 'are'} not active: put another node in the pool"
    return cluster.problem(("k3s", "servers"), problem, hint, "warning")


def _check_images(cluster: DeclaredResource[ClusterSpec], k3s: K3s) -> Iterator[Diagnostic]:
    """Yield a problem for each release whose images nobody would load.

    K3s loads them into the containerd that it brings, and into nothing else (k3s-io/k3s#600, #4502, #3100).
    """
    for at, release in (("release", k3s.release), ("agents", k3s.agents)):
        if k3s.docker and release is not None and release.images is not None:
            problem = "with `docker: true` nothing would load them: K3s does so in its own containerd alone"
            hint = "let `registries` name a mirror of the site in place of them, or take `docker` away"
            yield cluster.problem(("k3s", at, "images"), problem, hint)


def _check_datastore(cluster: DeclaredResource[ClusterSpec], k3s: K3s) -> Iterator[Diagnostic]:
    external = k3s.datastore is Datastore.EXTERNAL
    if external and k3s.database is None:
        yield cluster.problem(("k3s", "datastore"), "`external` needs `database`, which says where the state is kept")
    if not external and k3s.database is not None:
        yield cluster.problem(("k3s", "database"), "only `datastore: external` has it", "say so, or take it away")
    if external and k3s.snapshots is not None:
        problem = "snapshots are of etcd, and the cluster's state is in a database"
        yield cluster.problem(("k3s", "snapshots"), problem, "take it away, and back the database up by its own means")


def _skew(cluster: DeclaredResource[ClusterSpec], k3s: K3s) -> Iterator[Diagnostic]:
    if k3s.agents is None:
        return
    newest, agents = k3s.release.version, k3s.agents.version
    where = ("k3s", "agents", "version")
    if _order(agents) > _order(newest):
        yield cluster.problem(where, f"agents of {agents} would be newer than the servers, which run {newest}")
    elif minor_of(agents)[1] < minor_of(newest)[1] - (most := may_be_behind(minor_of(agents))):
        problem = f"agents of {agents} are more than {most} minors behind the servers, which run {newest}"
        yield cluster.problem(where, problem, "upgrade the agents first, as far as the servers are now")


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").replace("+k3s", ".").split("."))
