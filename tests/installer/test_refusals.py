"""What the init refuses: not a byte of any disk is changed, and the server is told why in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.installer.write import Written, read_back
from reconciler.lab.pki import ImageKey, TlsAuthority
from reconciler.model.install import InstallCause, InstallPhase, MachineIdentity, RootDisk
from tests.installer.disks import MIB, loop_disk, run
from tests.installer.server import ContractServer, Troubles
from tests.installer.site import DISK_SERIAL, LAYOUT, SERIAL, UUID, Site

pytestmark = pytest.mark.tool
FOREIGN = 'label: gpt\nstart=2048,size=8192,name="somebody-elses"\n'


def other_image(**changes: Any) -> Callable[[Site], dict[str, Any]]:
    return lambda site: {"image": site.document().image.model_copy(update=changes)}


def foreign_key(site: Site) -> dict[str, Any]:
    image = site.document().image
    signature = ImageKey().sign_image(image.name, image.version, image.sha256)
    return {"image": image.model_copy(update={"signature": signature})}


REFUSED: list[tuple[str, Callable[[Site], dict[str, Any]], str]] = [
    (
        "serial",
        lambda _: {"machine": MachineIdentity(serial="SN-9", uuid=UUID)},
        "the document is for serial number SN-9",
    ),
    ("uuid", lambda _: {"machine": MachineIdentity(serial=SERIAL, uuid="2" * 32)}, "the document is for UUID 2222"),
    ("no identity", lambda _: {"machine": MachineIdentity(serial=None, uuid=None)}, "neither serial number nor UUID"),
    (
        "no disk",
        lambda _: {"root_disk": RootDisk(serial="NOPE")},
        "no disk has serial NOPE; disks here: nvme0n1 (serial S5X",
    ),
    (
        "wwn",
        lambda _: {"root_disk": RootDisk(serial=DISK_SERIAL, wwn="eui.1")},
        "no disk has serial S5XYNG0R and WWN eui.1",
    ),
    ("no rule", lambda _: {"root_disk": RootDisk(serial=None)}, "the document names no root disk"),
    ("not signed", other_image(signature=None), "image gpu-base 1.97 is not signed"),
    ("other key", foreign_key, "does not verify with the key release"),
    ("unknown key", other_image(key="elses"), "signed with the key elses, which this installer does not have"),
    ("key elsewhere", other_image(key="../../trust/keys/release"), "which this installer does not have"),
    ("other version", other_image(version="2.0"), "does not verify with the key release"),
    ("other digest", other_image(sha256="0" * 64), "does not verify with the key release"),
    ("no digest", other_image(sha256="x"), "its digest is no sha256"),
    (
        "big layout",
        lambda _: {"layout": LAYOUT.model_copy(update={"root": 1 << 40})},
        "more than nvme0n1 (serial S5XYNG0R",
    ),
    (
        "small slot",
        lambda _: {"layout": LAYOUT.model_copy(update={"root": MIB})},
        "the image's root has 12582912 bytes",
    ),
    ("verity, no layout", lambda _: {"layout": None}, "its root is read-only|root is read-only"),
    ("preserve, no layout", lambda _: {"layout": None, "preserve": ("data",)}, "data can't be kept without a layout"),
    ("preserve a root", lambda _: {"preserve": ("root-a",)}, "root-a can't be kept, only state and data can"),
]


@pytest.mark.parametrize(("changes", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_document_is_refused_before_a_disk_is_touched(
    site: Site, changes: Callable[[Site], dict[str, Any]], reason: str
) -> None:
    run("sfdisk", "--quiet", str(site.disk), stdin=FOREIGN)
    before = site.whole()
    assert not site.install(site.document(**changes(site)))
    assert any(part in site.reason() for part in reason.split("|")), site.reason()
    assert site.whole() == before
    assert site.server.phases() == [InstallPhase.STARTED, InstallPhase.FAILED]
    assert site.server.statuses[-1].cause not in (None, InstallCause.FETCH, InstallCause.DISK), "it is not tried again"


def test_two_disks_with_one_serial_are_refused(site: Site) -> None:
    """A path of a multipath disk looks like a second one, and a clone is one."""
    (site.folder / "second").mkdir()
    with loop_disk(site.folder / "second", 128 * MIB) as other:
        site.add_disk("nvme1n1", other, DISK_SERIAL, 128 * MIB)
        before = site.whole()
        assert not site.install(site.document())
    assert site.reason() == (
        "2 disks have serial S5XYNG0R; disks here: nvme0n1 (serial S5XYNG0R, 0.1 GB), nvme1n1 (serial S5XYNG0R, 0.1 GB)"
    )
    assert site.whole() == before


def test_a_table_that_is_not_the_layout_is_refused_where_a_partition_is_to_be_kept(site: Site) -> None:
    run("sfdisk", "--quiet", str(site.disk), stdin=FOREIGN)
    before = site.whole()
    assert not site.install(site.document(preserve=("data",)))
    assert "it differs at data, esp, root-a" in site.reason()
    assert "data would be lost" in site.reason()
    assert site.whole() == before
    assert site.install(site.document()), "and is wiped where nothing is to be kept"


def test_a_partition_that_has_another_size_is_a_difference(site: Site) -> None:
    assert site.install(site.document())
    before = site.whole()
    smaller = LAYOUT.model_copy(update={"state": LAYOUT.state - MIB})
    assert not site.install(site.document(layout=smaller, preserve=("data",)))
    assert "it differs at data, state" in site.reason()
    assert site.whole() == before


def test_a_kernel_without_a_wanted_argument_is_not_published(site: Site) -> None:
    assert site.install(site.document("a"))
    assert not site.install(site.document("b", preserve=("state",), kernel_arguments=("quiet", "iommu=pt")), "b")
    assert site.reason() == "the image's kernel boots without iommu=pt: build the image with it"
    assert site.menu() == ["gpu-base_1.97+3-0.efi"]
    assert site.install(site.document("b", preserve=("state",), kernel_arguments=("quiet",)), "b")


TROUBLES: list[tuple[str, Callable[[], Troubles], str, InstallCause]] = [
    ("404", lambda: Troubles(status=404), "404 Not Found", InstallCause.FETCH),
    ("gone away", lambda: Troubles(status=503), "too slow: 0 bytes in", InstallCause.FETCH),
    ("longer", lambda: Troubles(length=1 << 40), "has 1099511627776 bytes, and the image has", InstallCause.IMAGE),
    (
        "not an image",
        lambda: Troubles(corrupt=lambda data: bytes(len(data))),
        "can't be decompressed",
        InstallCause.IMAGE,  # the bytes are not those that were signed: the next try would write as many
    ),
]


@pytest.mark.parametrize(
    ("troubles", "reason", "cause"), [case[1:] for case in TROUBLES], ids=[case[0] for case in TROUBLES]
)
def test_an_image_that_can_not_be_had_leaves_the_disk_alone(
    site: Site, troubles: Callable[[], Troubles], reason: str, cause: InstallCause
) -> None:
    site.patience, site.server.troubles = replace(site.patience, stalled=0.5), troubles()
    before = site.whole()
    assert not site.install(site.document())
    assert (reason in site.reason(), site.server.statuses[-1].cause) == (True, cause)
    assert site.whole() == before


def test_an_image_server_that_our_authority_did_not_certify_is_refused(site: Site) -> None:
    with _other(site) as other:
        other.image = site.images["a"].path.read_bytes()
        image = site.document().image.model_copy(update={"url": other.image_url})
        before = site.whole()
        assert not site.install(site.document(image=image))
    assert "its certificate is not trusted here" in site.reason()
    assert site.whole() == before


def _other(site: Site) -> ContractServer:
    folder = site.folder / "other"
    folder.mkdir()
    return ContractServer(folder, TlsAuthority())


def test_a_slow_image_server_is_a_failure_that_says_so(site: Site) -> None:
    site.patience = replace(site.patience, stalled=0.5, slowest=100 << 20)
    site.server.troubles = Troubles(pause=0.05)
    assert not site.install(site.document())
    assert "the image server is too slow" in site.reason()
    assert site.nothing_boots()


def test_an_attempt_that_is_withdrawn_ends_at_once(site: Site) -> None:
    """The server answers 410 once the attempt has failed, or another host key came."""
    site.server.troubles = Troubles(pause=0.05, answers={"status": [204, 410, 410, 410, 410]})
    begun = time.monotonic()
    assert not site.install(site.document())
    assert time.monotonic() - begun < 4
    assert site.nothing_boots()
    assert site.server.host_keys == []


def test_a_second_host_key_ends_the_attempt(site: Site) -> None:
    site.server.troubles = Troubles(answers={"hostkey": [409]})
    assert not site.install(site.document())
    assert site.reason() == "hostkey: the server refused it: 409 not now"
    assert site.nothing_boots()


def test_a_server_that_is_away_is_waited_for(site: Site) -> None:
    """Nothing is written twice, and `installed` arrives in the end."""
    answers = {"install.json": [503], "hostkey": [503, 502], "status": [500, 500, 503]}
    site.server.troubles = Troubles(answers=answers)
    assert site.install(site.document())
    assert site.server.phases()[-1] is InstallPhase.INSTALLED
    assert site.server.requests["/images/image.raw.zst"] == 1


def test_a_disk_that_fails_while_it_is_written_is_told(make_site: Callable[..., Site]) -> None:
    """The loop device's file is on a file system that is full before the image is."""
    site = make_site(size=128 * MIB)
    small = site.folder / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=6M", "tmpfs", str(small))
    try:
        with loop_disk(small, 128 * MIB) as disk:
            (site.machine.dev / "nvme0n1").unlink()
            (site.machine.dev / "nvme0n1").symlink_to(disk)
            site.disk = disk
            assert not site.install(site.document())
            assert "the disk failed while it was" in site.reason() or "can't be destroyed" in site.reason()
            assert site.nothing_boots()
    finally:
        run("umount", str(small))


def test_a_disk_that_gives_other_bytes_than_it_was_given_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_a_damaged_disk(written: Sequence[Written], progress: Callable[[int], None]) -> None:
        """Change a byte of root-a behind the back of the kernel, as a bad drive does, when all is written."""
        with (site.folder / "backing").open("r+b") as file:
            file.seek(42 * MIB)
            was = file.read(1)
            file.seek(42 * MIB)
            file.write(bytes([was[0] ^ 1]))
        read_back(written, progress)

    monkeypatch.setattr("reconciler.installer.install.read_back", of_a_damaged_disk)
    assert not site.install(site.document())
    assert "gives other bytes than were written" in site.reason()
    assert site.nothing_boots()


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_stream_with_any_byte_changed_is_refused(site: Site, changes: list[tuple[float, int]]) -> None:
    """It does not matter where: in zstd's frame, in the table, in a hole of the root, in its last byte."""

    def corrupt(data: bytes) -> bytes:
        changed = bytearray(data)
        for place, mask in changes:
            changed[int(place * len(data))] ^= mask
        return bytes(changed) if changed != data else b"x" + data[1:]

    run("wipefs", "-q", "-a", str(site.disk))
    site.server.troubles = Troubles(corrupt=corrupt)
    assert not site.install(site.document())
    assert site.nothing_boots()
    assert site.server.host_keys == []
