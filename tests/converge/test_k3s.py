"""A K3s cluster from nothing, kept as declared, upgraded and mended, judged by what became of etcd and its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.app.k3s_access import ServerKubeconfig
from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.converge.k3s_birth import K3sServer, is_unborn
from reconciler.lab.hardware.k3s_site import LEAF
from reconciler.lab.k3s import remove
from reconciler.model.desired import IgnoreRule, RolloutPolicy
from reconciler.model.drift import DriftClass
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import (
    BINARY,
    CONFIG,
    DATASTORE,
    IMAGES,
    KUBECONFIG,
    PASSWORD,
    REGISTRIES,
    RESTART_DUE,
    TOKEN,
    UNIT_FILES,
    DeprecatedApi,
)
from reconciler.model.operands import GPU_RESOURCE
from reconciler.model.outcome import Done, Transient
from reconciler.render.drift import reported
from tests.converge.k3s_world import BASE, NEW, OLD, SERVERS, declare, k3s_world, release, site, spec
from tests.converge.world import World

Worlds = Callable[..., World]
NOT_THERE = {"n*": ["not_a_member"]}
UNIT = f"{UNIT_FILES}/k3s-agent.service"


def converged(here: World, **options: Any) -> None:
    """Apply, and see that every node serves as declared, and that no token is left."""
    report = here.apply(**options)
    states = {name: (one.state.value, one.detail) for name, one in report.results.items()}
    assert {state for state, _ in states.values()} <= {"done", "converged"}, states
    assert all(here.serves(name) for name in here.fleet.nodes)
    assert not site(here).valid()
    assert not site(here).refused


def overlapping(events: list[Event], names: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of servers of which one was begun while another was still worked on."""
    at_work: dict[str, None] = {}
    found = []
    for event in events:
        if isinstance(event, ActionStarted | ActionFinished) and event.node in names:
            if event.action.name not in ("install_k3s", "join", "drain"):
                continue
            if isinstance(event, ActionStarted):
                found += [(other, event.node) for other in at_work if other != event.node]
                at_work[event.node] = None
            else:
                at_work.pop(event.node, None)
    return found


def test_a_blank_lab_becomes_three_servers_and_nine_agents(world: Worlds) -> None:
    here = k3s_world(world, spec(bootstrap=True), nodes=12, drift=NOT_THERE)
    converged(here)
    shared = site(here)
    assert (shared.begun, sorted(shared.members)) == (1, list(SERVERS))
    assert shared.members[0] == "n0"
    assert shared.issued == 9  # one token for each agent, and servers use none
    assert shared.fewest >= 0
    assert overlapping(here.events, dict.fromkeys(SERVERS)) == []
    assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {OLD}  # type: ignore[union-attr]
    assert not [node.node for node in here.plan().nodes.values() if node.actions]


def test_no_second_cluster_is_begun_without_consent_or_beside_a_datastore(world: Worlds) -> None:
    """A silent API server proves nothing: here it is silent since no server was ever started."""
    here = k3s_world(world, spec(), nodes=4, drift=NOT_THERE)
    here.apply()
    assert site(here).begun == 0
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    here.machine("n2").disk().files[DATASTORE] = "of a cluster that nobody can reach"
    here.apply()
    assert site(here).begun == 0


def test_files_that_drifted_come_back_and_agents_are_not_drained_for_it(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    assert not [node.node for node in here.plan().nodes.values() if node.actions]
    for name in ("n1", "n3"):
        here.machine(name).disk().files[CONFIG] += "debug: true\n"
    converged(here)
    assert here.did("n3") == ["configure_k3s"]
    assert here.did("n1")[:3] == ["mark", "drain", "configure_k3s"]
    assert all("debug" not in here.machine(name).disk().files[CONFIG] for name in ("n1", "n3"))


def test_a_server_that_is_configured_waits_for_its_operators_again(world: Worlds) -> None:
    assert BASE.membership is not None
    waits = replace(BASE, digest="waits", membership=replace(BASE.membership, allocatable={GPU_RESOURCE: 4}))
    here = k3s_world(world, spec(), nodes=4, profile=waits)
    assert here.lab.cluster is not None
    here.lab.cluster.helm.gpu_operator = True
    for name in here.fleet.nodes:
        here.lab.cluster.node(name).allocatable = {GPU_RESOURCE: 4}
    here.adopt()
    assert not [node.node for node in here.plan().nodes.values() if node.actions]
    for name in ("n1", "n3"):
        here.machine(name).disk().files[CONFIG] += "debug: true\n"
    planned = {name: [one.name for one in node.actions] for name, node in here.plan().nodes.items()}
    assert planned["n1"] == ["mark", "drain", "configure_k3s", "await_operators", "admit"]
    assert planned["n3"] == ["configure_k3s"], "an agent serves throughout"


def test_an_upgrade_goes_over_the_servers_first_and_saves_etcd(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=5)
    here.adopt()
    before = here.fleet.nodes["n0"].profile.k3s
    declare(here, spec(NEW))
    assert before is not None
    differs = {(item.path, item.observed) for node in here.plan().nodes.values() for item in node.drift}
    was = {("cluster.k3s.images", before.image_file), ("cluster.k3s.version", OLD)}
    assert differs == was, "images of the release of now are no conflict"
    converged(here)
    ended = [e for e in here.events if isinstance(e, ActionFinished) and e.action.name == "install_k3s"]
    assert sorted(e.node for e in ended[:3]) == list(SERVERS)
    assert not [str(e.outcome) for e in ended if "snapshots" in str(e.outcome)], "agents have none to delete"
    assert overlapping(here.events, dict.fromkeys(SERVERS)) == []
    assert len(site(here).snapshots) == 3
    assert site(here).fewest >= 0
    assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {NEW}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", ["v1.33.1+k3s1", "v1.30.9+k3s1"])
def test_servers_skip_no_minor_and_never_go_back(world: Worlds, version: str) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    declare(here, spec(version))
    here.apply()
    assert all(OLD in here.machine(name).disk().files[BINARY] for name in here.fleet.nodes)
    assert all(here.serves(name) for name in here.fleet.nodes)


FLOWS = DeprecatedApi("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", "1.32")


def test_servers_stay_while_an_api_is_in_use_that_the_next_minor_lacks(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    site(here).asked["n2"] = (FLOWS, DeprecatedApi("", "v1", "componentstatuses", ""))
    declare(here, spec(NEW))
    here.apply(wait_s=0.0)
    assert all(OLD in here.machine(name).disk().files[BINARY] for name in here.fleet.nodes)
    assert all(here.serves(name) for name in here.fleet.nodes), "and nobody is drained for it"
    report = here.apply(wait_s=0.0)
    assert "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas is in use (n2)" in report.results["n0"].detail
    declare(here, spec("v1.31.9+k3s1"))
    converged(here)  # a patch ends no API
    declare(here, spec(NEW, allowDeprecated=[FLOWS.name]))
    converged(here)
    assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {NEW}  # type: ignore[union-attr]


def test_deprecated_apis_in_use_are_in_the_plan_before_any_upgrade(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    before = here.plan().nodes["n2"].fingerprint
    site(here).asked["n2"] = (FLOWS, DeprecatedApi("", "v1", "componentstatuses", ""))
    plan = here.plan()
    assert plan.nodes["n2"].fingerprint == before, "it comes with any client, and goes with a restart of the API server"
    told = [(item.node, item.path) for node in plan.nodes.values() for item in node.drift]
    assert told == [("n2", f"cluster.deprecated.{FLOWS.name}")], "and none that no release takes away"
    assert "Kubernetes 1.32 has it no more" in plan.nodes["n2"].drift[0].detail
    assert [row[0] for row in reported(plan.nodes["n2"].drift)] == [f"cluster.deprecated.{FLOWS.name}"]
    assert not [node.node for node in plan.nodes.values() if node.actions]
    fleet, rule = here.fleet, IgnoreRule("cluster.deprecated.*", "a vendor's operator asks")
    here.fleet = replace(fleet, settings=replace(fleet.settings, ignore=(rule,)))
    (item,) = here.plan().nodes["n2"].drift
    assert (item.kind, item.detail) == (DriftClass.IGNORED, rule.reason)
    here.fleet = fleet
    declare(here, spec(allowDeprecated=[FLOWS.name]))
    assert not here.plan().nodes["n2"].drift


def test_servers_stay_while_one_does_not_tell_what_it_was_asked_for(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    site(here).mute.add("n1")
    declare(here, spec(NEW))
    report = here.apply(wait_s=0.0)
    assert "server n1 did not say" in report.results["n0"].detail
    assert all(OLD in here.machine(name).disk().files[BINARY] for name in here.fleet.nodes)
    site(here).mute.clear()
    converged(here)


@pytest.mark.parametrize("allowed", [False, True])
def test_the_only_server_is_upgraded_where_the_spec_allows_that_the_api_is_away(world: Worlds, allowed: bool) -> None:
    here = k3s_world(world, spec(allowDowntime=allowed), nodes=3, servers=("n0",))
    here.adopt()
    declare(here, spec(NEW, allowDowntime=allowed), servers=("n0",))
    report = here.apply(wait_s=0.0)
    if not allowed:
        assert "control-plane" in report.results["n0"].detail
        assert all(OLD in here.machine(name).disk().files[BINARY] for name in here.fleet.nodes)
        return
    converged(here)
    assert here.did("n0")[:3] == ["mark", "drain", "install_k3s"]
    assert len(site(here).snapshots) == 1
    assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {NEW}  # type: ignore[union-attr]


def test_the_only_server_gets_no_new_image(world: Worlds) -> None:
    """With its disk goes etcd, and the cluster."""
    here = k3s_world(world, spec(allowDowntime=True), nodes=3, servers=("n0",), drift={"n0": ["old_image"]})
    here.adopt()
    report = here.apply(wait_s=0.0)
    assert "it is the only server" in report.results["n0"].detail, report.results
    assert "reimage" not in " ".join(here.did("n0"))
    assert site(here).members == ["n0"]


def test_a_lost_server_is_replaced_and_its_member_of_etcd_leaves_first(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    lose(here, "n1")
    converged(here)
    assert sorted(site(here).members) == list(SERVERS)
    assert (site(here).begun, site(here).members[-1]) == (1, "n1")


def lose(here: World, name: str) -> None:
    """Take everything of K3s from a machine, as a new disk would."""
    machine = here.machine(name)
    for unit in ("k3s", "k3s-agent"):
        if machine.service_known(unit):
            machine.service_set(unit, active=False)
    remove(machine.disk())


def test_no_server_is_touched_while_another_one_is_away(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {}}})
    here.adopt()
    declare(here, spec(NEW))
    here.apply()
    assert "install_k3s" not in [*here.did("n0"), *here.did("n1")]
    assert site(here).fewest >= 0


def test_certificates_that_end_soon_are_renewed_by_a_restart(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    for name in here.fleet.nodes:
        here.machine(name).disk().files[LEAF] = str(here.clock.seconds() - 330 * 86400)
    converged(here)
    assert all(float(here.machine(n).disk().files[LEAF]) > 0 for n in here.fleet.nodes)
    assert overlapping(here.events, dict.fromkeys(SERVERS)) == []


def test_a_restart_that_a_dead_run_owes_is_made_up_for(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    here.machine("n3").disk().files[RESTART_DUE] = "plan\n"
    converged(here)
    assert here.did("n3") == ["configure_k3s"]
    assert RESTART_DUE not in here.machine("n3").disk().files


def test_a_restart_that_is_owed_is_made_up_for_while_a_new_release_waits(world: Worlds) -> None:
    """A run died between the note of the restart and the program: what is there runs on until its wave comes."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    declare(here, spec(NEW))
    here.machine("n3").disk().files[RESTART_DUE] = "plan\n"
    assert here.act("configure_k3s", "n3") == Done("its files are as declared, and it was restarted")
    assert OLD in here.machine("n3").disk().files[BINARY]


@pytest.mark.parametrize("due", ["a restart", "a file"])
def test_files_that_wait_for_their_wave_are_not_written_for_a_repair(world: Worlds, due: str) -> None:
    """Of agents that have another wave than the first, one owes a restart, and one lost the edge of a file."""
    here = k3s_world(world, spec(), nodes=9)
    here.adopt()
    here.fleet = replace(here.fleet, rollouts={"gpu": RolloutPolicy(("1", "100%"), bake_s=600.0)})
    converged(here)
    before = dict(here.machine("n8").disk().files)
    declare(here, spec(registries={"docker.io": ["https://mirror.example"]}, docker=True))
    [rollout] = [one for one in here.plan().rollouts if one.pool == "gpu"]
    last = rollout.waves[-1].nodes[-1]
    if due == "a restart":
        here.machine(last).disk().files[RESTART_DUE] = "plan\n"
    else:
        here.machine(last).disk().files[UNIT] += "# by hand\n"
    here.apply(wait_s=0.0)
    files = here.machine(last).disk().files
    assert here.did(last) == ["configure_k3s"]
    assert RESTART_DUE not in files
    assert {path: files.get(path) for path in (CONFIG, REGISTRIES, UNIT)} == {
        path: before.get(path) for path in (CONFIG, REGISTRIES, UNIT)
    }


def test_what_was_downloaded_is_used_only_with_the_declared_digest(world: Worlds) -> None:
    wrong = release(OLD) | {"binary": release(OLD)["binary"] | {"sha256": "0" * 64}}
    here = k3s_world(world, spec(release=wrong, bootstrap=True), nodes=3, drift=NOT_THERE)
    report = here.apply()
    assert all(BINARY not in here.machine(name).disk().files for name in here.fleet.nodes)
    assert "it is not used" in report.results["n0"].detail


def test_a_download_that_broke_off_goes_on(world: Worlds) -> None:
    here = k3s_world(world, spec(bootstrap=True), nodes=4, drift=NOT_THERE)
    site(here).breaking = {"n0", "n3"}
    report = here.apply()
    assert {one.state.value for one in report.results.values()} == {"done"}
    assert "install_k3s!transient" in here.did("n3")


def test_the_token_of_an_agent_that_does_not_come_up_is_revoked(world: Worlds) -> None:
    """Its last try ends well within the life of its last token: only a deletion leaves none."""
    here = k3s_world(world, spec(), nodes=4, drift={"n3": ["not_a_member"]})
    here.adopt()
    site(here).passwords["n3"], here.machine("n3").disk().files[PASSWORD] = "of another machine", "its own"
    began = here.clock.seconds()
    here.apply(wait_s=0.0)
    assert site(here).refused
    assert here.clock.seconds() - began > 600
    assert site(here).issued >= 1
    assert not site(here).valid()
    assert here.machine("n3").disk().files[TOKEN]  # what is left on it admits nobody


def test_a_unit_of_the_other_role_is_never_overwritten(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, drift={"n3": ["not_a_member"]})
    here.adopt()
    here.machine("n3").disk().files[f"{UNIT_FILES}/k3s.service"] = "[Unit]\n"
    report = here.apply()
    assert "other_role" in report.results["n3"].detail


def test_both_actions_on_a_node_as_it_is(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, drift={"n3": ["not_a_member"]})
    assert here.act("install_k3s", "n3") == Done(f"{OLD} is in place")
    assert here.act("configure_k3s", "n3") == Done("its files are as declared")
    assert here.act("configure_k3s", "n1") == Done("its files are as declared, and it was restarted")


def test_no_server_restarts_while_another_one_is_not_ready(world: Worlds) -> None:
    """The guard within the action: what the plan was made of may be over."""
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {}}})
    outcome = here.act("configure_k3s", "n1")
    assert isinstance(outcome, Transient)
    assert "server n2 is not Ready" in outcome.detail


def test_no_server_restarts_while_etcd_has_two_members(world: Worlds) -> None:
    """Without one of two there is no quorum, though nobody is away: the third was lost, and taken out."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    lose(here, "n2")
    cluster = here.lab.cluster
    assert cluster is not None
    cluster.remove_node("n2")
    outcome = here.act("configure_k3s", "n1")
    assert isinstance(outcome, Transient)
    assert "etcd has two members" in outcome.detail
    assert site(here).fewest >= 0
    declare(here, spec(NEW))
    converged(here)
    assert sorted(site(here).members) == list(SERVERS)
    assert site(here).fewest >= 0


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (33, "curl: (33) HTTP server doesn't seem to support byte ranges. Cannot resume.", Done),
        (22, "curl: (22) The requested URL returned error: 416", Done),
        (22, "curl: (22) The requested URL returned error: 404", Transient),
        (6, "curl: (6) Could not resolve host: mirror416.example", Transient),
    ],
)
def test_only_a_file_that_is_whole_ends_a_download_that_fails(
    world: Worlds, status: int, said: str, kind: type
) -> None:
    """The file is all there already, as after a cut between the download and its comparison."""
    here = k3s_world(world, spec(), nodes=4, drift={"n3": ["not_a_member"]})
    here.adopt()
    declare(here, spec(NEW))
    wanted = here.fleet.nodes["n3"].profile.k3s
    assert wanted is not None
    assert wanted.images is not None
    for file, path in ((wanted.binary, BINARY), (wanted.images, f"{IMAGES}/{wanted.image_file}")):
        here.machine("n3").write_file(f"{path}.{file.sha256[:16]}.part", file.url)
    site(here).curl_says = (status, said)
    assert isinstance(here.act("install_k3s", "n3"), kind)


def test_the_kubeconfig_of_a_server_is_kept_to_ourselves_and_reaches_the_endpoint(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.machine("n0").disk().files.pop(KUBECONFIG)  # the next server has it, too
    kept = ServerKubeconfig()
    here.run(kept.fetch(here.fabric.servers(), "https://10.0.0.10:6443"))  # type: ignore[attr-defined]
    assert "server: https://10.0.0.10:6443" in kept.path.read_text()
    assert (kept.path.stat().st_mode & 0o777, kept.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert kept.is_for("https://10.0.0.10:6443")
    assert not kept.is_for("https://10.0.0.11:6443")
    here.run(kept.fetch(here.fabric.servers(), "https://10.0.0.11:6443"))  # type: ignore[attr-defined]
    assert "server: https://10.0.0.11:6443" in kept.path.read_text()
    kept.forget()
    assert not kept.path.exists()
    assert kept.is_for("https://10.0.0.12:6443")
    here.run(kept.fetch(here.fabric.servers(), "https://10.0.0.12:6443"))  # type: ignore[attr-defined]
    kept.close()
    assert not kept.path.exists()


def test_a_datastore_that_nobody_but_root_could_see_is_none_that_is_absent(world: Worlds) -> None:
    here = k3s_world(world, spec(bootstrap=True), nodes=3, drift=NOT_THERE)
    servers = here.fabric.servers()  # type: ignore[attr-defined]
    assert here.run(is_unborn(servers, here.clock))

    class NotRoot:
        async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
            if argv[0] == "id":
                return CommandResult(0, "1000\n")
            result: CommandResult = await servers[1].host.run(argv, timeout=timeout, stdin=stdin)
            return result

    assert not here.run(is_unborn([servers[0], K3sServer("n1", NotRoot()), servers[2]], here.clock))
    assert not here.run(is_unborn([], here.clock))


def test_the_tokens_of_others_are_left_alone(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, drift={"n3": ["not_a_member"]})
    here.adopt()
    theirs = {site(here).create_token(text, 86400.0) for text in ("", "reconciler: n2", "for a laptop")}
    here.apply()
    assert here.serves("n3")
    assert {f"K10{site(here).authority}::{name}.{one.secret}" for name, one in site(here).valid().items()} == theirs
