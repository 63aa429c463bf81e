"""Never two servers of K3s at once, never one while another is away, and never one of two members of etcd."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.k3s import Artifact, DeprecatedApi, DesiredK3s, HostSecret, K3sRole, minor_of
from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Certainty
from reconciler.planner.fleet.k3s_order import K3sOrder, goes_in_order
from reconciler.planner.node.actions import ACTIONS
from reconciler.planner.node.workload import disrupts

SERVERS = ("s0", "s1", "s2", "s3", "s4")
NODES = (*SERVERS, "a0", "a1")
APIS = (
    DeprecatedApi("", "v1", "componentstatuses", ""),
    DeprecatedApi("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", "1.32"),
    DeprecatedApi("policy", "v1beta1", "podsecuritypolicies", "1.31"),
)
VERSIONS = ("v1.30.9+k3s1", "v1.31.5+k3s1", "v1.32.1+k3s1", "v1.33.0+k3s1")


def k3s(name: str, version: str, allowed: tuple[str, ...] = ()) -> DesiredK3s:
    role = K3sRole.SERVER if name in SERVERS else K3sRole.AGENT
    return DesiredK3s(role, version, "https://x:6443", Artifact("https://x", ""), None, allow_deprecated=allowed)


def planned(name: str) -> PlannedAction:
    spec = ACTIONS[name]
    return PlannedAction(name, "", spec.concern, (), spec.disruption, 1.0, Certainty.EXACT, (), ())


@st.composite
def orders(draw: st.DrawFn) -> K3sOrder:
    allowed = tuple(draw(st.sets(st.sampled_from([api.name for api in APIS]))))
    wanted = {name: k3s(name, draw(st.sampled_from(VERSIONS)), allowed) for name in NODES}
    asked = st.none() | st.sets(st.sampled_from(APIS)).map(tuple)
    members = draw(st.sets(st.sampled_from(NODES)))
    return K3sOrder(
        wanted,
        {name: draw(st.sampled_from(VERSIONS)) for name in sorted(members)},
        {name: draw(st.booleans()) for name in sorted(members) if name in SERVERS},
        draw(st.sets(st.sampled_from(NODES), max_size=3)),
        {name: draw(asked) for name in SERVERS},
    )


def before(order: K3sOrder, node: str) -> str:
    """The release that a server goes on from: one that joins anew, from the oldest of the others."""
    if node in order.versions:
        return order.versions[node]
    return min((order.versions[name] for name in SERVERS if name in order.versions), default="")


def ended(order: K3sOrder, own: DesiredK3s) -> list[str]:
    """APIs in use on servers of an older minor that the version lacks, and servers that don't tell theirs."""
    minor = minor_of(own.version)
    found = []
    for name in SERVERS:
        asked = order.deprecated.get(name)
        if name not in order.versions or minor_of(order.versions[name]) >= minor:
            continue
        lacks = [api for api in asked or () if api.removed and tuple(map(int, api.removed.split("."))) <= minor]
        found += [name] if asked is None else [api.name for api in lacks if api.name not in own.allow_deprecated]
    return found


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
        if "install_k3s" in names and (runs := before(order, node)):
            assert minor_of(own.version)[1] - minor_of(runs)[1] in (0, 1)
            assert minor_of(own.version) == minor_of(runs) or not ended(order, own)
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


@given(
    st.sampled_from(VERSIONS[:-1]),
    st.integers(0, 1),
    st.lists(st.none() | st.sets(st.sampled_from(APIS)).map(tuple), min_size=3, max_size=3),
    st.sets(st.sampled_from([api.name for api in APIS])),
)
def test_no_server_goes_to_a_minor_that_lacks_what_is_in_use(
    runs: str, step: int, asked: list[tuple[DeprecatedApi, ...] | None], allowed: set[str]
) -> None:
    servers, version = SERVERS[:3], VERSIONS[VERSIONS.index(runs) + step]
    order = K3sOrder(
        {name: k3s(name, version, tuple(allowed)) for name in servers},
        dict.fromkeys(servers, runs),
        dict.fromkeys(servers, True),
        (),
        dict(zip(servers, asked, strict=True)),
    )
    own = order.wanted["s1"]
    assert bool(order.why("s1", [planned("install_k3s")])) == bool(ended(order, own))


DATABASE = "db.example:5432"
SECRET = {"datastore-endpoint": HostSecret("database", DATABASE)}


@given(
    order=orders(), in_database=st.dictionaries(st.sampled_from(SERVERS), st.sampled_from(["", DATABASE, "other:1"])),
    elsewhere=st.sets(st.sampled_from(SERVERS)), bootstrap=st.booleans(), saved=st.sampled_from(["", *VERSIONS]),
    name=st.sampled_from(sorted(ACTIONS)), node=st.sampled_from(SERVERS),
)  # fmt: skip
def test_a_database_changes_what_is_proved_and_nothing_else(
    order: K3sOrder, in_database: dict[str, str], elsewhere: set[str], bootstrap: bool, saved: str, name: str, node: str
) -> None:
    """None is changed while one has its state elsewhere; the quorum of etcd counts unless a database is proved."""
    wanted = {
        one: replace(own, secrets=SECRET if one in SERVERS else {}, bootstrap=bootstrap, saved_before=saved)
        for one, own in order.wanted.items()
    }
    why_elsewhere = dict.fromkeys(elsewhere, "its state is elsewhere")
    external = replace(order, wanted=wanted, in_database=in_database, elsewhere=why_elsewhere)
    action, own = planned(name), wanted[node]
    why = external.why(node, [action])
    if not goes_in_order(action, own):
        assert why == ""
        return
    if elsewhere:
        assert "its state is elsewhere" in why
        return
    others = {one: ready for one, ready in order.ready.items() if one != node}
    if not why and order.ready and not (name == "join" and node in order.ready):
        assert not others or any(others.values()), "one that is Ready stays"
        if not in_database:
            assert all(others.values()), "nothing proves that there is no etcd"
            assert node not in order.ready or len(order.ready) != 2
    if not why and set(order.ready) == {node} and ACTIONS[name].installs:
        assert (bootstrap, in_database.get(node)) == (True, DATABASE), "it comes back to its cluster"
    if not why and name == "install_k3s":
        assert before(external, node) in (own.version, "") or saved == own.version


@given(st.sampled_from(VERSIONS[1:]), st.integers(0, 2), st.booleans(), st.sampled_from(["", *VERSIONS]))
def test_what_keeps_a_new_server_out_would_keep_the_others_from_an_upgrade(
    runs: str, later: int, external: bool, saved: str
) -> None:
    """So no ring of waits begins where two of three members of etcd are left: neither may be away for an upgrade."""
    version = [*VERSIONS, "v1.34.1+k3s1", "v1.35.0+k3s1"][VERSIONS.index(runs) + later]
    servers = SERVERS[:4]
    secrets = SECRET if external else {}
    wanted = {name: replace(k3s(name, version), secrets=secrets, saved_before=saved) for name in servers}
    state = dict.fromkeys(servers, DATABASE) if external else {}
    old, asked = dict.fromkeys(servers[:3], runs), dict.fromkeys(servers, ())
    order = K3sOrder(wanted, old, dict.fromkeys(old, True), (), asked, {}, state)
    joins, upgrade = (order.why(node, [planned("install_k3s")]) for node in ("s3", "s0"))
    assert bool(joins) == bool(upgrade) == (later > 1 or (external and later > 0 and saved != version))
    assert joins.replace("it joins anew, and server s0 runs", "it runs") == upgrade
    if not external:
        two = replace(order, versions=dict.fromkeys(servers[:2], runs), ready=dict.fromkeys(servers[:2], True))
        assert bool(two.why("s0", [planned("install_k3s")]))
        assert bool(two.why("s2", [planned("install_k3s")])) == bool(joins)
