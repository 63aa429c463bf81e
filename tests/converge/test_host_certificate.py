"""A node's host certificate is renewed in time, and after it: nothing else is done to a node for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import asyncssh
import pytest

from reconciler.drivers.installer.signer import normal_key
from reconciler.lab.inprocess.host import HOST_KEY
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.model.access import InstallerPolicy
from reconciler.model.host_certificate import HostCertificate, read_host_certificate
from reconciler.model.install import dump_contract
from reconciler.model.install_progress import InstallAttempt
from reconciler.model.observed import Silent
from reconciler.model.outcome import Declined, Done, Permanent, Transient
from reconciler.model.vocab import UnknownReason
from tests.converge.world import World
from tests.drivers.installer.conftest import DOCUMENT

INSTALLER = InstallerPolicy("127.0.0.1:0", None, "http://x/i.iso", host_ca="host-ca")
RENEW = "renew_host_certificate"


def certified_world(where: Path, *, left: timedelta, state: bool = False, nodes: int = 1) -> World:
    """A world whose node n0 was installed with a certificate of 90 days, of which `left` remains."""
    world = World(where, nodes=nodes, settings={"installer": INSTALLER})
    world.adopt()
    key = normal_key(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode())
    before = world.clock.now() + left
    line = certificate(key, before)
    files = world.machine("n0").disk().files
    for folder in ("/state", "") if state else ("",):
        files |= {f"{folder}{HOST_KEY}.pub": f"{key} n0\n", f"{folder}{HOST_KEY}-cert.pub": f"{line}\n"}
    document = DOCUMENT.model_copy(update={"node": "n0", "hostname": "n0"})
    began = before - timedelta(days=90)
    attempt = InstallAttempt("d", "n0", dump_contract(document), "", began, host_key=key, certificate=line)
    world.ledger.save_install(attempt, began)
    return world


def certificate(key: str, before: datetime) -> str:
    end = before.timestamp()
    signed = asyncssh.generate_private_key("ssh-ed25519").generate_host_certificate(
        asyncssh.import_public_key(key), "n0", principals=["n0"], valid_after=end - 90 * 86400, valid_before=end
    )
    return signed.export_certificate("openssh").decode().strip()


def on_disk(world: World, folder: str = "") -> HostCertificate:
    files = world.machine("n0").disk().files
    key = " ".join(files[f"{folder}{HOST_KEY}.pub"].split()[:2])
    return read_host_certificate(key, files[f"{folder}{HOST_KEY}-cert.pub"])


def planned(world: World) -> list[str]:
    return [action.id for action in world.plan().nodes["n0"].actions]


def test_a_certificate_is_renewed_in_the_last_third_of_its_time_and_never_sooner(tmp_path: Path) -> None:
    for left, wanted in ((31, []), (14, [RENEW])):
        where = tmp_path / str(left)
        where.mkdir()
        world = certified_world(where, left=timedelta(days=left))
        assert planned(world) == wanted, left


def test_a_fleet_does_not_renew_at_once() -> None:
    now = read_host_certificate("k", certificate(new_key(), EPOCH)).valid_before
    whole = HostCertificate("k", now - timedelta(days=90), now)
    times = sorted(whole.renewal_at(f"gpu-{at:03}") for at in range(100))
    assert now - timedelta(days=30) <= times[0] < now - timedelta(days=28)
    assert now - timedelta(days=17) < times[-1] <= now - timedelta(days=15)
    assert all(later - sooner < timedelta(days=2) for sooner, later in pairwise(times))


@pytest.mark.parametrize("left", [timedelta(days=3), timedelta(days=-3)], ids=["due", "expired"])
def test_a_node_in_service_is_renewed_and_stays_in_service(tmp_path: Path, left: timedelta) -> None:
    world = certified_world(tmp_path, left=left, state=True)
    boot = world.machine("n0").system().boot_id
    world.apply()
    assert world.did("n0") == [RENEW]
    assert world.serves("n0")
    assert world.machine("n0").system().boot_id == boot
    good = world.clock.now() + timedelta(days=80)
    assert on_disk(world).valid_before > good
    assert on_disk(world, "/state") == on_disk(world), "what is in /etc alone is gone after a reboot"
    known = world.ledger.node("n0").host_certificate
    assert known == on_disk(world)
    assert planned(world) == []


def test_nothing_is_done_over_an_expired_certificate_but_its_renewal(tmp_path: Path) -> None:
    world = certified_world(tmp_path, left=timedelta(days=-3))
    seen = world.observe().nodes["n0"].host
    assert isinstance(seen, Silent)
    assert seen.reason is UnknownReason.EXPIRED
    files = world.machine("n0").disk().files
    before = dict(files)
    outcome = world.act("configure_host")
    assert not isinstance(outcome, Done) or not outcome.changed
    assert files == before


def test_an_expired_certificate_over_another_key_is_left_alone(tmp_path: Path) -> None:
    """Whoever answers has not the key that the ledger recorded. The node serves on, and nobody drains or wipes it."""
    world = certified_world(tmp_path, left=timedelta(days=-3))
    files = world.machine("n0").disk().files
    other = new_key()
    files |= {f"{HOST_KEY}.pub": f"{other}\n", f"{HOST_KEY}-cert.pub": certificate(other, EPOCH)}
    before = dict(files)
    for _ in range(4):
        world.apply()
        world.clock.elapsed += 6 * 3600.0
    assert set(world.did("n0")) <= {f"{RENEW}!permanent", f"{RENEW}!transient"}
    assert files == before
    assert world.serves("n0")


def test_a_key_that_is_not_recorded_is_not_signed(tmp_path: Path) -> None:
    world = certified_world(tmp_path, left=timedelta(days=3))
    world.machine("n0").disk().files[f"{HOST_KEY}.pub"] = f"{new_key()} n0\n"
    before = on_disk_line(world)
    outcome = world.act(RENEW)
    assert isinstance(outcome, Permanent)
    assert "not the key that the ledger recorded" in outcome.detail
    assert on_disk_line(world) == before


def test_a_revoked_key_is_not_signed(tmp_path: Path) -> None:
    world = certified_world(tmp_path, left=timedelta(days=-3))
    attempt = world.ledger.certified_install("n0")
    assert attempt is not None
    theft = replace(attempt, digest="e", begun_at=attempt.begun_at - timedelta(days=1), certificate="")
    world.ledger.save_install(replace(theft, revoked=(attempt.host_key,)), world.clock.now())
    assert isinstance(world.act(RENEW), Declined)


def test_a_run_that_died_after_the_signature_puts_the_same_certificate_in_place(tmp_path: Path) -> None:
    world = certified_world(tmp_path, left=timedelta(days=-3))
    attempt = world.ledger.certified_install("n0")
    assert attempt is not None
    signed = certificate(attempt.host_key, world.clock.now() + timedelta(days=90))
    world.ledger.save_install(replace(attempt, certificate=signed), world.clock.now())
    world.apply()
    assert world.did("n0") == [RENEW]
    assert on_disk_line(world) == signed


def test_an_ssh_server_that_is_away_is_asked_again(tmp_path: Path) -> None:
    world = certified_world(tmp_path, left=timedelta(days=3))
    world.machine("n0").inject("ssh_refused")
    assert isinstance(world.act(RENEW), Transient)


def on_disk_line(world: World) -> str:
    return world.machine("n0").disk().files[f"{HOST_KEY}-cert.pub"].strip()


def new_key() -> str:
    return normal_key(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode())
