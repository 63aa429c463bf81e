"""Healthy machines of common kinds: none is drained for how it is built, and none is doubted for what it can't say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.diff.facts import managed
from reconciler.diff.gpus import unread_cells
from reconciler.diff.readings import Missing
from reconciler.drivers.ssh.facts import host_facts
from reconciler.gate.tools import TOOLS
from reconciler.health.signals import signals
from reconciler.health.table import Effect
from reconciler.model.desired import DesiredInventory, GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gpus import Gpu
from reconciler.model.observed import Link
from tests import builders as b

# Recorded on machines that were well: AWS g5 (A10G) and g4dn (T4) give a GPU 8 of its 16 lanes.
WELL = (
    "mocknvml_a100_healthy",
    "mocknvml_b200_healthy",
    "mocknvml_gb200_healthy",
    "mocknvml_gb300_healthy",
    "mocknvml_l40s_healthy",
    "mocknvml_t4_healthy",
    "netdata_rtx-4090-driver-535",
    "netdata_tesla-p100",
    "telegraf_a10g",
    "telegraf_rtx-4000-sff-ada-v13",
    "telegraf_tesla-t4",
)


def gpus_of(samples: Path, name: str) -> tuple[Gpu, ...]:
    text = (samples / "nvidia-smi-xml" / f"{name}.xml").read_text()
    found = host_facts({"nvidia_smi": CommandResult(0, text)}).gpus
    assert found is not None
    return found


def acted_upon(gpus: tuple[Gpu, ...]) -> set[str]:
    profile = b.profile(inventory=DesiredInventory(gpus=len(gpus)))
    found = signals(profile, b.observed(host=b.facts(gpus=gpus, nvlinks_active={})))
    return {signal.name for signal in found if signal.effect is not Effect.REPORTS}


def accepted(tool: str, gpus: tuple[Gpu, ...], **facts: Any) -> TestResult:
    node = b.node(profile=b.profile(inventory=DesiredInventory(gpus=len(gpus))))
    seen = b.observed(host=b.facts(gpus=gpus, nvlinks_active={}, **facts))
    return TOOLS[tool].judge(GateTest(tool, tool, {}, (), 60.0), node, seen, ())


@pytest.mark.parametrize("name", WELL)
def test_a_well_machine_is_not_drained_and_can_pass(samples: Path, name: str) -> None:
    """Also where persistence mode is off, which is a setting, and on boards that have no ECC."""
    gpus = gpus_of(samples, name)
    assert acted_upon(gpus) == set()
    assert unread_cells(gpus) == ""
    for tool in ("inventory", "xid"):
        assert (tool, accepted(tool, gpus).verdict) == (tool, Verdict.PASS), accepted(tool, gpus).reasons


def test_a_port_of_another_rate_is_no_reason_to_refuse_a_node() -> None:
    ports = tuple(Link(f"mlx5_{at}/1", True, 400.0 if at < 8 else 200.0, "infiniband") for at in range(9))
    assert accepted("xid", (b.gpu(0), b.gpu(1)), links=ports).verdict is Verdict.PASS


def test_a_fabric_that_mends_itself_is_judged_when_it_has_done_so() -> None:
    moving = b.gpu(0, cells=replace(b.CELLS, fabric_health="route_recovery_in_progress True"))
    assert accepted("xid", (moving, b.gpu(1))).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize("name", ["Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA T4", "NVIDIA H100 PCIe", "NVIDIA L4"])
def test_a_board_that_has_ecc_and_gives_no_counters_does_not_pass(name: str) -> None:
    blank = tuple(b.gpu(at, name=name, ecc_enabled=None, ecc_uncorrectable=None) for at in (0, 1))
    assert accepted("xid", blank).verdict is Verdict.UNJUDGED


def test_a_board_that_is_sold_with_ecc_on_does_not_pass_without() -> None:
    off = tuple(b.gpu(at, ecc_enabled=False, ecc_uncorrectable=None) for at in (0, 1))
    assert accepted("xid", off).verdict is Verdict.FAIL


def test_error_counters_are_not_missed_where_ecc_is_off() -> None:
    """A40s and L40s of render and VDI fleets run without ECC: their counters are N/A, their rows are still told."""
    off = [
        b.gpu(at, name="NVIDIA A40", ecc_enabled=False, ecc_uncorrectable=None, ecc_uncorrectable_ever=None,
              cells=replace(b.CELLS, sram_threshold_exceeded=None))
        for at in (0, 1)
    ]  # fmt: skip
    assert unread_cells(off) == ""
    assert unread_cells([off[0], b.gpu(1, name="NVIDIA A40")]) == "", "one with ECC does not speak for one without"
    assert "remap_failed" in unread_cells([replace(off[0], remap_failed=None), off[1]])
    assert "ecc_uncorrectable" in unread_cells([replace(off[0], ecc_enabled=True), off[1]])


@pytest.mark.parametrize("name", ["NVIDIA A40-48Q", "GRID A100-40C", "NVIDIA H100-4-40C", "NVIDIA L40S-2Q"])
def test_a_virtual_gpu_has_no_memory_of_its_own_to_repair(name: str) -> None:
    blank = b.gpu(0, name=name, ecc_enabled=None, ecc_uncorrectable=None, remap_pending=None, remap_failed=None,
                  ecc_uncorrectable_ever=None, remapped_uncorrectable=None)  # fmt: skip
    assert unread_cells([blank]) == ""
    assert accepted("xid", (blank,)).verdict is Verdict.PASS
    assert unread_cells([replace(blank, name="NVIDIA A100-SXM4-40GB")]), "a board has"


def test_a_board_without_nvlink_is_declared_to_have_none_and_passes() -> None:
    """H100 PCIe and L40S: nvidia-smi nvlink -s prints nothing, or that all links are inactive; its exit status is 0."""
    node = b.node(profile=b.profile(inventory=DesiredInventory(gpus=2, nvlinks_per_gpu=0)))
    pcie = (b.gpu(0, name="NVIDIA H100 PCIe"), b.gpu(1, name="NVIDIA H100 PCIe"))
    read = next(row.read for row in managed(node.profile) if row.path == "hardware.nvlinks_per_gpu")
    inactive = "GPU 0: NVIDIA H100 PCIe (UUID: GPU-0)\n{0}GPU 1: NVIDIA H100 PCIe (UUID: GPU-1)\n{0}".format(
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    )
    for said in ("", inactive):
        facts = host_facts({"nvlink": CommandResult(0, said)})
        seen = b.facts(gpus=pcie, nvlinks_active=facts.nvlinks_active, unknown=facts.unknown)
        assert read(b.observed(host=seen)) == 0, said
    torn = host_facts({"nvlink": CommandResult(0, inactive.replace("NVML: ", "???", 1).replace("all links", "", 1))})
    half = b.facts(gpus=pcie, nvlinks_active=torn.nvlinks_active, unknown=torn.unknown)
    assert isinstance(read(b.observed(host=half)), Missing)
    silent = host_facts({"nvlink": CommandResult(127, "")})
    none = b.facts(gpus=pcie, nvlinks_active=silent.nvlinks_active, unknown=silent.unknown)
    assert isinstance(read(b.observed(host=none)), Missing)


def test_storage_ports_of_another_rate_are_declared_by_the_rate_of_the_slowest() -> None:
    """Eight ports of 400 Gb/s for collectives and two of 200 for storage; one of those at 100 is seen."""
    inventory = DesiredInventory(gpus=2, rdma_ports=10, rdma_rate_gbps=200)
    node = b.node(profile=b.profile(inventory=inventory))
    for last, wanted in ((200.0, Verdict.PASS), (100.0, Verdict.FAIL)):
        rates = (*[400.0] * 8, 200.0, last)
        links = tuple(Link(f"mlx5_{at}/1", True, rate, "infiniband") for at, rate in enumerate(rates))
        seen = b.observed(host=b.facts(links=links))
        for tool in ("inventory", "xid"):
            assert TOOLS[tool].judge(GateTest(tool, tool, {}, (), 60.0), node, seen, ()).verdict is wanted


def test_a_node_without_nvme_cli_is_told_what_it_lacks() -> None:
    answer = CommandResult(0, "== /dev/nvme0 S1 PM9A3\n\n", "sh: 4: nvme: not found")
    facts = host_facts({"nvme": answer})
    node = b.node(profile=b.profile(inventory=DesiredInventory(gpus=2, drives=1)))
    read = next(row.read for row in managed(node.profile) if row.path == "hardware.smart_logs")
    found = read(b.observed(host=b.facts(nvme=facts.nvme, unknown=facts.unknown)))
    assert isinstance(found, Missing)
    assert found.detail == "drive S1 gives no SMART log (is nvme-cli on the host?)"
