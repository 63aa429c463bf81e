"""The init on real disks (loop devices), with real tools and a real server: what is on the disk afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.installer import documents
from reconciler.installer.identity import write_facts
from reconciler.model.install import InstallPhase, Link, Network, RootDisk, dump_contract
from reconciler.model.vocab import LinkKind
from tests.installer.disks import MIB, run
from tests.installer.site import LAYOUT, Site

pytestmark = pytest.mark.tool
PARTITIONS = ["esp", "root-a", "verity-a", "root-b", "verity-b", "state", "data"]


@pytest.mark.parametrize("sector", [512, 4096])
def test_an_empty_disk_gets_the_layout_and_the_image(make_site: Callable[..., Site], sector: int) -> None:
    site = make_site(sector=sector, size=512 * MIB)
    document = site.document(layout=LAYOUT.model_copy(update={"esp": 300 * MIB}))  # FAT32 on sectors of 4 KiB
    assert site.install(document), site.server.statuses[-1]
    assert site.server.phases() == [InstallPhase(phase) for phase in ("started", "writing", "written", "installed")]
    found = site.table()
    assert found is not None
    assert [part.name for part in found.partitions] == PARTITIONS
    assert site.holds("a", "a")
    assert site.menu() == ["gpu-base_1.97+3-0.efi"]
    with site.esp() as boot:
        assert boot.read("EFI/BOOT/BOOTX64.EFI") == b"MZ systemd-boot"
        assert boot.read("loader/loader.conf") == b"timeout 0\n"
    assert site.record() == {
        "image": "gpu-base", "version": "1.97", "sha256": site.images["a"].sha256, "root_disk": "S5XYNG0R",
        "nonce": document.nonce, "slot": "a",
    }  # fmt: skip
    run("sfdisk", "--verify", str(site.disk))


def test_the_system_knows_who_it_is(site: Site) -> None:
    links = (
        Link(name="eth0", mac="02:00:00:00:00:01"),
        Link(name="bond0", kind=LinkKind.BOND, members=("eth0",), mode="802.3ad", mtu=9000),
        Link(
            name="vlan7", kind=LinkKind.VLAN, parent="bond0", vlan=7, addresses=("10.7.0.1/24",), gateway="10.7.0.254"
        ),
    )
    assert site.install(site.document(network=Network(links=links, dns=("10.0.0.53",))))
    with site.files("state") as state:
        etc = state / "etc"
        assert (etc / "hostname").read_text() == "gpu-001.example.com\n"
        key = etc / "ssh/ssh_host_ed25519_key"
        assert key.stat().st_mode & 0o777 == 0o600
        assert [f"{key.with_suffix('.pub').read_text()}"] == site.server.host_keys
        assert "gpu-001" in run("ssh-keygen", "-L", "-f", f"{key}-cert.pub")
        assert (etc / "ssh/reconciler_user_ca.pub").read_text() == "ssh-ed25519 AAAA user-ca\n"
        assert "TrustedUserCAKeys" in (etc / "ssh/sshd_config.d/10-reconciler.conf").read_text()
        assert (etc / "resolv.conf").read_text().splitlines()[1:] == ["nameserver 10.0.0.53"]
        networks = {path.name: path.read_text() for path in (etc / "systemd/network").iterdir()}
    assert networks == {
        "10-reconciler-eth0.link": "[Match]\nPermanentMACAddress=02:00:00:00:00:01\n\n[Link]\nName=eth0\n\n",
        "10-reconciler-eth0.network": "[Match]\nName=eth0\n\n[Network]\nBond=bond0\n\n",
        "10-reconciler-bond0.netdev": "[NetDev]\nName=bond0\nKind=bond\nMTUBytes=9000\n\n"
        "[Bond]\nMode=802.3ad\nMIIMonitorSec=100ms\n\n",
        "10-reconciler-bond0.network": "[Match]\nName=bond0\n\n[Link]\nMTUBytes=9000\n\n"
        "[Network]\nVLAN=vlan7\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n\n",
        "10-reconciler-vlan7.netdev": "[NetDev]\nName=vlan7\nKind=vlan\n\n[VLAN]\nId=7\n\n",
        "10-reconciler-vlan7.network": "[Match]\nName=vlan7\n\n[Network]\nAddress=10.7.0.1/24\nGateway=10.7.0.254\n"
        "DNS=10.0.0.53\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n\n",
    }


def test_name_servers_that_are_declared_no_more_are_gone_and_those_of_others_stay(site: Site, tmp_path: Path) -> None:
    def write(*servers: str) -> str:
        text = dump_contract(site.document(network=Network(links=(), dns=servers))).encode()
        write_facts(tmp_path, documents.load(documents.Document, text), "ssh-ed25519-cert-v01@openssh.com A", None)
        path = tmp_path / "resolv.conf"
        return path.read_text() if path.exists() else ""

    assert write("10.0.0.53", "2001:db8::53").endswith("nameserver 10.0.0.53\nnameserver 2001:db8::53\n")
    assert write() == ""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\n")
    assert write() == "nameserver 127.0.0.53\n", "the image's own"


def test_a_nonce_that_is_done_is_recognised(site: Site) -> None:
    document = site.document()
    assert site.install(document)
    before = site.whole()
    assert site.install(document)
    assert site.whole() == before
    assert site.server.phases() == [InstallPhase.STARTED, InstallPhase.INSTALLED]
    assert site.server.requests["/images/image.raw.zst"] == 1


def test_what_is_preserved_survives_from_a_to_b_and_back(site: Site) -> None:
    """The partition's file system is the same one, and so is the host key on `state`."""
    assert site.install(site.document("a"))
    with site.files("data") as data:
        (data / "canary").write_text("sings")
    identifiers = [filesystem(site, name) for name in ("data", "state")]
    for image, slot in (("b", "b"), ("a", "a"), ("b", "b")):
        document = site.document(image, preserve=("state", "data"))
        assert site.install(document, image), site.reason()
        assert site.holds(image, slot)
        assert site.record()["nonce"] == document.nonce
        with site.files("data") as data:
            assert (data / "canary").read_text() == "sings"
        assert [filesystem(site, name) for name in ("data", "state")] == identifiers
    assert site.holds("a", "a"), "the slot that is not written keeps its bytes and ids"
    assert len(set(site.server.host_keys)) == 1
    assert len(site.server.host_keys) == 4


def test_what_is_not_preserved_is_made_anew(site: Site) -> None:
    assert site.install(site.document("a"))
    identifiers = [filesystem(site, name) for name in ("data", "state")]
    assert site.install(site.document("b", preserve=("data",)), "b")
    assert [filesystem(site, name) == old for name, old in zip(("data", "state"), identifiers, strict=True)] == [
        True,
        False,
    ]
    with site.files("state") as state:
        told = {slot: json.loads((state / f"etc/reconciler/slot-{slot}.json").read_text()) for slot in "ab"}
    assert {slot: (found["version"], found["root"]) for slot, found in told.items()} == {
        "a": ("1.97", site.images["a"].root_uuid),
        "b": ("1.98", site.images["b"].root_uuid),
    }, "the boot loader may fall back to a"


def filesystem(site: Site, name: str) -> str:
    with site.device_of(name) as device:
        return run("blkid", "-p", "-s", "UUID", "-o", "value", str(device))


def test_the_menu_prefers_what_was_installed_last(site: Site) -> None:
    """systemd-boot takes the newest version that has tries left, so an older one takes a newer one's tries."""
    assert site.install(site.document("a"))
    assert site.install(site.document("b", preserve=("state",)), "b")
    assert site.menu() == ["gpu-base_1.97+3-0.efi", "gpu-base_1.98+3-0.efi"]
    assert site.install(site.document("a", preserve=("state",)), "a")
    assert site.menu() == ["gpu-base_1.97+3-0.efi", "gpu-base_1.98+0-0.efi"]


def test_an_image_that_did_not_come_up_is_the_one_that_is_overwritten(site: Site) -> None:
    """Boot counting went back from B to A, and the record on `state` still says B."""
    assert site.install(site.document("a"))
    assert site.install(site.document("b", preserve=("state",)), "b")
    with site.esp() as boot:
        boot.write("EFI/Linux/gpu-base_1.98+0-3.efi", boot.read("EFI/Linux/gpu-base_1.98+3-0.efi"))
        boot.remove("EFI/Linux/gpu-base_1.98+3-0.efi")
    assert site.install(site.document("b", preserve=("state",)), "b")
    assert site.record()["slot"] == "b"
    assert site.holds("a", "a")
    assert site.menu() == ["gpu-base_1.97+3-0.efi", "gpu-base_1.98+3-0.efi"]


def test_the_same_image_again_takes_the_other_slot_and_one_entry(site: Site) -> None:
    assert site.install(site.document("a"))
    assert site.install(site.document("a", preserve=("state",)))
    assert site.holds("a", "b")
    assert site.entry("root-a").uuid != site.images["a"].root_uuid, "two partitions with one id: either could be booted"
    assert site.menu() == ["gpu-base_1.97+3-0.efi"]


def test_a_whole_image_keeps_its_own_table(site: Site) -> None:
    document = site.document("plain", layout=None, root_disk=RootDisk(serial="s5xyng0r"))
    assert site.install(document, "plain"), site.reason()
    found = site.table()
    assert found is not None
    assert [part.name for part in found.partitions] == ["plain-esp", "plain-root"]
    assert found.partitions[1].uuid == site.images["plain"].root_uuid
    with site.files("plain-root") as root:
        assert json.loads((root / "etc/reconciler/image.json").read_text())["nonce"] == document.nonce
        assert (root / "etc/os-release").read_text() == "IMAGE_ID=plain\n"
    run("sfdisk", "--verify", str(site.disk))
    before = site.whole()
    assert site.install(document, "plain")
    assert site.whole() == before
    assert site.install(site.document("plain", layout=None), "plain")


def test_a_host_key_of_the_image_is_no_machines(site: Site) -> None:
    """It is in the image, so everybody has it. Only a key on a `state` that is preserved is the machine's own."""
    assert site.install(site.document("plain", layout=None), "plain"), site.reason()
    (line,) = site.server.host_keys
    with site.files("plain-root") as root:
        key = root / "etc/ssh/ssh_host_ed25519_key"
        assert run("ssh-keygen", "-y", "-f", str(key)).split()[1] == line.split()[1]


def test_a_preserved_host_key_that_is_damaged_is_made_anew(site: Site) -> None:
    assert site.install(site.document("a"))
    with site.files("state") as state:
        (state / "etc/ssh/ssh_host_ed25519_key").write_text("half of a k")
    assert site.install(site.document("b", preserve=("state",)), "b"), site.reason()
    assert len(set(site.server.host_keys)) == 2


def test_an_old_table_is_gone_with_its_backup(site: Site) -> None:
    run("sfdisk", "--quiet", str(site.disk), stdin='label: gpt\nstart=2048,size=8192,name="old"\n')
    assert site.install(site.document())
    with site.disk.open("r+b") as disk:
        disk.seek(512)
        disk.write(bytes(33 * 512))  # firmware would take the backup now
    found = site.table()
    assert found is not None
    assert [part.name for part in found.partitions] == PARTITIONS
