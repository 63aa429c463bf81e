"""Where a K3s of the lab keeps its state, and when it begins another cluster, as K3s' documents and sources have it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.lab.hardware.commands import run
from reconciler.lab.hardware.host_side import HostSide
from reconciler.model.k3s import CONFIG, DATASTORE, JOIN, PASSWORD, SECRETS, SERVER_TOKEN, TOKEN
from reconciler.model.k3s_datastore import SQLITE
from tests.converge.k3s_world import k3s_world, site, spec
from tests.converge.test_k3s import lose
from tests.converge.test_k3s_external import SERVER, external
from tests.converge.world import World

Worlds = Callable[..., World]
ONE = ("n0",)
ENDPOINT = f"datastore-endpoint: postgres://k3s:word@{SERVER}\n"


def restart(machine: HostSide) -> tuple[int, str]:
    ran = run(machine, ("systemctl", "restart", "k3s"))  # type: ignore[arg-type]  # it is one
    return ran.result.exit_status, ran.result.stderr


def test_etcd_on_the_disk_wins_over_an_endpoint(world: Worlds) -> None:
    here = k3s_world(world, spec(), servers=ONE, nodes=2)
    machine = here.machine("n0")
    machine.disk().files[CONFIG] += ENDPOINT
    assert restart(machine) == (0, "")
    assert (site(here).begun, site(here).databases) == (1, {})


def test_without_it_an_empty_database_is_another_cluster(world: Worlds) -> None:
    here = k3s_world(world, spec(), servers=ONE, nodes=2)
    machine = here.machine("n0")
    machine.disk().files[SECRETS] = ENDPOINT
    machine.disk().files[TOKEN] = "a token\n"
    machine.disk().files[JOIN] = f"token-file: {TOKEN}\n"
    del machine.disk().files[DATASTORE]
    assert restart(machine) == (0, "")
    assert site(here).begun == 2


@pytest.mark.parametrize("text", ["", "K3S_TOKEN=x\n"])
def test_without_any_option_it_is_sqlite_which_moves_to_etcd_once(world: Worlds, text: str) -> None:
    here = k3s_world(world, spec(), servers=ONE, nodes=2)
    machine, shared = here.machine("n0"), site(here)
    files = machine.disk().files
    del files[DATASTORE]
    files["/etc/default/k3s"] = text
    assert restart(machine) == (0, "")
    assert (shared.begun, SQLITE in files, SERVER_TOKEN in files) == (2, True, True)
    assert restart(machine) == (0, "")
    assert shared.begun == 2, "it goes on with what is on its disk"
    files[JOIN] = "cluster-init: true\n"
    assert restart(machine) == (0, "")
    assert (shared.begun, SQLITE in files, DATASTORE in files) == (2, False, True)


def test_an_endpoint_of_the_environment_counts(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=ONE, nodes=2)
    machine = here.machine("n0")
    del machine.disk().files[SECRETS]
    machine.disk().files["/etc/default/k3s"] = f"K3S_DATASTORE_ENDPOINT='postgres://k3s:word@{SERVER}'\n"
    assert restart(machine) == (0, "")
    assert (site(here).begun, SQLITE in machine.disk().files) == (1, False)


def test_a_database_refuses_another_token_and_the_journal_says_so(world: Worlds) -> None:
    here = k3s_world(world, external(), servers=ONE, nodes=2)
    machine = here.machine("n0")
    machine.disk().files[TOKEN] = "another\n"
    status, said = restart(machine)
    assert status == 1
    assert "control process exited with error code" in said
    journal = run(machine, ("journalctl", "-u", "k3s", "-o", "cat")).result.stdout
    assert "bootstrap data already found and encrypted with different token" in journal
    assert "another" not in journal


def test_a_server_answers_while_its_own_node_is_refused(world: Worlds) -> None:
    """The database has the password of a disk that is gone."""
    here = k3s_world(world, external(), servers=ONE, nodes=2)
    here.adopt()
    machine, shared = here.machine("n0"), site(here)
    machine.disk().files[PASSWORD] = "of a new disk\n"
    assert restart(machine) == (0, "")
    here.clock.elapsed += 600.0
    assert shared.serves("n0")
    assert not machine.kubelet_running
    shared.passwords.pop("n0")
    assert machine.kubelet_running
    lose(here, "n0")
    assert not shared.serves("n0")
