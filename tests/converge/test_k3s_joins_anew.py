"""A server that joins a cluster anew is bound by the release of the others, as their own upgrade would be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.lab.hardware.commands import run
from reconciler.model.k3s import JOIN, SERVER_TOKEN, TOKEN
from reconciler.model.outcome import Declined, Done, Permanent
from tests.converge.k3s_world import BASE, NEW, OLD, declare, k3s_world, site, spec
from tests.converge.test_backup import each
from tests.converge.test_in_place import SLOTS
from tests.converge.test_k3s import converged
from tests.converge.test_k3s_external import external, saved
from tests.converge.world import SIGNATURES, World

Worlds = Callable[..., World]
SERVERS = ("n0", "n1", "n2")
FAR = "v1.33.0+k3s1"


def kubelets(here: World) -> set[str]:
    assert here.lab.cluster is not None
    return {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes}


def stop(here: World, name: str) -> None:
    ran = run(here.machine(name), ("systemctl", "stop", "k3s"))
    assert ran.result.exit_status == 0


def test_no_server_brings_a_release_to_a_database_that_nobody_has_saved(world: Worlds) -> None:
    """The others wait for `savedBefore`, and so does one that is new."""
    here = k3s_world(world, external(), servers=SERVERS, nodes=4, drift={"n2": ["not_a_member"]})
    here.adopt()
    declare(here, external(NEW))
    report = here.apply(wait_s=0.0)
    assert f"savedBefore: {NEW}" in report.results["n2"].detail, report.results["n2"]
    assert sorted(site(here).members) == ["n0", "n1"]
    outcome = here.act("install_k3s", "n2")  # what the plan was made of may be over
    assert isinstance(outcome, Declined)
    assert outcome.code == "not_saved"
    declare(here, saved(NEW))
    converged(here)
    assert kubelets(here) == {NEW}
    assert site(here).begun == 1


def test_it_joins_with_their_release_without_a_word(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=SERVERS, nodes=4, drift={"n2": ["not_a_member"]})
    here.adopt()
    converged(here)
    assert kubelets(here) == {OLD}


def test_a_minor_between_is_not_left_out_by_one_that_is_new(world: Worlds) -> None:
    """Once it is declared, the new one joins with it: of two members of etcd none could be upgraded first."""
    here = k3s_world(world, spec(), nodes=4, drift={"n2": ["not_a_member"]})
    here.adopt()
    declare(here, spec(FAR))
    report = here.apply(wait_s=0.0)
    why = f"it joins anew, and server n0 runs {OLD}, and {FAR} is 2 minors newer"
    assert why in report.results["n2"].detail, report.results["n2"]
    assert sorted(site(here).members) == ["n0", "n1"]
    declare(here, spec(NEW))
    converged(here)
    assert kubelets(here) == {NEW}
    assert site(here).fewest >= 0


def test_a_server_whose_datastore_outlives_a_new_image_goes_on_as_the_member_that_it_was(world: Worlds) -> None:
    """`preserve: [/state]` keeps /var; its /etc is new, and with it the password of its node."""
    slots = replace(SLOTS, version="2026.12.0", sha256="5" * 64, in_place=False)
    profile = replace(BASE, image=SLOTS, digest="slots")
    signed = {**SIGNATURES, (slots.name, slots.version): True}
    here = k3s_world(world, spec(), nodes=4, profile=profile, signatures=signed)
    here.adopt()
    each(here, lambda node: replace(node, profile=replace(node.profile, image=slots, digest="new")), "n1")
    converged(here)
    files = here.machine("n1").disk().files
    assert here.machine("n1").disk().version == slots.version
    assert (site(here).begun, sorted(site(here).members)) == (1, list(SERVERS))
    assert ("cluster-init" in files[JOIN], files[TOKEN]) == (False, files[SERVER_TOKEN])


def test_a_server_that_was_only_stopped_keeps_its_password(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the datastore has none, whoever has the token could register under its name."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    stop(here, "n1")
    monkeypatch.setattr("reconciler.converge.actions.k3s_join._forget_password", None)
    assert here.act("join", "n1") == Done("a Ready member")


def test_a_server_whose_own_token_is_damaged_gets_no_configuration_with_it(world: Worlds) -> None:
    """What is written once is there, and would be looked at no more."""
    here = k3s_world(world, spec(), nodes=4)
    here.adopt()
    stop(here, "n1")
    files = here.machine("n1").disk().files
    del files[JOIN]
    whole, files[SERVER_TOKEN] = files[SERVER_TOKEN], "\n"
    outcome = here.act("join", "n1")
    assert isinstance(outcome, Permanent), outcome
    assert outcome.detail == f"{SERVER_TOKEN} of n1 holds no token in the secure format"
    assert JOIN not in files
    files[SERVER_TOKEN] = whole
    converged(here)
    assert files[TOKEN] == whole
