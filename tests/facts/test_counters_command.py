"""The command that reads counters of errors, on a tree of files as the kernel lays it out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.counters import COMMAND, COUNTERS
from reconciler.model.gate import CommandResult

AER = "RxErr 0\nBadTLP {0}\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nTOTAL_ERR_{1} {0}\n"


def read(tree: Path) -> CommandResult:
    done = subprocess.run(
        ["sh", "-c", COMMAND.replace("cd /sys", f"cd {tree}")], capture_output=True, text=True, timeout=20, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def install_ethtool(tree: Path, output: Path) -> str:
    """Put an ethtool first on PATH that prints a file, as `ethtool -S` does; return PATH."""
    program = tree / "bin" / "ethtool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = -S ] && cat {output}\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def write(tree: Path, path: str, text: str) -> None:
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_what_is_above_zero_is_printed_and_understood(tmp_path: Path) -> None:
    ports = "class/infiniband/mlx5_{}/ports/1/{}"
    write(tmp_path, ports.format(0, "counters/link_downed"), "4\n")
    write(tmp_path, ports.format(0, "counters/symbol_error"), "0\n")
    write(tmp_path, ports.format(0, "counters/port_xmit_data"), "123456\n")  # traffic, which is no error
    write(tmp_path, ports.format(1, "hw_counters/local_ack_timeout_err"), "17\n")
    write(tmp_path, "devices/eth/net/ens1/carrier_down_count", "2\n")
    for name in ("class/net/ens1", "class/net/cali0"):  # that of a container has no device
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path, "class/net/cali0/carrier_down_count", "8\n")
    (tmp_path / "class/net/ens1/device").symlink_to(tmp_path / "devices/eth")
    write(tmp_path, "bus/pci/devices/0000:1b:00.0/aer_dev_correctable", AER.format(31, "COR"))
    write(tmp_path, "bus/pci/devices/0000:1b:00.0/aer_dev_fatal", AER.format(0, "FATAL"))
    answer = read(tmp_path)
    assert answer.stderr == ""
    assert COUNTERS.read({"counters": answer}).value == {
        "mlx5_0/1": {"link_downed": 4},
        "mlx5_1/1": {"local_ack_timeout_err": 17},
        "ens1": {"carrier_downs": 2},
        "0000:1b:00.0": {"aer_corrected": 31},
    }


def test_a_machine_without_any_of_it_has_no_counter_above_zero(tmp_path: Path) -> None:
    assert COUNTERS.read({"counters": read(tmp_path)}).value == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("     rx_crc_errors_phy: 12", {"fcs_errors": 12}),
        ("     rx_fcs_err_frames: 3", {"fcs_errors": 3}),
        ("     frames_rx_bad_fcs: 0", {}),
        ("     rx_packets: 99", {}),
        ("     rx_pcs_symbol_err_phy: 5", {"fec_uncorrected": 5}),
        ("     rx_fec_uncorrectable_blocks: 6", {"fec_uncorrected": 6}),
        ("     module_high_temp: 2", {"module_hot": 2}),
        ("     module_bus_stuck: 1\n     module_bad_shorted: 2", {"module_shorted": 3}),
    ],
)
def test_statistics_are_read_by_the_names_of_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, found: dict[str, int]
) -> None:
    (tmp_path / "class/net/ens1/device").mkdir(parents=True)
    (tmp_path / "class/net/cali0").mkdir(parents=True)  # of a container: it has no device
    output = tmp_path / "statistics"
    output.write_text(f"NIC statistics:\n     rx_bytes: 7\n{line}\n")
    monkeypatch.setenv("PATH", install_ethtool(tmp_path, output))
    assert COUNTERS.read({"counters": read(tmp_path)}).value == ({"ens1": found} if found else {})


def test_statistics_as_a_real_driver_prints_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: Path
) -> None:
    (tmp_path / "class/net/ens1/device").mkdir(parents=True)
    monkeypatch.setenv("PATH", install_ethtool(tmp_path, samples / "ethtool" / "rocm_ethtool_S_enp132s0.txt"))
    assert COUNTERS.read({"counters": read(tmp_path)}).value == {}
