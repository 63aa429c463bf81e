"""No node of a serving group goes before the others serve without it, and all serve together again afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.converge.events import ActionStarted, Event
from reconciler.model.desired import Desired, DrainPolicy
from reconciler.model.outcome import Declined, Done, Transient
from reconciler.model.records import ISOLATED
from reconciler.model.serving import DesiredServing
from reconciler.model.serving_sync import DesiredSync
from reconciler.model.vocab import DrainProvider, NodeState
from tests.converge.test_backup import NEW, each, to_new_image
from tests.converge.test_k3s_killed import killed_at, surviving
from tests.converge.world import PROFILE, SIGNATURES, World

Worlds = Callable[..., World]
URL = "http://127.0.0.1:8000/health"
GROUP = ("n0", "n1")
ENDS_SERVICE = ("mark", "drain", "reimage")
HOUR = 3600.0


def serving(*names: str) -> DesiredServing:
    return DesiredServing(names, ("serve", "--only", "{nodes}"), ("serve", "--all", "{nodes}"), 600.0, URL, 600.0)


def grouped(world: Worlds, *groups: Sequence[str], **changes: Any) -> World:
    """A fleet whose nodes serve in these groups, and are in service."""
    chosen = groups or (GROUP,)
    here = world(nodes=sum(map(len, chosen)), signatures={**SIGNATURES, (NEW.name, NEW.version): True}, **changes)
    here.adopt()
    declare(here, *chosen)
    return here


def declare(here: World, *groups: Sequence[str]) -> None:
    of = {name: serving(*group) for group in groups for name in group}
    each(here, lambda node: replace(node, serving=of.get(node.node)))


def commands(here: World, name: str) -> list[str]:
    return [" ".join(words) for words in here.machine(name).state.serving.commands]


def in_order(here: World, *names: str) -> list[str]:
    """Return what was begun, as "n0 drain", in order."""
    began = [f"{one.node} {one.action.name}" for one in here.events if isinstance(one, ActionStarted)]
    return [one for one in began if one.split()[1] in names]


class Watched(list[Event]):
    """The events of a world, in which each end of a node's service is checked as it begins."""

    def __init__(self, here: World) -> None:
        super().__init__()
        self.here = here
        self.wrong: list[str] = []

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, ActionStarted) and event.action.name in ENDS_SERVICE:
            self.check(event.node, event.action.name)

    def check(self, node: str, action: str) -> None:
        here, wanted = self.here, self.here.fleet.nodes[node].serving
        for name in () if wanted is None else wanted.others(node):
            last = (commands(here, name) or ["nothing"])[-1]
            if not here.serves(name):
                self.wrong.append(f"{node} {action}: {name} of its group is away, too")
            if not last.startswith("serve --only") or node in last.split()[-1].split(","):
                self.wrong.append(f"{node} {action}: {name} was told {last!r}")
            if not here.machine(name).state.serving.answers:
                self.wrong.append(f"{node} {action}: {name} does not answer")


def watched(here: World) -> Watched:
    here.events = found = Watched(here)
    return found


def converged(here: World) -> None:
    assert {here.machine(name).disk().version for name in here.fleet.nodes} == {NEW.version}
    assert all(map(here.serves, here.fleet.nodes))
    assert not [node.node for node in here.plan().nodes.values() if node.actions]
    for name, node in here.fleet.nodes.items():
        assert node.serving is not None
        assert commands(here, name)[-1] == f"serve --all {','.join(node.serving.group)}"


def test_the_others_serve_without_it_before_it_goes_and_with_it_once_it_is_back(world: Worlds) -> None:
    here = grouped(world)
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    told = [did.index(one) for one in ("degrade_serving", "mark", "drain", "reimage", "admit", "restore_serving")]
    assert told == sorted(told), did
    assert commands(here, "n1") == ["serve --only n1", "serve --all n0,n1"]
    assert commands(here, "n0") == ["serve --all n0,n1"]
    assert here.did("n1") == []
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_no_two_nodes_of_a_group_are_away_whatever_the_budget_allows(world: Worlds) -> None:
    here = grouped(world, GROUP, ("n2", "n3", "n4"))
    events = watched(here)
    to_new_image(here)
    here.apply(wait_s=100 * HOUR)
    assert events.wrong == []
    converged(here)
    steps = in_order(here, "degrade_serving", "restore_serving")
    for group in (GROUP, ("n2", "n3", "n4")):
        of_group = [step.split()[1] for step in steps if step.split()[0] in group]
        assert of_group == ["degrade_serving", "restore_serving"] * len(group), steps
    groups = [line for line in here.plan().budget if line.scope.startswith("serving group")]
    assert [(line.scope, line.limit, line.out) for line in groups] == [
        ("serving group n0, n1", 1, ()),
        ("serving group n2, n3, n4", 1, ()),
    ]


@pytest.mark.parametrize("trouble", ["the command fails", "nobody answers", "the host is silent"])
def test_a_group_that_does_not_serve_without_it_keeps_its_node(world: Worlds, trouble: str) -> None:
    here = grouped(world)
    machine = here.machine("n1")
    match trouble:
        case "the command fails":
            machine.state.serving.fails = 3
            says = "n1: serve exits with 3: the engine refuses"
        case "nobody answers":
            machine.state.serving.answers = False
            says = f"n1: {URL} does not answer 2xx: HTTP 503"
        case _:
            machine.inject("ssh_refused")
            says = "n1: serve does not end, or its host does not say so: unreachable: connection refused"
    to_new_image(here, "n0")
    report = here.apply(wait_s=HOUR)
    assert here.serves("n0")
    assert not here.marked("n0")
    assert not set(ENDS_SERVICE) & set(here.did("n0"))
    assert says in report.results["n0"].detail
    machine.state.serving.fails, machine.state.serving.answers = 0, True
    machine.clear()
    here.clock.elapsed += 25 * HOUR
    here.apply(wait_s=10 * HOUR)
    assert here.machine("n0").disk().version == NEW.version
    assert commands(here, "n1")[-2:] == ["serve --only n1", "serve --all n0,n1"]


def test_a_group_that_was_told_in_part_serves_whole_again_when_its_node_stays(world: Worlds) -> None:
    """The image is taken back, so there is nothing to go for any more."""
    here = grouped(world, ("n0", "n1", "n2"))
    here.machine("n2").state.serving.fails = 3
    before = here.fleet
    to_new_image(here, "n0")
    here.apply(wait_s=0.0)
    assert commands(here, "n1")[0] == "serve --only n1,n2"
    here.machine("n2").state.serving.fails = 0
    here.fleet = before
    here.apply(wait_s=HOUR)
    assert {commands(here, name)[-1] for name in here.fleet.nodes} == {"serve --all n0,n1,n2"}
    assert not set(ENDS_SERVICE) & set(here.did("n0"))


def test_until_its_group_serves_with_it_no_other_node_of_the_group_goes(world: Worlds) -> None:
    here = grouped(world)
    events = watched(here)
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    here.machine("n0").state.serving.fails = 1  # once more, and now what follows fails
    each(here, lambda node: replace(node, profile=replace(PROFILE, digest="back")), "n0")
    here.apply(wait_s=10 * HOUR)
    assert here.serves("n0")
    assert any(one.startswith("restore_serving!") for one in here.did("n0"))
    to_new_image(here, "n1")
    report = here.apply(wait_s=HOUR)
    assert here.did("n1") == []
    assert report.results["n1"].detail == "its serving group serves without another one: 1 of 1 away (n0)"
    assert [item.path for item in here.plan().nodes["n0"].drift] == ["cluster.serving"]
    here.machine("n0").state.serving.fails = 0
    here.clock.elapsed += 25 * HOUR
    here.apply(wait_s=10 * HOUR)
    assert (here.machine("n1").disk().version, here.serves("n1")) == (NEW.version, True)
    assert events.wrong == []


def test_a_node_that_dies_is_repaired_only_when_the_others_serve_without_it(world: Worlds) -> None:
    """Its group was broken by that: telling the others is what brings it back."""
    here = grouped(world, faults={"n0": {"xid": {"code": 79, "heals": "boot"}}})
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    assert did.index("mark") < did.index("degrade_serving") < did.index("drain"), (
        did
    )  # no new work before anything else
    assert commands(here, "n1") == ["serve --only n1", "serve --all n0,n1"]
    assert here.serves("n0")


def test_a_group_of_which_nobody_serves_is_not_asked(world: Worlds) -> None:
    """A new fleet: no node serves, so none can serve without another, and none is told that it is back."""
    here = world(nodes=2, drift={"n*": ["not_a_member"]})
    declare(here, GROUP)
    here.apply(wait_s=10 * HOUR)
    assert (here.serves("n0"), here.serves("n1")) == (True, True)
    assert commands(here, "n0") == commands(here, "n1") == []


def test_a_node_comes_back_to_its_group_when_all_of_it_is_in_service(world: Worlds) -> None:
    here = grouped(world)
    for name in GROUP:
        here.machine(name).inject("xid", code=79, heals="boot")
    here.apply(wait_s=10 * HOUR)
    assert (here.serves("n0"), here.serves("n1")) == (True, True)
    here.apply(wait_s=HOUR)
    assert not [node.node for node in here.plan().nodes.values() if node.actions]
    for name in GROUP:
        assert "serve --all n0,n1" in commands(here, name)[-1]


def test_a_node_without_a_cluster_goes_by_the_same_rules(world: Worlds) -> None:
    profile = replace(PROFILE, drain=DrainPolicy(DrainProvider.NONE), membership=None)
    here = grouped(world, cluster=False, profile=profile)
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    told = [did.index(one) for one in ("degrade_serving", "drain", "reimage", "admit", "restore_serving")]
    assert told == sorted(told), did
    assert commands(here, "n1") == ["serve --only n1", "serve --all n0,n1"]


def test_a_mark_asks_once_more_unless_it_isolates(world: Worlds) -> None:
    """Where nothing has to be drained, the node goes right after its mark."""
    here = grouped(world)
    assert isinstance(here.act("degrade_serving"), Done)
    here.machine("n1").state.serving.answers = False
    outcome = here.act("mark")
    assert isinstance(outcome, Transient)
    assert "its serving group does not answer without it, so it stays: n1" in outcome.detail
    assert here.serves("n0")
    assert isinstance(here.act("mark", because=(ISOLATED + "health.gpu_missing",)), Done)


def test_a_drain_asks_once_more(world: Worlds) -> None:
    """What they answered when they were told may be a day ago."""
    here = grouped(world)
    assert isinstance(here.act("degrade_serving"), Done)
    assert isinstance(here.act("mark"), Done)
    here.machine("n1").state.serving.answers = False
    outcome = here.act("drain")
    assert isinstance(outcome, Transient)
    assert "its serving group does not answer without it, so it stays: n1" in outcome.detail
    here.machine("n1").state.serving.answers = True
    assert isinstance(here.act("drain"), Done)


def test_nobody_is_told_to_serve_with_a_node_that_is_away(world: Worlds) -> None:
    here = grouped(world, ("n0", "n1", "n2"))
    assert isinstance(here.act("mark", "n2"), Done)
    outcome = here.act("restore_serving")
    assert isinstance(outcome, Declined)
    assert outcome.detail == "its serving group is whole again when n2 is in service"
    assert isinstance(here.act("degrade_serving"), Done)
    assert commands(here, "n1") == ["serve --only n1"]
    assert commands(here, "n2") == []


@pytest.mark.parametrize("other", [NodeState.ACTIVE, NodeState.QUARANTINED])
def test_a_node_is_decommissioned_only_where_all_others_serve_without_it(world: Worlds, other: NodeState) -> None:
    here = grouped(world, ("n0", "n1", "n2"))
    serial = here.machine("n0").state.serial
    each(here, lambda node: replace(node, state=NodeState.DECOMMISSIONED, serial=serial, erase=()), "n0")
    each(here, lambda node: replace(node, state=other), "n1")
    report = here.apply(approved=here.plan(), consented=frozenset({"n0"}), wait_s=0.0)
    if other is NodeState.ACTIVE:
        assert commands(here, "n1") == commands(here, "n2") == ["serve --only n1,n2"]
        assert here.did("n0").index("degrade_serving") < here.did("n0").index("drain")
    else:
        assert here.did("n0") == []
        assert report.results["n0"].detail == "its serving group serves without another one: 1 of 1 away (n1)"
        assert commands(here, "n1") == commands(here, "n2") == []


def test_models_are_copied_before_anybody_is_told(world: Worlds) -> None:
    here = copying(world)
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    assert did.index("sync_serving") < did.index("degrade_serving") < did.index("drain"), did
    assert here.machine("n1").disk().files["/srv/models/a"] == "weights"
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_a_copy_that_fails_keeps_the_node(world: Worlds) -> None:
    here = copying(world)
    here.machine("n1").disk().files["/srv/models/a"] = "other"
    to_new_image(here, "n0")
    report = here.apply(wait_s=HOUR)
    assert {one.partition("!")[0] for one in here.did("n0")} == {"sync_serving"}
    assert commands(here, "n1") == []
    assert "n1: /srv/models/a: FAILED" in report.results["n0"].detail


def test_of_a_host_that_is_down_nothing_is_copied(world: Worlds) -> None:
    """Its group was broken by that, and is told all the same."""
    here = copying(world)
    here.machine("n0").inject("host_hung")
    for _ in range(4):
        here.apply(wait_s=HOUR)
        here.clock.elapsed += 0.2 * HOUR
    assert "sync_serving" not in here.did("n0")
    assert commands(here, "n1")[0] == "serve --only n1"
    assert here.serves("n0")


def test_an_ill_node_from_which_nothing_can_be_copied_goes_without_that(world: Worlds) -> None:
    """Its disk may be what ails it. A well one stays: see above."""
    here = copying(world)
    here.machine("n1").disk().files["/srv/models/a"] = "other"
    here.machine("n0").inject("xid", code=79, heals="boot")
    for _ in range(3):
        here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    assert [one.partition("!")[0] for one in did].count("sync_serving") == 3
    assert did.index("mark") < did.index("degrade_serving") < did.index("drain"), did
    assert commands(here, "n1")[0] == "serve --only n1"
    assert here.serves("n0")


ENGINE = "docker.io/vllm/vllm-openai:v0.11.0"


def with_images(here: World, **digests: str) -> World:
    """Have the engine's image copied, which nodes have with these digests."""
    for at, name in enumerate(GROUP):
        each(here, syncing(DesiredSync((), "ib0", f"10.30.0.{at}", 400.0, (ENGINE,))), name)
        if name in digests:
            here.machine(name).disk().container_images[ENGINE] = f"sha256:{digests[name] * 64}"
    return here


def test_images_that_a_survivor_lacks_are_there_before_it_is_told(world: Worlds) -> None:
    here = with_images(copying(world), n0="a")
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    did = here.did("n0")
    assert did.index("sync_serving") < did.index("degrade_serving") < did.index("drain"), did
    survivor = here.machine("n1").disk()
    assert survivor.container_images == {ENGINE: f"sha256:{'a' * 64}"}
    assert not [path for path in survivor.files if path.endswith(".tar")]
    [detail] = [one.detail for one in here.ledger.node("n0").attempts if one.action == "sync_serving"]
    assert detail.startswith("1 images are on each, with their digests; n1: ")


def test_images_that_are_there_are_not_copied(world: Worlds) -> None:
    here = with_images(copying(world), n0="a", n1="a")
    outcome = here.act("sync_serving")
    assert isinstance(outcome, Done)
    assert outcome.detail == "1 images are on each"


@pytest.mark.parametrize(
    ("digests", "why"),
    [
        ({"n0": "a", "n1": "b"}, f"n1: {ENGINE} is sha256:{'b' * 64} here, and sha256:{'a' * 64} there"),
        ({"n1": "a"}, f"n0: no runtime has all images whole; containerd has not: {ENGINE}"),
    ],
)
def test_nobody_is_told_to_serve_with_another_image_or_none(world: Worlds, digests: dict[str, str], why: str) -> None:
    here = with_images(copying(world), **digests)
    to_new_image(here, "n0")
    here.apply(wait_s=10 * HOUR)
    details = [one.detail for one in here.ledger.node("n0").attempts if one.action == "sync_serving"]
    assert details
    assert all(detail.startswith(why) for detail in details)
    assert commands(here, "n1") == []
    assert here.serves("n0")


def syncing(sync: DesiredSync) -> Callable[[Desired], Desired]:
    """Return a change of a node that serves in a group: this is copied from it."""

    def change(node: Desired) -> Desired:
        assert node.serving is not None
        return replace(node, serving=replace(node.serving, sync=sync))

    return change


def copying(world: Worlds) -> World:
    """A pair that serves, of which n0 has models that n1 lacks."""
    here = grouped(world)
    for at, name in enumerate(GROUP):
        sync = DesiredSync(("/srv/models",), "ib0", f"10.30.0.{at}", 400.0)
        each(here, syncing(sync), name)
    sources = {f"10.30.0.{at}": here.machine(name) for at, name in enumerate(GROUP)}
    for name in GROUP:
        here.machine(name).copied_from = sources
    here.machine("n0").disk().files["/srv/models/a"] = "weights"
    return here


few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=2),
    kills=st.lists(st.integers(1, 120), max_size=3),
    troubles=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["fails", "answers"])), max_size=2),
)
def test_no_node_goes_before_its_group_answers_without_it(
    sizes: list[int], kills: list[int], troubles: list[tuple[int, str]]
) -> None:
    """Invariant: whatever the sizes of groups, who refuses, and wherever runs die."""
    names = [f"n{at}" for at in range(sum(sizes))]
    groups, left = [], list(names)
    for size in sizes:
        groups.append(tuple(left[:size]))
        left = left[size:]
    with tempfile.TemporaryDirectory() as folder:
        here = grouped(lambda **given: World(Path(folder), **given), *groups)
        events = watched(here)
        to_new_image(here)
        for at, trouble in troubles:
            state = here.machine(names[at % len(names)]).state.serving
            state.fails, state.answers = (1, True) if trouble == "fails" else (0, False)
        for kill in kills:
            with killed_at(kill), surviving():
                here.apply(wait_s=10 * HOUR)
            assert events.wrong == []
        for name in names:
            here.machine(name).state.serving.fails, here.machine(name).state.serving.answers = 0, True
        here.clock.elapsed += 25 * HOUR
        here.apply(wait_s=100 * HOUR)
        assert events.wrong == []
        converged(here)
        here.ledger.close()
