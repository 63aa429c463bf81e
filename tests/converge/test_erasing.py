"""What the tools that erase drives print, read: real outputs, and each of them damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.converge.erasing import (
    SAMPLE_BYTES,
    Unreadable,
    ata_security,
    block_devices,
    controller,
    offsets,
    sample,
    sanitize_log,
)
from reconciler.converge.erasure_records import why_not_erased

# `nvme id-ctrl -o json` of a WD PC SN720 (NVMe 1.3): the keys that matter, with their real values.
WD = {"sn": "1831A0801234        ", "mn": "WDC PC SN720 SDAPNTW-256G-1006          ", "fr": "10130001",
      "oacs": 23, "sanicap": 1610612739, "fna": 4}  # fmt: skip
# `hdparm -I` of an Intel X25-M G2, and of a drive without enhanced erase, as their owners posted them.
INTEL = """
/dev/sda:

ATA device, with non-removable media
\tModel Number:       INTEL SSDSA2M080G2GC
\tSerial Number:      CVPO9454000X080JGN
\tFirmware Revision:  2CV102HD
Commands/features:
\tEnabled\tSupported:
\t   *\tSecurity Mode feature set
Security: 
\tMaster password revision code = 65534
\t\tsupported
\tnot\tenabled
\tnot\tlocked
\t\tfrozen
\tnot\texpired: security count
\t\tsupported: enhanced erase
\t2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.
Logical Unit WWN Device Identifier: 5001517958f99708
Checksum: correct
"""  # noqa: W291 - hdparm prints that blank
PLAIN = INTEL.replace("\t\tfrozen", "\tnot\tfrozen").replace("\t\tsupported: enh", "\tnot\tsupported: enh")
COLUMNS = "       0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f"


def dumped(data: bytes) -> str:
    """Print bytes as `d()` of nvme-cli does, from version 1 to 3."""
    lines = ["Device:nvme0 log-id:129 namespace-id:0xffffffff", COLUMNS]
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(byte) if 33 <= byte <= 126 else "." for byte in row)
        lines.append(f'{at:04x}: {row.hex(" ")} "{shown}"')
    return "\n".join(lines) + "\n"


def log_of(status: int, progress: int = 0xFFFF, *, untouched: bool = False) -> str:
    flags = status | (0x100 if untouched else 0)
    head = progress.to_bytes(2, "little") + flags.to_bytes(2, "little") + (2).to_bytes(4, "little")
    return dumped(head.ljust(64, b"\0"))


# --- lsblk -----------------------------------------------------------------------------------------------------------


def disk(name: str, **values: Any) -> dict[str, Any]:
    known = {"type": "disk", "serial": "S1", "model": "M", "size": 960197124096, "tran": "nvme", "mountpoint": None}
    return {"name": name, **known, **values}


@pytest.mark.parametrize(
    ("children", "system"),
    [
        ([{"name": "nvme0n1p1", "mountpoint": "/"}], True),
        ([{"name": "nvme0n1p1", "mountpoint": "/boot/efi"}], True),
        ([{"name": "nvme0n1p2", "mountpoint": "[SWAP]"}], True),
        ([{"name": "md0", "mountpoint": None, "children": [{"name": "vg-root", "mountpoint": "/var/lib"}]}], True),
        ([{"name": "nvme0n1p1", "mountpoint": "/data"}], False),
        ([], False),
    ],
)
def test_a_disk_that_the_system_needs_is_known_by_whatever_is_built_on_it(children: list[Any], system: bool) -> None:
    [found] = block_devices(json.dumps({"blockdevices": [disk("nvme0n1", children=children), disk("x", type="loop")]}))
    assert found.holds_system is system
    assert (found.path, found.serial, found.size) == ("/dev/nvme0n1", "S1", 960197124096)


def test_sizes_are_numbers_or_texts_by_version_and_a_serial_may_be_missing() -> None:
    [found] = block_devices(json.dumps({"blockdevices": [disk("sda", size="512", serial=None, tran="sata")]}))
    assert (found.size, found.serial) == (512, "")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"blockdevices": [{"name": "sda", "type": "disk"}]}'])
def test_lsblk_that_can_not_be_read_is_no_list_of_drives(text: str) -> None:
    with pytest.raises(Unreadable, match="lsblk"):
        block_devices(text)


# --- NVMe ------------------------------------------------------------------------------------------------------------


def test_a_real_controller() -> None:
    found = controller(json.dumps(WD))
    assert (found.serial, found.model, found.firmware) == ("1831A0801234", "WDC PC SN720 SDAPNTW-256G-1006", "10130001")
    assert (found.method, found.format_setting) == ("nvme sanitize, block erase", 2)


@pytest.mark.parametrize(
    ("values", "method"),
    [
        ({"sanicap": 1}, "nvme sanitize, crypto erase"),
        ({"sanicap": 4}, "nvme sanitize, overwrite"),
        ({"sanicap": 0}, "nvme format, secure erase setting 2"),
        ({"sanicap": 0, "fna": 0}, "nvme format, secure erase setting 1"),
        ({"sanicap": 0, "oacs": 0}, "nvme format, secure erase setting None"),
    ],
)
def test_the_best_way_that_a_controller_has(values: dict[str, int], method: str) -> None:
    assert controller(json.dumps(WD | values)).method == method


@pytest.mark.parametrize("key", sorted(WD))
def test_a_controller_that_does_not_tell_all_is_not_erased(key: str) -> None:
    with pytest.raises(Unreadable, match="id-ctrl"):
        controller(json.dumps({name: value for name, value in WD.items() if name != key}))


@pytest.mark.parametrize(
    ("status", "succeeded", "words"),
    [
        (0, False, "never sanitized"), (1, True, "completed"), (3, False, "failed"), (4, True, "completed"),
        (5, False, "status 5"), (7, False, "status 7"),
    ],
)  # fmt: skip
def test_only_a_log_that_says_so_is_an_end(status: int, succeeded: bool, words: str) -> None:
    found = sanitize_log(log_of(status))
    assert (found.succeeded, found.running, found.words) == (succeeded, False, words)


def test_a_sanitize_under_way_tells_how_far_it_is() -> None:
    found = sanitize_log(log_of(2, 0x8000))
    assert (found.running, found.words) == (True, "in progress, 50 %")


def test_the_log_of_an_earlier_sanitize_proves_nothing() -> None:
    """A drive from the factory shows `completed`: only another log, or no write since, is proof."""
    old = sanitize_log(log_of(1))
    assert not old.proves(old.raw)
    assert sanitize_log(log_of(1, untouched=True)).proves(old.raw)
    assert sanitize_log(log_of(1)).proves(sanitize_log(log_of(0)).raw)
    assert not sanitize_log(log_of(3)).proves("")


@pytest.mark.parametrize("text", ["", "NVMe status: Invalid Log Page(0x4109)\n", log_of(1)[:150], COLUMNS])
def test_half_a_log_is_none(text: str) -> None:
    with pytest.raises(Unreadable, match="get-log"):
        sanitize_log(text)


def test_the_words_beside_the_bytes_are_not_bytes() -> None:
    data = bytes(range(0x30, 0x70))
    assert sanitize_log(dumped(data)).raw == data.hex()


# --- ATA -------------------------------------------------------------------------------------------------------------


def test_real_drives() -> None:
    found = ata_security(INTEL)
    assert (found.serial, found.model, found.firmware) == ("CVPO9454000X080JGN", "INTEL SSDSA2M080G2GC", "2CV102HD")
    assert (found.supported, found.enabled, found.locked, found.frozen, found.enhanced) == (
        True,
        False,
        False,
        True,
        True,
    )
    plain = ata_security(PLAIN)
    assert (plain.frozen, plain.enhanced) == (False, False)


@pytest.mark.parametrize("lost", ["Serial Number", "\tlocked", "\tfrozen", "enhanced erase", "Security:"])
def test_a_drive_that_does_not_tell_all_is_not_erased(lost: str) -> None:
    with pytest.raises(Unreadable, match="hdparm"):
        ata_security(INTEL.replace(lost, "?"))


# --- samples ---------------------------------------------------------------------------------------------------------


def test_samples_tell_blank_from_full_and_no_content() -> None:
    full = " 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10\n" * 32
    assert not sample(0, full).blank
    assert sample(0, " 00" * SAMPLE_BYTES).blank
    assert sample(0, " ff" * SAMPLE_BYTES).blank
    assert "01 02" not in sample(0, full).digest
    for text in ("", " 00" * (SAMPLE_BYTES - 1), "od: /dev/x: Input/output error"):
        with pytest.raises(Unreadable, match="od"):
            sample(0, text)


def test_samples_are_at_the_beginning_in_the_middle_and_at_the_end() -> None:
    found = offsets(960197124096)
    assert found[0] == 0
    assert found[-1] > 960197124096 - (1 << 21)
    assert len(found) == 6
    assert all(at % 4096 == 0 for at in found)
    assert offsets(4096) == (0,)


GOOD: dict[str, Any] = {
    "serial": "D1",
    "method": "nvme sanitize, block erase",
    "ended": True,
    "log_before": "",
    "log": "ffff0101" + "00" * 60,
    "samples": [{"offset": 0, "digest": "a", "blank": False}],
    "samples_after": [{"offset": 0, "digest": "b", "blank": True}],
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"serial": "D2"}, "sent no evidence"),
        ({"ended": False}, "sent no evidence"),
        ({"log": ""}, "sent no log of the sanitize"),
        ({"log": "ffff"}, "can't be read"),
        ({"log": "zz"}, "can't be read"),
        ({"log": "ffff0300" + "00" * 60}, "says failed"),
        ({"log": "ffff0100" + "00" * 60, "log_before": "ffff0100" + "00" * 60}, "as it was before"),
        ({"samples_after": []}, "nobody looked"),
        ({"samples_after": [{"offset": 0, "digest": "a", "blank": False}]}, "still holds at byte 0"),
        ({"method": "nvme format", "log": "", "samples": []}, "samples of before are needed"),
        (
            {
                "samples": [{"offset": 0, "digest": one, "blank": False} for one in "ab"],
                "samples_after": [{"offset": 0, "digest": one, "blank": False} for one in "ac"],
            },
            "still holds at byte 0",  # the first of two namespaces does
        ),
        ({"samples_after": [{"offset": 4096, "digest": "b", "blank": True}]}, "not looked at in the same places"),
        ({"samples_after": GOOD["samples_after"] * 2}, "not looked at in the same places"),
        ({"method": "nvme format", "log": ""}, ""),
    ],
)
def test_evidence_of_an_installer_counts_only_whole(changes: dict[str, Any], why: str) -> None:
    found = why_not_erased("D1", GOOD | changes)
    assert (why in found) if why else found == ""
