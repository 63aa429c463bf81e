"""Two GPUs as they were, idle and at work, and the messages of a kernel about faults of programs (recordings of ours).

An H200 and an H100 by NVIDIA's driver 580.159.04, in virtual machines with other serial numbers and UUIDs here. The
messages are those that a write beyond the memory, an address that is not aligned, an assertion, a trap and an illegal
instruction of a program have left.
"""

from __future__ import annotations

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


@DOCUMENTS
def test_a_healthy_gpu_has_every_cell_and_no_signal(name: str) -> None:
    """At 690 of 700 W its clock is lowered for power: that is what a limit is for."""
    found = read(name)
    assert found.gpus is not None
    (gpu,) = found.gpus
    assert (found.driver, gpu.cells.unread, gpu.cells.loaded) == ("580.159.04", (), "at-work" in name)
    assert (gpu.cells.pcie_gen, gpu.cells.pcie_width, gpu.cells.recovery_action) == (5, 16, "None")
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
