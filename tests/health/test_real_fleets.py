"""Healthy machines of common kinds: none is drained for how it is built, and none is doubted for what it can't say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.diff.gpus import unread_cells
from reconciler.drivers.ssh.facts import host_facts
from reconciler.health.signals import signals
from reconciler.health.table import Effect
from reconciler.model.desired import DesiredInventory
from reconciler.model.gate import CommandResult
from reconciler.model.gpus import Gpu
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


@pytest.mark.parametrize("name", WELL)
def test_a_well_machine_is_not_drained_and_can_pass(samples: Path, name: str) -> None:
    gpus = gpus_of(samples, name)
    assert acted_upon(gpus) == set()
    assert unread_cells(gpus) == ""


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
    assert unread_cells([replace(blank, name="NVIDIA A100-SXM4-40GB")]), "a board has"
