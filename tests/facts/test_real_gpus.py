"""Two GPUs as they were, idle and at work, and the messages of a kernel about faults of programs (recordings of ours).

An H200 and an H100 by NVIDIA's driver 580.159.04, in virtual machines with other serial numbers and UUIDs here. The
messages are those that a write beyond the memory, an address that is not aligned, an assertion, a trap and an illegal
instruction of a program have left.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts import host_facts
from reconciler.health.signals import host_signals
from reconciler.health.table import Effect
from reconciler.model.desired import DesiredInventory
from reconciler.model.gate import CommandResult
from reconciler.model.observed import HostFacts
from tests import builders as b
from tests.facts.test_smi_filter import Filter, awk, facts

__all__ = ["awk"]

FOLDER = Path(__file__).parent / "recordings"
DOCUMENTS = pytest.mark.parametrize("name", ["nvidia-smi-h200-idle.xml", "nvidia-smi-h100-at-work.xml"])
LOG = (FOLDER / "kernel-log-h200.txt").read_text()


def read(name: str, log: str = "== 360 lines\n") -> HostFacts:
    """The facts of a healthy node, with these of its GPU and of its kernel."""
    text = (FOLDER / name).read_text()
    found = host_facts({"nvidia_smi": CommandResult(0, text), "kernel_log": CommandResult(0, log)})
    assert not {"gpus", "driver", "xids", "kernel_events"} & {*found.unknown}
    return b.facts(
        gpus=found.gpus, driver=found.driver, smi=found.smi, gpu_counters=found.gpu_counters, xids=found.xids,
        kernel_events=found.kernel_events, nvlinks_active={},
    )  # fmt: skip


def hot(now: str, margin: str, slows: str = "-2 C", name: str = "nvidia-smi-h100-at-work.xml") -> HostFacts:
    text = (FOLDER / name).read_text()
    for cell, said in (("gpu_temp", now), ("gpu_temp_tlimit", margin), ("gpu_temp_slow_tlimit_threshold", slows)):
        text, count = re.subn(rf"<{cell}>[^<]*</{cell}>", f"<{cell}>{said}</{cell}>", text)
        assert count == 1
    return host_facts({"nvidia_smi": CommandResult(0, text)})


@pytest.mark.parametrize(
    ("now", "margin", "slows", "over"),
    [
        ("60 C", "25 C", "-2 C", False),
        ("87 C", "-2 C", "-2 C", False),
        ("88 C", "-3 C", "-2 C", True),
        ("88 C", "-3 C", "-3 C", False),  # B200
        ("35 C", "0 C", "0 C", False),  # as NVIDIA's mock of NVML prints it
        ("45 C", "-40 C", "-2 C", None),  # a cool H100 that gives no margin (gpud)
        ("88 C", "0 C", "N/A", None),  # A100
        ("88 C", "N/A", "-2 C", None),
    ],
)
def test_a_gpu_is_too_hot_by_its_own_margin(now: str, margin: str, slows: str, over: bool | None) -> None:
    found = hot(now, margin, slows).gpus or ()
    assert [(gpu.cells.over_limit, gpu.cells.unread) for gpu in found] == [(over, ())]
    shown = host_signals(b.profile(inventory=DesiredInventory(gpus=1)), b.observed(host=hot(now, margin, slows)))
    assert ("thermal_margin" in {signal.name for signal in shown}) is (over is True)


@pytest.mark.parametrize("margin", ["ERR!", "", "25", "25 F", "Unknown Error"])
def test_a_margin_that_can_t_be_read_is_no_evidence(margin: str) -> None:
    assert [gpu.cells.unread for gpu in hot("60 C", margin).gpus or ()] == [("over_limit",)]


@DOCUMENTS
def test_a_healthy_gpu_has_every_cell_and_no_signal(name: str) -> None:
    """At 690 of 700 W its clock is lowered for power: that is what a limit is for."""
    found = read(name)
    assert found.gpus is not None
    (gpu,) = found.gpus
    assert (found.driver, gpu.cells.unread, gpu.cells.loaded) == ("580.159.04", (), "at-work" in name)
    assert (gpu.cells.pcie_gen, gpu.cells.pcie_width, gpu.cells.recovery_action) == (5, 16, "None")
    assert gpu.cells.over_limit is False
    assert (gpu.ecc_enabled, gpu.ecc_uncorrectable, gpu.remap_pending, gpu.mig_current) == (True, 0, False, False)
    assert host_signals(b.profile(inventory=DesiredInventory(gpus=1)), b.observed(host=found)) == ()


@DOCUMENTS
def test_the_filter_keeps_what_is_read(awk: Filter, name: str) -> None:
    text = (FOLDER / name).read_text()
    passed = awk(text)
    assert (passed.exit_status, passed.stderr) == (0, "")
    assert facts(passed.stdout) == facts(text)
    assert len(passed.stdout) < 0.35 * len(text)


def test_faults_of_a_program_are_no_fault_of_its_gpu() -> None:
    """One fault writes up to three lines, and names of processes differ within it; boot messages are no signals."""
    found = read("nvidia-smi-h200-idle.xml", LOG)
    assert found.xids is not None
    assert [(xid.code, xid.device) for xid in found.xids] == [(code, "00000000:00:06.0") for code in (31, 13, 43)]
    assert found.kernel_events == ()
    signals = host_signals(b.profile(inventory=DesiredInventory(gpus=1)), b.observed(host=found))
    assert {signal.name for signal in signals} <= {"xid_31", "xid_13", "xid_43"}
    assert {signal.rule.effect for signal in signals} <= {Effect.REPORTS}
