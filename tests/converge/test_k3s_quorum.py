"""No server of K3s is restarted that etcd can't do without, whichever action would do so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.lab.hardware.host_side import HostSide
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.model.k3s import IMAGES, RESTART_DUE
from reconciler.model.outcome import Done, Transient
from tests.converge.k3s_world import NEW, OLD, declare, download, k3s_world, release, site, spec
from tests.converge.world import World

Worlds = Callable[..., World]


def off(here: World, name: str) -> None:
    """Switch a machine off, and let it be noticed."""
    here.machine(name).poweroff()
    here.clock.elapsed += 600.0


def restarts(here: World, name: str) -> list[float]:
    system = here.machine(name).state.os
    assert system is not None
    return [system.service_since.get("k3s", -1.0)]


def test_a_server_whose_kubelet_is_not_ready_is_not_restarted_while_etcd_needs_it(world: Worlds) -> None:
    """Its etcd is well, and one of the two that are left: a restart would take the API from all."""
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {}}})
    here.adopt()
    off(here, "n1")
    since = restarts(here, "n2")
    outcome = here.act("join", "n2")
    assert isinstance(outcome, Transient)
    assert "server n1 is not Ready: with n2 away as well, etcd may lose its quorum" in outcome.detail
    assert restarts(here, "n2") == since
    assert site(here).fewest >= 0


def test_so_it_is_in_a_whole_run(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {}}})
    here.adopt()
    off(here, "n1")
    here.act("mark", "n2")
    here.act("drain", "n2")
    here.ledger.hold("n1", "its power supply is changed", "alice", None, here.clock.now())
    report = here.apply(wait_s=1800.0)
    assert any(name.startswith("join") for name in here.did("n2")), report.results["n2"]
    assert site(here).fewest >= 0


def test_it_is_restarted_while_etcd_has_one_to_spare(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4, faults={"n2": {"kubelet_not_ready": {"times": 1}}})
    here.adopt()
    since = restarts(here, "n2")
    here.act("join", "n2")
    assert restarts(here, "n2") != since
    assert site(here).fewest >= 0


def test_a_server_that_does_not_run_is_started_though_another_one_is_away(world: Worlds) -> None:
    """It is not what etcd lives on, but what it lacks."""
    here = k3s_world(world, spec(), nodes=6, servers=("n0", "n1", "n2", "n3", "n4"))
    here.adopt()
    here.machine("n2").service_set("k3s", active=False)
    off(here, "n1")
    assert here.act("join", "n2") == Done("a Ready member")


def test_images_alone_restart_no_server_while_another_one_is_away(world: Worlds) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    off(here, "n1")
    images = download(f"https://files.example/{OLD}/more-images.tar.zst")
    declare(here, spec(release={**release(OLD), "images": images}))
    outcome = here.act("install_k3s", "n2")
    assert isinstance(outcome, Transient)
    assert "server n1 is not Ready" in outcome.detail
    assert site(here).fewest >= 0
    assert RESTART_DUE not in here.machine("n2").disk().files


def test_a_server_that_goes_away_during_a_download_keeps_another_one_from_its_restart(
    world: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    declare(here, spec(NEW))
    save = K3sSite.save

    def saved(self: K3sSite, machine: HostSide, name: str) -> str:
        off(here, "n1")
        return save(self, machine, name)

    monkeypatch.setattr(K3sSite, "save", saved)
    outcome = here.act("install_k3s", "n2")
    assert isinstance(outcome, Transient)
    assert "server n1 is not Ready" in outcome.detail
    assert site(here).fewest >= 0
    assert RESTART_DUE in here.machine("n2").disk().files, "the next run owes it"


def test_images_of_older_releases_go_and_those_of_others_stay(world: Worlds) -> None:
    """K3s loads every archive in the folder at each start."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    files = here.machine("n3").disk().files
    before = {path for path in files if path.startswith(IMAGES)}
    others = {f"{IMAGES}/k3s-airgap-images-amd64.tar.zst", f"{IMAGES}/ours.tar"}
    part = f"{IMAGES}/{'0' * 16}.tar.zst.{'1' * 16}.part"
    files |= dict.fromkeys((*others, part), "")
    declare(here, spec(NEW))
    here.apply(wait_s=7200.0)
    wanted = here.fleet.nodes["n3"].profile.k3s
    assert wanted is not None
    assert len(before) == 1
    for name in here.fleet.nodes:
        left = {path for path in here.machine(name).disk().files if path.startswith(IMAGES)} - others
        assert left == {f"{IMAGES}/{wanted.image_file}"}, name
    assert others <= set(here.machine("n3").disk().files)
