"""What the init reads of a machine: its identity, its disks, and the attempt on its boot medium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.installer import machine
from reconciler.installer.attempt import read_attempt
from reconciler.installer.disks import find_disk, list_disks
from reconciler.installer.documents import RootDisk
from reconciler.installer.kernel import command_line
from reconciler.installer.machine import Failed, Machine, check_identity
from reconciler.model.install import AttemptCredential, empty_credential, fill_credential
from tests.installer.disks import kernel


def put(machine: Machine, attempt: bytes) -> None:
    folder = machine.extra / "credentials"
    folder.mkdir()
    (folder / "attempt.cred").write_bytes(attempt)
    (folder / "other.cred").write_text("ignored")


def test_the_attempt_is_read_from_its_padding(bare: Machine) -> None:
    put(bare, fill_credential(AttemptCredential(url="https://10.0.0.1:8443/abc", address="10.0.0.7/24", vlan=7)))
    attempt = read_attempt(bare)
    assert (attempt.url, attempt.address, attempt.vlan) == ("https://10.0.0.1:8443/abc", "10.0.0.7/24", 7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "has no attempt"),
        (empty_credential(), "is not filled in"),
        (b"{}" + b" " * 4096, "longer than 4096 bytes"),
        (b'{"url":"http://10.0.0.1/abc"}', "url: not https"),
        (b'{"url":"file:///etc/shadow"}', "url: not https"),
        (b'{"url":"https://10.0.0.1/a b"}', "url: not https"),
        (b'{"url":"https://10.0.0.1/a","mac":"$(reboot)"}', "mac: not six"),
        (b'{"url":"https://10.0.0.1/a","address":"; reboot"}', "does not appear to be"),
        (b'{"url":"https://10.0.0.1/a","gateway":"x"}', "does not appear to be"),
        (b'{"url":"https://10.0.0.1/a","dns":["x"]}', "does not appear to be"),
        (b'{"url":"https://10.0.0.1/a","vlan":5000}', "vlan: not within"),
        (b'{"url":"https://10.0.0.1/a","proxy":"file:///x"}', "proxy: not http://"),
        (b"\xff\xfe", "not the contract's"),
    ],
)
def test_an_attempt_that_somebody_else_wrote_is_refused(bare: Machine, text: bytes | None, reason: str) -> None:
    if text is not None:
        put(bare, text)
    with pytest.raises(Failed, match=reason):
        read_attempt(bare)


def test_a_lab_on_this_machine_needs_no_tls(bare: Machine) -> None:
    put(bare, b'{"url":"http://127.0.0.1:80/abc"}')
    assert read_attempt(bare).url == "http://127.0.0.1:80/abc"


def test_a_uuid_is_compared_in_both_byte_orders(bare: Machine) -> None:
    (bare.sys / "class/dmi/id/product_uuid").write_text("00112233-4455-6677-8899-aabbccddeeff\n")
    for same in ("00112233-4455-6677-8899-AABBCCDDEEFF", "33221100-5544-7766-8899-aabbccddeeff"):
        check_identity(bare, None, same)
    with pytest.raises(Failed, match="the document is for UUID 3"):
        check_identity(bare, None, "33221100-4455-6677-8899-aabbccddeeff")


def test_a_machine_that_says_nothing_of_itself_is_not_the_documents(bare: Machine) -> None:
    for name in ("product_serial", "product_uuid"):
        (bare.sys / "class/dmi/id" / name).write_text("\n")
    for serial, uuid in (("SN-1", None), (None, "1" * 32)):
        with pytest.raises(Failed, match="this machine has none"):
            check_identity(bare, serial, uuid)


def block(machine: Machine, name: str, **files: str | bytes) -> None:
    folder = machine.sys / "block" / name
    for path, text in {"size": "1000000", **files}.items():
        file = folder / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())


def test_serials_and_names_are_read_where_each_bus_has_them(bare: Machine) -> None:
    block(bare, "nvme0n1", device__serial="S5XYNG0R123456   ", wwid="eui.0025385b71b00123")
    block(bare, "sda", device__vpd_pg80=b"\x00\x80\x00\x08WD-1234 ", device__wwid="naa.5000c500a1b2c3d4")
    block(bare, "vda", serial="virtio-1")
    block(bare, "sr0", device__vpd_pg80=b"\x00\x80\x00\x04CD-1")
    block(bare, "nvme0c0n1", hidden="1", device__serial="S5XYNG0R123456")
    block(bare, "sdb", size="0")
    block(bare, "loop0")
    found = {disk.name: (disk.serial, disk.wwn) for disk in list_disks(bare)}
    assert found == {
        "nvme0n1": ("S5XYNG0R123456", "eui.0025385b71b00123"),
        "sda": ("WD-1234", "naa.5000c500a1b2c3d4"),
        "vda": ("virtio-1", ""),
    }
    for rule, name in (
        (RootDisk("s5xyng0r123456"), "nvme0n1"),
        (RootDisk(None, "0x5000C500A1B2C3D4"), "sda"),
        (RootDisk("WD-1234", "5000c500a1b2c3d4"), "sda"),
        (RootDisk("virtio-1"), "vda"),
    ):
        assert find_disk(bare, rule, 0).name == name


MODPROBE = """#!/bin/sh
for name; do case $name in broken) echo "modprobe: ERROR: could not insert 'broken': Invalid argument" >&2; f=1;;
absent) f=1;; esac; done
exit ${f:-0}
"""


@pytest.mark.parametrize(("alias", "said"), [
    ("absent", ""), ("broken", "modprobe failed: modprobe: ERROR: could not insert 'broken': Invalid argument"),
])  # fmt: skip
def test_a_device_without_a_module_is_no_failure_and_one_that_fails_is_a_line(
    bare: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], alias: str, said: str
) -> None:
    """`modprobe -q` ends with 1 and says nothing where there is no such module (kmod 30)."""
    tools = bare.work / "bin"
    tools.mkdir()
    (tools / "modprobe").write_text(MODPROBE)
    (tools / "modprobe").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "SETTLE", 0.0)
    (bare.sys / "devices/pci").mkdir(parents=True)
    (bare.sys / "devices/pci/modalias").write_text(f"{alias}\n")
    monkeypatch.setattr(machine, "MODULES", (alias,))
    machine.load_drivers(bare)
    assert [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()] == ([said] if said else [])


def test_partitions_are_named_as_the_kernel_does(bare: Machine) -> None:
    block(bare, "nvme0n1")
    block(bare, "sda")
    assert [disk.part(3) for disk in list_disks(bare)] == [bare.dev / "nvme0n1p3", bare.dev / "sda3"]


def test_a_disk_that_comes_late_is_waited_for(bare: Machine) -> None:
    with pytest.raises(Failed, match=r"no disk has serial X; disks here: none"):
        find_disk(bare, RootDisk("X"), 0)


@pytest.mark.parametrize("data", [b"", b"MZ", b"\xff" * 200, b"MZ" + bytes(4000), kernel("x")[:90]])
def test_what_is_no_kernel_has_no_command_line(data: bytes) -> None:
    assert command_line(data) == ""


def test_the_command_line_is_read_from_its_section() -> None:
    assert command_line(kernel("root=PARTUUID=1 quiet", b"root=PARTUUID=2")) == "root=PARTUUID=1 quiet"


def test_the_stub_of_systemd_is_a_pe_file_that_is_read() -> None:
    """Debian's stub has sections, and none of them is a command line."""
    stub = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
    if not stub.exists():
        pytest.skip("without systemd-boot-efi there is no real PE file here")
    assert command_line(stub.read_bytes()) == ""
