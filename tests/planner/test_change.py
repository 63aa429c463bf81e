"""Two revisions compared: what only the later one does, and whom the earlier one alone says how to reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.model.access import (
    ClusterAccess,
    EventListenerPolicy,
    HostKeyPolicy,
    InstallerPolicy,
    PinnedExtension,
    TlsPolicy,
)
from reconciler.model.change import Change
from reconciler.model.drift import ACTIONABLE
from reconciler.model.errors import Position
from reconciler.model.gate import Certificate
from reconciler.model.limits import Guards
from reconciler.model.observed import Observation, Observed
from reconciler.model.plan import Plan
from reconciler.model.records import NodeRecord
from reconciler.model.releases import Chart, CrdPolicy, DesiredRelease, OperatorKind, Review
from reconciler.model.vocab import NodeState, Power
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.revisions import TRUSTED, at_once, endpoint_changes, forgotten, joining, wanted, watched
from reconciler.planner.fleet.spec_change import change_of, with_change
from reconciler.render.plan_comment import headline
from reconciler.render.spec_change import verdict
from tests import builders as b
from tests.strategies import records, seen_nodes, wanted_nodes

SIGNATURES = {("ubuntu-gpu", "2026.11.1"): True, ("ubuntu-gpu", "2026.12.0"): True}
NEW_IMAGE = replace(b.IMAGE, version="2026.12.0", sha256="cd" * 32)
OPEN = Guards("100%", "100%", "100%")


def fleet(*nodes: d.Desired, **changes: Any) -> d.Fleet:
    said = replace(b.SETTINGS, **{"budgets": (d.BudgetLimit("fleet", "100%"),), "guards": OPEN, **changes})
    return d.Fleet(said, d.SpecSource("spec", "c0ffee"), {node.node: node for node in nodes}, "digest")


def pass_over(seen: Mapping[str, Observed]) -> Observation:
    return Observation("1.0", "test", "", b.NOW, b.NOW, seen, "", "")


def planned(
    base: d.Fleet, head: d.Fleet, seen: Mapping[str, Observed], known: Mapping[str, NodeRecord]
) -> tuple[Plan, Change]:
    """The plan of head as of base's endpoints, and what it does that base's does not."""
    shared = [name for name in head.nodes if name in base.nodes]
    plans = [
        plan_fleet(
            at_once(one), pass_over(seen), LedgerSnapshot(b.LEDGER, known), b.NOW, PlanRequest("p", SIGNATURES, shared)
        )
        for one in (base, wanted(base, head))
    ]
    either = {*base.nodes, *head.nodes}
    change = change_of(base, head, (plans[0], plans[1]), pass_over(seen), known, selected=either)
    return with_change(plans[1], head, change), change


def change_to(
    profile: d.Profile,
    *,
    before: d.Profile = b.PROFILE,
    seen: Observed | None = None,
    certificate: Certificate | None = None,
    **settings_: Any,
) -> Change:
    """One certified node as specified, and another profile for it."""
    now, later = b.node(profile=before), b.node(profile=profile)
    found = seen or b.observed()
    record = NodeRecord("gpu-a001", certificate=certificate or b.certificate(now, b.observed()))
    return planned(fleet(now, **settings_), fleet(later, **settings_), {"gpu-a001": found}, {"gpu-a001": record})[1]


def acceptance(minimum: float = 1.0, **test: Any) -> d.Acceptance:
    one = replace(b.ACCEPTANCE.phases[0].tests[0], thresholds=(d.Threshold("x", min=minimum),), **test)
    return replace(b.ACCEPTANCE, phases=(d.GatePhase("burn", (one,)),))


# --- certificates -------------------------------------------------------------------------------------------------


def firmware(**changes: Any) -> d.Profile:
    first, *rest = b.FIRMWARE
    return b.profile(firmware=(replace(first, **changes), *rest))


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (b.profile(image=NEW_IMAGE), "issued for another image"),
        (firmware(version="3.0"), "firmware changed since: bmc"),
        (b.profile(bios={**b.PROFILE.bios, "NumaNodesPerSocket": "NPS4"}), "BIOS settings changed since"),
        (b.profile(acceptance=acceptance(args={"level": 3})), "dcgm: the test has changed since"),
        (b.profile(acceptance=None), "no acceptance profile: nothing proves this node"),
    ],
    ids=["image", "firmware", "bios", "tests", "no tests"],
)
def test_what_a_certificate_binds_voids_it(profile: d.Profile, reason: str) -> None:
    [void] = change_to(profile).void_certificates
    assert (void.node, void.reasons, void.valid_until) == ("gpu-a001", (reason,), b.NOW + timedelta(days=90))


@pytest.mark.parametrize(
    "profile",
    [
        firmware(version="1.0", policy="min"),  # newer is as good
        firmware(version="3.0", url=None),  # nothing to flash from: it stays as it is
        b.profile(host=d.DesiredHost({"vm.swappiness": "5"}, {})),
        b.profile(acceptance=replace(b.ACCEPTANCE, validity_s=91 * 86400.0)),
        b.profile(acceptance=acceptance(1.5)),  # the metrics clear it
    ],
    ids=["min", "no file", "host", "longer", "bar"],
)
def test_what_it_does_not_bind_leaves_it_valid(profile: d.Profile) -> None:
    assert change_to(profile).void_certificates == ()


def test_another_leaf_is_told_though_nobody_is_drained_for_it() -> None:
    pairs = d.GateTest("pairs", "command", {"partners": 2}, (), 600.0)
    profile = b.profile(acceptance=replace(b.ACCEPTANCE, phases=(d.GatePhase("fabric", (pairs,)),)))
    now, later = (b.node(profile=profile, domains={"leaf": leaf}) for leaf in ("l1", "l2"))
    record = NodeRecord("gpu-a001", certificate=b.certificate(now, b.observed()))
    plan, change = planned(fleet(now), fleet(later), {"gpu-a001": b.observed()}, {"gpu-a001": record})
    [void] = change.void_certificates
    assert void.reasons == ("its place in the fabric changed since: leaf l1 -> l2",)
    assert plan.nodes["gpu-a001"].actions == ()


def test_drift_that_is_ignored_voids_nothing() -> None:
    profile = b.profile(bios={**b.PROFILE.bios, "NumaNodesPerSocket": "NPS4"})
    rule = d.IgnoreRule("bios.NumaNodesPerSocket", "the vendor")
    assert change_to(profile, ignore=(rule,)).void_certificates == ()


def test_a_shorter_validity_voids_what_is_older() -> None:
    old = replace(b.certificate(b.node(), b.observed()), issued_at=b.NOW - timedelta(days=40))
    found = change_to(b.profile(acceptance=replace(b.ACCEPTANCE, validity_s=30 * 86400.0)), certificate=old)
    [void] = found.void_certificates
    assert void.reasons == ("expired: issued 40d00h ago",)
    assert void.valid_until == b.NOW + timedelta(days=50)
    assert [item.path for item in found.caused] == ["gate.certificate"]


def test_a_certificate_that_base_voids_is_not_held_against_head() -> None:
    """Its node gets a new image anyway: the change makes it no worse."""
    gone = b.facts().image
    assert gone is not None
    seen = b.observed(host=b.facts(image=replace(gone, version="2026.10.0", sha256="ee" * 32)))
    certificate = b.certificate(b.node(), seen)
    assert change_to(b.profile(image=NEW_IMAGE), seen=seen, certificate=certificate).void_certificates == ()


# --- thresholds ---------------------------------------------------------------------------------------------------


def test_metrics_below_a_raised_bar() -> None:
    found = change_to(b.profile(acceptance=acceptance(3.0)))
    [failure] = found.below_bar
    assert (failure.node, failure.reasons, failure.measured_at) == ("gpu-a001", ("dcgm: x 2 < 3",), b.NOW)
    assert [(item.path, item.observed) for item in found.caused] == [("gate.certificate", "dcgm: x 2 < 3")]
    assert (found.above_bar, found.unmeasured, found.void_certificates) == ((), (), ())


def test_metrics_above_a_raised_bar() -> None:
    found = change_to(b.profile(acceptance=acceptance(2.0)))
    assert (found.below_bar, found.above_bar, found.caused) == ((), ("gpu-a001",), ())


def test_a_metric_that_was_never_measured_fails_a_new_bar() -> None:
    bars = (d.Threshold("x", min=1.0), d.Threshold("y", max=5.0))
    tests = (replace(b.ACCEPTANCE.phases[0].tests[0], thresholds=bars),)
    found = change_to(b.profile(acceptance=replace(b.ACCEPTANCE, phases=(d.GatePhase("burn", tests),))))
    assert [failure.reasons for failure in found.below_bar] == [("dcgm: y was not measured",)]


@pytest.mark.parametrize("how", ["adopted", "another test"])
def test_without_metrics_nothing_is_judged(how: str) -> None:
    certificate = b.certificate(b.node(), b.observed())
    if how == "adopted":
        certificate = replace(certificate, adopted=True, results=())
    else:
        certificate = replace(certificate, results=tuple(replace(r, test="other") for r in certificate.results))
    found = change_to(b.profile(acceptance=acceptance(3.0)), certificate=certificate)
    assert (found.below_bar, found.above_bar, found.unmeasured) == ((), (), ("gpu-a001",))


def test_a_bar_that_the_metrics_missed_before_is_no_news() -> None:
    found = change_to(b.profile(acceptance=acceptance(4.0)), before=b.profile(acceptance=acceptance(3.0)))
    assert found.below_bar == ()
    assert [(item.path, item.observed) for item in found.before] == [("gate.certificate", "dcgm: x 2 < 3")]


# --- drift and blast radius ---------------------------------------------------------------------------------------


def test_another_value_for_what_had_drifted_is_caused() -> None:
    seen = b.observed(host=b.facts(sysctls={"vm.swappiness": "60"}))
    found = change_to(b.profile(host=d.DesiredHost({"vm.swappiness": "5"}, {})), seen=seen)
    assert [(item.path, item.desired) for item in found.caused] == [("host.sysctls.vm.swappiness", "5")]
    assert (found.before, found.removed) == ((), ())
    assert found.touched == {}  # it would be configured anyway


def test_drift_that_head_wants_is_removed() -> None:
    seen = b.observed(host=b.facts(sysctls={"vm.swappiness": "60"}))
    found = change_to(b.profile(host=d.DesiredHost({"vm.swappiness": "60"}, {})), seen=seen)
    assert [item.path for item in found.removed] == ["host.sysctls.vm.swappiness"]
    assert found.caused == ()


def test_hours_are_those_beyond_base() -> None:
    image = b.facts().image
    assert image is not None
    drifted = b.observed(host=b.facts(image=replace(image, version="2026.10.0", sha256="ee" * 32)))
    anyway = change_to(b.profile(image=NEW_IMAGE), seen=drifted)
    assert (anyway.touched, anyway.gpu_hours_out) == ({}, 0.0)  # base would reimage it too
    alone = change_to(b.profile(image=NEW_IMAGE))
    assert list(alone.touched) == ["reimage"]
    assert alone.gpu_hours_out > 1.0


def test_a_node_that_head_can_do_nothing_about_is_named() -> None:
    seen = b.observed(hot=b.silent(), inventory=b.silent())
    found = change_to(b.profile(image=NEW_IMAGE), seen=seen)
    assert (found.held_up, found.touched) == (("gpu-a001",), {})


def test_nodes_put_aside_take_nothing_and_are_named() -> None:
    base = fleet(b.node())
    aside = fleet(b.node(state=NodeState.QUARANTINED))
    _, change = planned(base, aside, {"gpu-a001": b.observed()}, {})
    assert change.states == {"quarantined": ("gpu-a001",)}
    assert change.touched == {}


# --- endpoints ----------------------------------------------------------------------------------------------------


NAMES = ("n1", "n2", "n3")
PLACES = {"endpoints.bmc": Position("pool.yaml", 4, 9), "node": Position("pool.yaml", 3, 9)}


@st.composite
def fleets(draw: st.DrawFn) -> d.Fleet:
    """A fleet whose every address and credential may be another."""
    word = st.sampled_from(["a", "b", "c"])
    nodes = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        bmc, host = draw(word), draw(word)
        profile = b.profile(host=d.DesiredHost({f"k.{draw(word)}": "1"}, {f"s{draw(word)}": "running"}))
        nodes.append(b.node(name, endpoints=d.Endpoints(f"https://{bmc}", host), profile=profile, provenance=PLACES))
    access = st.one_of(st.none(), st.builds(ClusterAccess, word, word, word))
    installer = st.one_of(st.none(), st.builds(InstallerPolicy, word, word, word))
    events = st.one_of(st.none(), st.builds(EventListenerPolicy, word, word, word, word))
    return fleet(
        *nodes, bmc_credentials=draw(word), ssh_credentials=draw(word), ssh_user=draw(word), fleet=draw(word),
        tls=draw(st.just(TlsPolicy(None, True)) | st.builds(TlsPolicy, word)), cluster=draw(access),
        installer=draw(installer),
        bmc_events=draw(events),
        host_keys=draw(st.builds(HostKeyPolicy, st.just(()), st.booleans())), tolerate=draw(word),
        insecure=(draw(word),),
        extensions=draw(st.lists(st.builds(PinnedExtension, word, word), max_size=1).map(tuple)),
    )  # fmt: skip


@given(fleets(), fleets())
def test_endpoints_are_those_of_base(base: d.Fleet, head: d.Fleet) -> None:
    """Conventions S3: whatever head edits, no address, key, CA or name of a secret of its own is ever used."""
    nowhere = d.Endpoints(None, None)
    for made in (wanted(base, head), watched(base, head)):
        for field in TRUSTED:
            assert getattr(made.settings, field) == getattr(base.settings, field)
        for name, node in made.nodes.items():
            assert node.endpoints == (base.nodes[name].endpoints if name in base.nodes else nowhere)
    desired = wanted(base, head)
    assert list(desired.nodes) == list(head.nodes)
    for name, node in desired.nodes.items():
        assert replace(node, endpoints=nowhere) == replace(head.nodes[name], endpoints=nowhere)
    assert desired.settings.tolerate == head.settings.tolerate


@given(fleets(), fleets())
def test_base_is_asked_for_what_either_manages(base: d.Fleet, head: d.Fleet) -> None:
    made = watched(base, head)
    for name in base.nodes.keys() & head.nodes.keys():
        asked = made.nodes[name].profile.host
        for one in (base, head):
            own = one.nodes[name].profile.host
            assert own.sysctls.keys() <= asked.sysctls.keys()
            assert own.services.keys() <= asked.services.keys()
    assert made.settings == base.settings


@given(fleets(), fleets())
def test_every_edit_of_an_endpoint_is_told(base: d.Fleet, head: d.Fleet) -> None:
    """And nothing else: head at its own endpoints is head, once these are undone."""
    told = endpoint_changes(base, head)
    for name, node in head.nodes.items():
        old = base.nodes[name].endpoints if name in base.nodes else d.Endpoints(None, None)
        found = {c.what: (c.before, c.after, c.position) for c in told if c.subject == name}
        edited = {
            what: (getattr(old, what) or "", getattr(node.endpoints, what) or "", place)
            for what, place in (("bmc", "pool.yaml:4:9"), ("host", "pool.yaml:3:9"))
            if getattr(old, what) != getattr(node.endpoints, what)
        }
        assert found == edited
    ours = {name: getattr(base.settings, name) for name in TRUSTED if name != "insecure"}
    theirs = {name: getattr(head.settings, name) for name in TRUSTED if name != "insecure"}
    assert any(c.subject == "fleet" for c in told) == (ours != theirs)
    assert set(joining(base, head)) == head.nodes.keys() - base.nodes.keys()
    assert set(forgotten(base, head)) == base.nodes.keys() - head.nodes.keys()


def test_every_setting_is_either_trusted_or_desired() -> None:
    """A new one must be thought about: does it decide whom we talk to, as whom, or whom we believe?"""
    desired = {
        "concurrency", "redfish_deadline_s", "ssh_deadline_s", "kubernetes_deadline_s", "inventory_max_age_s",
        "tolerate", "budgets", "drift_mode", "ignore", "floors", "windows", "break_glass", "guards", "brake",
        "health", "notifications", "tickets", "reserves", "releases", "rotate_after_s", "drift_forge",
        "inventory",
    }  # fmt: skip
    assert {field.name for field in fields(d.Settings)} == desired | set(TRUSTED)
    assert not desired & set(TRUSTED)


def test_a_release_of_a_change_is_not_trusted_as_one_that_is_merged() -> None:
    """S3: what its template reads in the cluster would be printed on the pull request; a chart is fetched somewhere."""

    def release(name: str, source: str, values: str = "{}", archive: str | None = None) -> DesiredRelease:
        chart = Chart(source, name, "1.0", "ab" * 32, archive)
        return DesiredRelease(name, "ops", OperatorKind.CHART, chart, values, CrdPolicy.CREATE, 60.0, Position("c"))

    ours, theirs = "https://helm.ngc.nvidia.com/nvidia", "https://203.0.113.66/charts"
    base = fleet(b.node("n1"), releases=(release("a", ours), release("b", ours)))
    head = fleet(
        b.node("n1"),
        releases=(
            replace(release("a", ours), position=Position("moved")), release("b", ours, '{"x": 1}'),
            release("c", ours), release("d", theirs), release("a", theirs), release("e", "e.tgz", archive="AA=="),
        ),
    )  # fmt: skip
    assert [one.review for one in watched(base, head).settings.releases] == [
        Review.MERGED, Review.CHANGED, Review.CHANGED, Review.NEW_SOURCE, Review.NEW_SOURCE, Review.CHANGED,
    ]  # fmt: skip
    assert {one.review for one in head.settings.releases} == {Review.MERGED}, "once it is merged, it is"


def test_a_node_that_joins_has_a_plan_that_says_why_nothing_is_done() -> None:
    base, head = fleet(b.node("n1")), fleet(b.node("n1"), b.node("n2"))
    seen = {"n1": b.observed("n1")}
    made, change = planned(base, head, seen, {})
    assert change.joining == ("n2",)
    assert list(made.nodes) == ["n1", "n2"]
    assert made.nodes["n2"].actions == ()
    assert made.nodes["n2"].blocked is not None
    assert made.totals.nodes_blocked == 1
    assert planned(head, base, seen | {"n2": b.observed("n2")}, {})[1].forgotten == ("n2",)


# --- for any node, and any change ---------------------------------------------------------------------------------


@st.composite
def changes(draw: st.DrawFn) -> tuple[d.Desired, d.Desired, Observed, NodeRecord]:
    before = draw(wanted_nodes())
    return before, draw(st.one_of(st.just(before), wanted_nodes())), draw(seen_nodes()), draw(records(before))


@settings(max_examples=150)
@given(changes())
def test_caused_and_before_are_all_drift_of_head(case: tuple[d.Desired, d.Desired, Observed, NodeRecord]) -> None:
    before, after, seen, record = case
    made, change = planned(fleet(before), fleet(after), {"gpu-a001": seen}, {"gpu-a001": record})
    actionable = [item for item in made.nodes["gpu-a001"].drift if item.kind in ACTIONABLE]
    told = [(item.path, item.desired) for item in (*change.caused, *change.before)]
    assert Counter(map(repr, told)) == Counter(repr((item.path, item.desired)) for item in actionable)
    assert not {item.path for item in change.removed} & {item.path for item in actionable}
    assert bool(change.touched) <= bool(made.nodes["gpu-a001"].actions)
    assert change.gpu_hours_out >= 0


@settings(max_examples=100)
@given(changes())
def test_no_change_causes_nothing(case: tuple[d.Desired, d.Desired, Observed, NodeRecord]) -> None:
    node, _, seen, record = case
    one = fleet(node)
    _, change = planned(one, one, {"gpu-a001": seen}, {"gpu-a001": record})
    assert change.empty
    assert change.gpu_hours_out == 0.0


@pytest.mark.parametrize("power", [Power.ON, Power.OFF])
def test_a_change_of_nodes_that_nobody_could_read_is_unknown_and_not_without_effect(power: Power) -> None:
    """45 nodes that are dark or off: the title may not say that the change touches none of them."""
    later = b.profile(image=NEW_IMAGE)
    names = [f"gpu-{at:03}" for at in range(45)]
    base, head = (fleet(*(b.node(name, profile=one) for name in names)) for one in (b.PROFILE, later))
    silent = b.silent("timeout") if power is Power.ON else b.silent("explained", "powered off")
    seen = {name: b.observed(name, hot=b.hot(name, power=power), host=silent) for name in names}
    plan, change = planned(base, head, seen, {})
    assert (len(change.touched), change.unknown, change.empty) == (0, tuple(names), False)
    assert headline(plan).text.startswith("nobody can say what this change touches: 45 nodes unknown")
    assert headline(plan).sign != "✅"
    assert "of 45 it is unknown" in verdict(change)


def test_what_the_change_does_not_edit_is_not_unknown_to_it() -> None:
    base = fleet(b.node("gpu-1"), b.node("gpu-2"))
    head = fleet(b.node("gpu-1", profile=b.profile(host=d.DesiredHost({"vm.swappiness": "5"}, {}))), b.node("gpu-2"))
    seen = {"gpu-1": b.observed("gpu-1"), "gpu-2": b.observed("gpu-2", host=b.silent("timeout"))}
    _, change = planned(base, head, seen, {})
    assert change.unknown == ()
