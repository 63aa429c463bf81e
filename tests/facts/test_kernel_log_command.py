"""The command of the kernel log, run by a real sh and awk on a journal that we write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from reconciler.drivers.ssh.facts import host_facts
from reconciler.drivers.ssh.facts.kernel_log import COMMAND, MAX_BURSTS
from reconciler.drivers.ssh.facts.own_lines import MAX_BURSTS as MAX_OWN
from reconciler.drivers.ssh.facts.own_lines import own_lines
from reconciler.model.gate import CommandResult
from reconciler.model.observed import HostFacts


def facts_of(log: str, tmp_path: Path) -> HostFacts:
    return host_facts({"kernel_log": run(COMMAND, log, tmp_path)})


def run(command: str, log: str, tmp_path: Path) -> CommandResult:
    (tmp_path / "log").write_text(log)
    journal = tmp_path / "journalctl"
    journal.write_text(f"#!/bin/sh\ncat {tmp_path}/log\n")
    journal.chmod(0o755)
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return CommandResult(ran.returncode, ran.stdout, ran.stderr)


def test_awk_passes_on_what_the_parser_knows(tmp_path: Path) -> None:
    log = (
        "usb 1-1: new high-speed USB device\n"
        "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x24:0x65:1185)\n"
        "pcieport 0000:00:02.1: AER: Uncorrectable (Fatal) error message received from 0000:09:05.0\n"
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 page:0x116c60)\n"
        "mce: [Hardware Error]: CPU 18: Machine Check Exception: 5 Bank 7: be00000001010091\n"
        "{2}[Hardware Error]: event severity: recoverable\n"
        "{2}[Hardware Error]:   section_type: memory error\n"
        "mlx5_core 0000:d2:00.0: poll_health:174: device's health compromised - reached miss count.\n"
        "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature\n"
        "INFO: task nvidia-smi:41204 blocked for more than 362 seconds.\n"
        "NVRM: The NVIDIA GPU 0000:0e:00.0 (PCI ID: 10de:1b06) installed in this system has fallen off the bus and\n"
    )
    facts = facts_of(log, tmp_path)
    assert [(event.kind, event.device) for event in facts.kernel_events or ()] == [
        ("gpu_init_failed", "00000000:02:00.0"),
        ("pcie_fatal", "00000000:09:05.0"),
        ("memory_ue", "MC0"),
        ("machine_check", "CPU 18"),
        ("memory_ue", ""),
        ("nic_failed", "00000000:D2:00.0"),
        ("nic_module", "00000000:5C:00.0"),
        ("task_hung", "nvidia-smi"),
    ]
    assert [(xid.code, xid.device) for xid in facts.xids or ()] == [(79, "00000000:0E:00.0")]


def test_a_log_without_a_message_is_known(tmp_path: Path) -> None:
    facts = facts_of("usb 1-1: new high-speed USB device\n", tmp_path)
    assert (facts.xids, facts.kernel_events) == ((), ())


def test_bursts_push_nothing_out(tmp_path: Path) -> None:
    """A probe that fails five times a second, and memory that fails at another address each time."""
    fell = "NVRM: The NVIDIA GPU 0000:0e:00.0 installed in this system has fallen off the bus and is not responding\n"
    bursts = "".join(f"{fell}EDAC MC0: 1 UE memory read error (page:{at:#x} offset:0x0)\n" for at in range(20_000))
    facts = facts_of(bursts + "NVRM: Xid (PCI:0000:18:00): 48, pid=1, name=x, DBE\n", tmp_path)
    assert {xid.code for xid in facts.xids or ()} == {79, 48}
    (event,) = facts.kernel_events or ()
    assert (event.kind, event.count) == ("memory_ue", 200)


def test_corrected_errors_and_messages_of_other_kinds_hide_none(tmp_path: Path) -> None:
    """Firmware numbers its reports, and a driver its jobs, so each line is another one."""
    corrected = "".join(
        f"[{at:12.6f}] {{{at}}}[Hardware Error]: event severity: corrected\n"
        f"[{at:12.6f}] {{{at}}}[Hardware Error]:   section_type: memory error\n"
        for at in range(1, 3001)
    )
    jobs = "".join(
        f"[{4000 + at:12.6f}] amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq={at}\n"
        for at in range(3000)
    )
    rest = (
        "[ 9000.000000] {9001}[Hardware Error]: event severity: fatal\n"
        "[ 9000.000001] {9001}[Hardware Error]:   section_type: memory error\n"
        "[ 9001.000000] pcieport 0000:00:02.1: AER: Uncorrectable (Fatal) error message received from 0000:09:05.0\n"
        "[ 9002.000000] amdgpu 0000:03:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256\n"
    )
    kinds = {event.kind.value for event in facts_of(corrected + jobs + rest, tmp_path).kernel_events or ()}
    assert kinds == {"memory_ue", "machine_check", "pcie_fatal", "amd_bad_pages", "amd_ring_timeout"}
    assert facts_of(corrected, tmp_path).kernel_events == ()


def xid(code: int, text: str, at: float = 0.0, pci: str = "0000:18:00") -> str:
    when = f"[{at:12.6f}] gpu-a001 kernel: " if at else ""
    return f"{when}NVRM: Xid (PCI:{pci}): {code}, {text}\n"


def test_lines_that_are_not_fatal_hide_none_that_is(tmp_path: Path) -> None:
    """An NVLink that garbles logs thousands of lines; the one that takes the node out comes last."""
    harmless = "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"
    fatal = "RLW_SRC_TRACK Fatal   XC0 i0 Link 13 (0x0409a0c2 0x00000004)"
    switch = "nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 20034, "
    log = "".join(xid(145, harmless, 100.0 + at / 10) + f"{switch}Non-fatal, Link 30\n" for at in range(3000))
    facts = facts_of(log + xid(145, fatal, 500.0) + f"{switch}Fatal, Link 31\n", tmp_path)
    assert [(one.code, one.fatal) for one in facts.xids or ()] == [(145, True), (20034, True)]


def test_a_burst_hides_none_that_comes_later_at_its_place(tmp_path: Path) -> None:
    first = "".join(xid(31, "MMU Fault", 100.0 + at / 100) for at in range(3000))  # ends at 130 s
    places = [f"Graphics SM Warp Exception on (GPC {at % 8}, TPC {at // 8}, SM 0): x" for at in range(60)]
    flood = "".join(xid(13, place, 100.0 + at) for at in range(10) for place in places)
    later = xid(31, "MMU Fault", 300.0) + xid(31, "MMU Fault", 310.0) + xid(31, "MMU Fault", 311.0)
    facts = facts_of(first + flood + later + xid(13, places[0], 4000.0), tmp_path)
    bursts = {one.code: one.bursts for one in facts.xids or ()}
    assert [one.uptime_s for one in bursts[31]] == [100.0]
    assert (bursts[13][-1].place, bursts[13][-1].uptime_s) == ("GPC 0, TPC 0", 4000.0)
    facts = facts_of(first + xid(31, "MMU Fault", 311.0), tmp_path)
    assert [one.bursts[-1].uptime_s for one in facts.xids or ()] == [311.0]


def test_bursts_without_end_are_cut(tmp_path: Path) -> None:
    facts = facts_of("".join(xid(31, "MMU Fault", 200.0 * at) for at in range(1, 20_000)), tmp_path)
    (found,) = facts.xids or ()
    assert (found.count, len(found.bursts)) == (400, MAX_BURSTS)


def test_a_text_of_a_fleets_own_is_looked_for_as_it_stands(tmp_path: Path) -> None:
    """It means nothing to the shell, to awk, or as a regular expression, and one line can't push another row's out."""
    texts = (("odd", """a.* '$(id)' "\\1" [x"""), ("plain", "heartbeat lost"), ("quiet", "never logged"))
    fact = own_lines(texts)
    log = "".join(
        f"[{at:12.6f}] gpu-a001 kernel: acme 0000:5e:00.0: Heartbeat LOST {at}\n"
        for at in (10, 20, 400, *range(410, 500))
    )
    log += "[  900.000000] gpu-a001 kernel: A.* '$(ID)' \"\\1\" [X\n" + "[  901.000000] gpu-a001 kernel: axx 1 x\n"
    log += "[  902.000000] gpu-a001 kernel: reconciler-gpu-reset begins heartbeat lost\n"
    assert fact.read({fact.name: run(fact.command, log, tmp_path)}).value == {
        "odd": ("A.* '$(ID)' \"\\1\" [X",),
        "plain": ("acme 0000:5e:00.0: Heartbeat LOST 10", "acme 0000:5e:00.0: Heartbeat LOST 400"),
        "quiet": (),
    }
    flood = "".join(f"[{at * 1000}.0] host kernel: heartbeat lost {'x' * 900}\n" for at in range(1000))
    seen = fact.read({fact.name: run(fact.command, flood, tmp_path)}).value or {}
    assert len(seen["plain"]) == MAX_OWN
    refused = tmp_path / "dmesg"
    refused.write_text("#!/bin/sh\nexit 1\n")
    refused.chmod(0o755)
    empty = fact.read({fact.name: run(fact.command, "", tmp_path)})
    assert (empty.value, set(empty.notes)) == (None, {"raised.odd", "raised.plain", "raised.quiet"})
