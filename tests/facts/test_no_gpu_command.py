"""The command that tells a host without GPUs from one without a driver, run by a real sh on a PCI bus that we write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts import gpu, host_facts
from reconciler.model.gate import CommandResult
from reconciler.model.observed import HostFacts


def facts_of(tmp_path: Path, vendors: list[str]) -> HostFacts:
    """Return the facts of a host without nvidia-smi, whose PCI devices have these vendors."""
    for at, vendor in enumerate(vendors):
        device = tmp_path / "devices" / f"0000:0{at}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    grep = tmp_path / "grep"
    grep.write_text('#!/bin/sh\nPATH=/usr/bin:/bin\nexec grep "$@"\n')
    grep.chmod(0o755)
    command = gpu.SMI.command.replace("/sys/bus/pci/devices", str(tmp_path / "devices"))
    ran = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    return host_facts({"nvidia_smi": CommandResult(ran.returncode, ran.stdout, ran.stderr)})


def test_no_device_of_nvidias_is_no_gpu(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, ["0x8086", "0x1af4", "0x15b3"])
    assert facts.gpus == ()
    assert "no device of NVIDIA's" in facts.unknown["driver"]


@pytest.mark.parametrize(
    "vendors", [["0x8086", "0x10de"], []], ids=["a device of NVIDIA's", "a bus that could not be read"]
)
def test_otherwise_a_missing_driver_hides_the_gpus(tmp_path: Path, vendors: list[str]) -> None:
    facts = facts_of(tmp_path, vendors)
    assert facts.gpus is None
    assert facts.unknown["gpus"].startswith("unsupported")
