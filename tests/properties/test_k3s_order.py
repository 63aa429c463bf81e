"""Never two servers of K3s at once, never one while another is away, and never one of two members of etcd."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.k3s import Artifact, DesiredK3s, K3sRole, minor_of
from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Certainty
from reconciler.planner.fleet.k3s_order import K3sOrder, goes_in_order
from reconciler.planner.node.actions import ACTIONS
from reconciler.planner.node.workload import disrupts

SERVERS = ("s0", "s1", "s2", "s3", "s4")
NODES = (*SERVERS, "a0", "a1")
VERSIONS = ("v1.30.9+k3s1", "v1.31.5+k3s1", "v1.32.1+k3s1", "v1.33.0+k3s1")


def k3s(name: str, version: str) -> DesiredK3s:
    role = K3sRole.SERVER if name in SERVERS else K3sRole.AGENT
    return DesiredK3s(role, version, "https://x:6443", Artifact("https://x", ""), None)


def planned(name: str) -> PlannedAction:
    spec = ACTIONS[name]
    return PlannedAction(name, "", spec.concern, (), spec.disruption, 1.0, Certainty.EXACT, (), ())


@st.composite
def orders(draw: st.DrawFn) -> K3sOrder:
    wanted = {name: k3s(name, draw(st.sampled_from(VERSIONS))) for name in NODES}
    members = draw(st.sets(st.sampled_from(NODES)))
    return K3sOrder(
        wanted,
        {name: draw(st.sampled_from(VERSIONS)) for name in sorted(members)},
        {name: draw(st.booleans()) for name in sorted(members) if name in SERVERS},
        draw(st.sets(st.sampled_from(NODES), max_size=3)),
    )


@given(orders(), st.sampled_from(NODES), st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=4))
def test_never_two_servers_at_once(order: K3sOrder, node: str, names: list[str]) -> None:
    actions = [planned(name) for name in names]
    own = order.wanted[node]
    touching = [one for one in actions if goes_in_order(one, own)]
    if order.why(node, actions) or not touching:
        return
    if own.role is K3sRole.SERVER:
        assert any(disrupts(one) or one.name in ("install_k3s", "join") for one in touching)
        assert not ({*SERVERS} - {node}) & {*order.at_work}
        away = [name for name, ready in order.ready.items() if not ready and name != node]
        assert not away or ({one.name for one in touching} == {"join"} and node in order.ready)
        assert order.ready or node == SERVERS[0]
        assert len(order.ready) != 2 or node not in order.ready or {one.name for one in touching} == {"join"}
        if "install_k3s" in names and node in order.versions:
            assert minor_of(own.version)[1] - minor_of(order.versions[node])[1] in (0, 1)
    else:
        assert "join" not in names or any(order.ready.values())
        assert "install_k3s" not in names or all(
            order.versions.get(name, order.wanted[name].version) == order.wanted[name].version for name in SERVERS
        )


@given(
    st.permutations(SERVERS),
    st.sampled_from(VERSIONS),
    st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=4),
)
def test_neither_of_two_members_of_etcd_goes_away(servers: list[str], version: str, names: list[str]) -> None:
    """Both are Ready, so that nobody is away, and a third has not joined yet or was taken out."""
    node, other, *_ = servers
    order = K3sOrder(
        {name: k3s(name, version) for name in NODES},
        dict.fromkeys((node, other), version),
        dict.fromkeys((node, other), True),
    )
    actions = [planned(name) for name in names]
    touching = {one.name for one in actions if goes_in_order(one, order.wanted[node])}
    assert bool(order.why(node, actions)) == bool(touching - {"join"})
