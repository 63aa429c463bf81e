"""The init on a document that erases: which drives it touches, what it sends of them, and what it refuses.

No drive here can be sanitized. Two programs stand in for nvme-cli 2.3 and hdparm 9.65: they print what those print, and
overwrite the file that is the drive. Samples are read by the init itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.erasure_records import why_not_erased
from reconciler.installer import documents, erase
from reconciler.installer.install import run_attempt
from reconciler.installer.machine import Machine
from reconciler.lab.pki import TlsAuthority
from reconciler.model.install import EraseDocument, InstallPhase, MachineIdentity
from tests.installer.disks import MIB
from tests.installer.server import ContractServer
from tests.installer.site import HASTY, SERIAL, UUID

pytestmark = [pytest.mark.wire, pytest.mark.tool]

NVME, SATA = "S6CKNT0W700868", "PHYS1234"
_PROGRAM = r'''#!/usr/bin/env python3
import json, os, sys
state_file = os.environ["DRIVES"]
state = json.load(open(state_file))
name, args = os.path.basename(sys.argv[0]), sys.argv[1:]
state["calls"].append([name, *args])
json.dump(state, open(state_file, "w"))

def save():
    json.dump(state, open(state_file, "w"))

def of(key):
    """A value of this drive, or else the one of all drives."""
    return state["each"].get(os.path.basename(args[1]), {}).get(key, state[key])

def keep(key, value):
    state["each"].setdefault(os.path.basename(args[1]), {})[key] = value; save()

def wipe(path):
    if state.get("lies"):
        return
    if state.get("unreadable"):
        os.rename(state["unreadable"], os.path.realpath(path))
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(bytes(size))

if args in (["version"], ["-V"]):
    print(f"{name} version 2.3")
elif name == "hdparm" and args[0] == "-I":
    flag = lambda on: "" if on else "not"
    print(f"""\n{args[1]}:\n\nATA device, with non-removable media
\tModel Number:       INTEL SSDSC2KB960G8
\tSerial Number:      {state["sata"]}
\tFirmware Revision:  XCV10132
Security: \n\tMaster password revision code = 65534
\t\tsupported
\t{flag(state.get("password"))}\tenabled
\t{flag(state.get("locked"))}\tlocked
\t{flag(state.get("frozen"))}\tfrozen
\tnot\texpired: security count
\t\tsupported: enhanced erase
\t2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.""")
elif name == "hdparm" and "--security-set-pass" in args:
    state["password"] = args[3]; save()
elif name == "hdparm" and "--security-unlock" in args:
    if state.get("refuses_unlock") or state.get("password") != args[3]:
        sys.exit("SECURITY_UNLOCK: Input/output error")
    state["locked"] = False; save()
elif name == "hdparm":
    if state.get("password") != args[3]:
        sys.exit("SECURITY_ERASE: Input/output error")
    state["password"], state["locked"] = "", False; wipe(args[4]); save()
elif args[0] == "id-ctrl":
    print(json.dumps({"sn": of("nvme").ljust(20), "mn": "SAMSUNG MZQL23T8HCLS", "fr": "GDC5602Q",
                      "sanicap": of("sanicap"), "oacs": of("oacs"), "fna": 4}))
elif args[0] == "get-log":
    if of("log")[0] == 2:
        keep("looks", of("looks") - 1)
        if of("looks") <= 0:
            wipe(args[1]); keep("log", state.get("ends", [1, 1]))
    status, untouched = of("log")
    progress = 30000 if status == 2 else 65535
    words = progress.to_bytes(2, "little") + (status | untouched << 8).to_bytes(2, "little")
    sys.stdout.buffer.write(words.ljust(64, b"\0"))
elif args[0] == "sanitize":
    keep("log", [2, 0])
elif args[0] == "format":
    wipe(args[1])
else:
    sys.exit("ERROR: Invalid sub-command")
'''


@dataclass
class Drives:
    """A machine with drives that files play."""

    machine: Machine
    server: ContractServer
    folder: Path

    def add(self, name: str, serial: str, vendor: str = "") -> Path:
        file = self.folder / f"{name}.raw"
        file.write_bytes(os.urandom(MIB) * 4)
        (self.machine.dev / name).symlink_to(file)
        block = self.machine.sys / "block" / name
        (block / "device").mkdir(parents=True)
        (block / "device/serial").write_text(f"{serial}\n")
        (block / "device/vendor").write_text(f"{vendor}\n")
        (block / "size").write_text(f"{4 * MIB // 512}\n")
        return file

    def state(self, **changes: Any) -> dict[str, Any]:
        file = self.folder / "state.json"
        known = json.loads(file.read_text())
        file.write_text(json.dumps(known | changes))
        return dict(known)

    def erase(self, *serials: str, **changes: Any) -> bool:
        machine = MachineIdentity(serial=SERIAL, uuid=UUID)
        document = EraseDocument(node="gpu-001", nonce="n", machine=machine, drives=serials)
        self.server.document = document.model_copy(update=changes)
        return run_attempt(self.machine, documents.Attempt(url=self.server.url), HASTY)

    def reason(self) -> str:
        assert self.server.statuses[-1].phase is InstallPhase.FAILED
        return self.server.statuses[-1].detail

    def evidence(self, serial: str) -> dict[str, Any]:
        found = [one.erasure for one in self.server.statuses if one.erasure and one.erasure.serial == serial]
        return found[-1].model_dump(mode="json") if found else {}

    def commands(self) -> list[str]:
        harmless = ("id-ctrl", "get-log", "version", "-V", "-I")
        return [" ".join(call[:2]) for call in self.state()["calls"] if call[1] not in harmless]


@pytest.fixture
def drives(bare: Machine, tmp_path: Path, authority: TlsAuthority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drives]:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("nvme", "hdparm"):
        (programs / name).write_text(_PROGRAM)
        (programs / name).chmod(0o755)
    state = tmp_path / "state.json"
    all_drives = {"nvme": NVME, "sata": SATA, "sanicap": 3, "oacs": 23, "log": [0, 0], "looks": 3, "password": ""}
    state.write_text(json.dumps({"calls": [], "each": {}, **all_drives}))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DRIVES", str(state))
    monkeypatch.setattr(erase.Eraser.__init__, "__defaults__", (0.01,))
    with ContractServer(tmp_path, authority) as server:
        yield Drives(bare, server, tmp_path)


def test_a_drive_is_sanitized_and_the_evidence_proves_it(drives: Drives) -> None:
    file, other = drives.add("nvme0n1", NVME), drives.add("nvme1n1", "OTHER")
    kept = other.read_bytes()
    assert drives.erase(NVME)
    phases = [InstallPhase.STARTED, InstallPhase.ERASING, InstallPhase.ERASED]
    assert drives.server.phases() == phases
    found = drives.evidence(NVME)
    assert (found["method"], found["tool"]) == ("nvme sanitize, block erase", "nvme version 2.3")
    assert (found["model"], found["firmware"]) == ("SAMSUNG MZQL23T8HCLS", "GDC5602Q")
    assert why_not_erased(NVME, found) == ""
    assert not any(file.read_bytes())
    assert other.read_bytes() == kept
    assert drives.commands() == ["nvme sanitize"]


def test_what_was_begun_is_on_record_before_the_drive_is_touched(drives: Drives) -> None:
    drives.add("nvme0n1", NVME)
    drives.server.troubles.answers["status"] = [403] * 50
    assert not drives.erase(NVME)
    assert drives.commands() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lies": True}, "it still holds at byte 0"),
        ({"ends": [3, 0]}, "its sanitize log says failed"),
        ({"lies": True, "sanicap": 0}, "it still holds at byte 0"),
    ],
)
def test_evidence_of_a_drive_that_kept_its_data_proves_nothing(
    drives: Drives, changes: dict[str, Any], why: str
) -> None:
    drives.add("nvme0n1", NVME)
    drives.state(**changes)
    drives.erase(NVME)
    assert why in why_not_erased(NVME, drives.evidence(NVME))


def test_a_sanitize_that_runs_is_waited_for_and_one_that_ended_is_not_repeated(drives: Drives) -> None:
    """The machine lost its power meanwhile: the sanitize goes on by itself."""
    drives.add("nvme0n1", NVME)
    drives.state(log=[2, 0])
    for _ in range(2):
        assert drives.erase(NVME)
        assert why_not_erased(NVME, drives.evidence(NVME)) == ""
    assert drives.commands() == []


def test_data_that_were_written_after_a_sanitize_are_erased_again(drives: Drives) -> None:
    drives.add("nvme0n1", NVME)
    drives.state(log=[1, 0])
    assert drives.erase(NVME)
    assert drives.commands() == ["nvme sanitize"]
    assert why_not_erased(NVME, drives.evidence(NVME)) == ""


def test_all_namespaces_of_a_drive_are_looked_at(drives: Drives) -> None:
    """This one's sanitize leaves the second of two as it was."""
    drives.add("nvme0n1", NVME)
    drives.add("nvme0n2", NVME)
    assert drives.erase(NVME)
    assert "it still holds at byte 0" in why_not_erased(NVME, drives.evidence(NVME))


def test_a_drive_without_sanitize_is_formatted(drives: Drives) -> None:
    drives.add("nvme0n1", NVME)
    drives.state(sanicap=0)
    assert drives.erase(NVME)
    assert drives.evidence(NVME)["method"] == "nvme format, secure erase setting 2"
    assert why_not_erased(NVME, drives.evidence(NVME)) == ""


@pytest.mark.parametrize("password", ["", erase.PASSWORD])
def test_a_sata_drive_is_erased_by_its_own_security_feature(drives: Drives, password: str) -> None:
    """A password that is on is ours, of an erase that was cut."""
    file = drives.add("sda", SATA, "ATA")
    drives.state(password=password)
    assert drives.erase(SATA)
    assert drives.evidence(SATA)["method"] == "hdparm --security-erase-enhanced"
    assert why_not_erased(SATA, drives.evidence(SATA)) == ""
    assert not any(file.read_bytes())


def test_a_locked_sata_drive_is_unlocked_for_its_samples(drives: Drives) -> None:
    """The power was cut in its erase."""
    file = drives.add("sda", SATA, "ATA")
    drives.state(password=erase.PASSWORD, locked=True)
    assert drives.erase(SATA)
    assert why_not_erased(SATA, drives.evidence(SATA)) == ""
    assert not any(file.read_bytes())


def test_a_locked_sata_drive_that_takes_nothing_but_an_erase_is_proved_by_the_next_one(drives: Drives) -> None:
    drives.add("sda", SATA, "ATA")
    drives.state(password=erase.PASSWORD, locked=True, refuses_unlock=True)
    assert drives.erase(SATA)
    assert "samples of before are needed" in why_not_erased(SATA, drives.evidence(SATA))
    assert drives.erase(SATA)
    assert why_not_erased(SATA, drives.evidence(SATA)) == ""


def test_a_drive_whose_sanitize_failed_is_sanitized_again_though_it_can_not_be_read(drives: Drives) -> None:
    file = drives.add("nvme0n1", NVME)
    hidden = file.rename(file.with_suffix(".hidden"))
    drives.state(log=[3, 0], unreadable=str(hidden))
    assert drives.erase(NVME)
    assert why_not_erased(NVME, drives.evidence(NVME)) == ""
    assert not any(file.read_bytes())


def two_of_nvme(drives: Drives) -> str:
    drives.add("nvme0n1", NVME)
    drives.add("nvme1n1", NVME)
    drives.state(sanicap=0)
    return NVME


def two_of_sata(drives: Drives) -> str:
    drives.add("sda", SATA, "ATA")
    drives.add("sdb", SATA, "ATA")
    return SATA


def sas(drives: Drives) -> str:
    drives.add("sda", "SAS1", "SEAGATE")
    return "SAS1"


def frozen(drives: Drives) -> str:
    drives.add("sda", SATA, "ATA")
    drives.state(frozen=True)
    return SATA


def locked(drives: Drives) -> str:
    drives.add("sda", SATA, "ATA")
    drives.state(password="another's")
    return SATA


def absent(drives: Drives) -> str:
    drives.add("nvme0n1", NVME)
    return NVME.lower()


def swapped(drives: Drives) -> str:
    drives.add("nvme0n1", "S0")
    return "S0"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (sas, "a drive of SEAGATE: this installer has no proved way to erase SAS"),
        (frozen, "power-cycle the drive"),
        (locked, "hdparm failed"),
        (absent, "no drive has the serial number s6cknt0w700868"),
        (swapped, f"says that it is {NVME}, and not S0"),
        (two_of_nvme, f"2 drives have serial {NVME}"),
        (two_of_sata, f"2 drives have serial {SATA}"),
    ],
)
def test_what_can_not_be_erased_is_refused_with_the_reason(
    drives: Drives, make: Callable[[Drives], str], why: str
) -> None:
    serial = make(drives)
    files = {file: file.read_bytes() for file in drives.folder.glob("*.raw")}
    assert not drives.erase(serial)
    assert why in drives.reason()
    assert {file: file.read_bytes() for file in files} == files
    assert why_not_erased(serial, drives.evidence(serial)) == "the installer sent no evidence of it"


def test_all_drives_are_looked_up_before_one_is_touched(drives: Drives) -> None:
    drives.add("nvme0n1", NVME)
    assert not drives.erase(NVME, "NONE")
    assert drives.commands() == []


# --- several drives --------------------------------------------------------------------------------------------------

SECOND, THIRD = "S6CKNT0W700869", "S6CKNT0W700870"


def three(drives: Drives, **second: Any) -> list[Path]:
    """Add three drives, the second of which differs."""
    files = [drives.add(f"nvme{at}n1", serial) for at, serial in enumerate((NVME, SECOND, THIRD))]
    drives.state(each={"nvme1n1": {"nvme": SECOND, **second}, "nvme2n1": {"nvme": THIRD}})
    return files


def test_several_drives_are_erased_at_the_same_time_each_with_its_own_evidence(drives: Drives) -> None:
    files = three(drives)
    assert drives.erase(NVME, SECOND, THIRD)
    assert [why_not_erased(serial, drives.evidence(serial)) for serial in (NVME, SECOND, THIRD)] == ["", "", ""]
    assert not any(any(file.read_bytes()) for file in files)
    calls = [call[1] for call in drives.state()["calls"] if call[1] in ("sanitize", "get-log")]
    assert calls[:6] == ["get-log", "sanitize", "get-log"] * 2, "the second is begun while the first one works"


def test_a_drive_that_refuses_is_named_with_the_way_out_and_the_others_are_erased(drives: Drives) -> None:
    first, second, third = three(drives, sanicap=0, oacs=0)
    kept = second.read_bytes()
    assert not drives.erase(NVME, SECOND, THIRD)
    assert [why_not_erased(serial, drives.evidence(serial)) for serial in (NVME, THIRD)] == ["", ""]
    why = f"drive {SECOND} offers neither Sanitize nor Format NVM: destroy it"
    assert drives.evidence(SECOND)["failed"] == why
    assert why_not_erased(SECOND, drives.evidence(SECOND)), "what refuses proves nothing"
    assert drives.reason() == f"{SECOND}: {why}; ended: {NVME}, {THIRD}"
    assert (second.read_bytes(), any(first.read_bytes()), any(third.read_bytes())) == (kept, False, False)


def test_a_drive_that_can_not_be_read_does_not_keep_the_installer_from_the_others(drives: Drives) -> None:
    three(drives)
    (drives.machine.dev / "nvme1n1").unlink()
    assert not drives.erase(NVME, SECOND, THIRD)
    assert "No such file or directory" in drives.evidence(SECOND)["failed"]
    assert [why_not_erased(serial, drives.evidence(serial)) for serial in (NVME, THIRD)] == ["", ""]


def test_no_drive_is_begun_any_more_once_the_server_takes_no_evidence(drives: Drives) -> None:
    """That is no drive which refuses."""
    three(drives)
    drives.server.troubles.answers["status"] = [204, 403, 403, 403, 403, 403, 403]
    assert not drives.erase(NVME, SECOND, THIRD)
    assert len(drives.commands()) <= 1


def test_a_server_of_before_is_not_sent_what_it_does_not_know(drives: Drives) -> None:
    three(drives, sanicap=0, oacs=0)
    assert not drives.erase(NVME, SECOND, THIRD, format="1.1")
    assert drives.evidence(SECOND) == {}
    assert f"{SECOND}: drive" in drives.reason()
    assert why_not_erased(THIRD, drives.evidence(THIRD)) == ""


def test_a_document_for_another_machine_erases_nothing(drives: Drives) -> None:
    drives.add("nvme0n1", NVME)
    assert not drives.erase(NVME, machine=MachineIdentity(serial="another", uuid=None))
    assert "the document is for serial number another" in drives.reason()
    assert drives.commands() == []
