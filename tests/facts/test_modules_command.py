"""The command that reads alarms of modules, on files as the kernel lays them out and ethtool's real output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts.modules import COMMAND, MODULES
from reconciler.model.gate import CommandResult
from tests.facts.test_counters_command import write

WELL, TROUBLED = {"carrier": "1", "carrier_down_count": "2"}, {"carrier": "1", "carrier_down_count": "3"}
DARK = {"Laser rx power low alarm"}  # what the recording of a module without a fibre says


def read(tree: Path, ports: dict[str, dict[str, str]], output: Path) -> tuple[dict[str, tuple[str, ...]], str]:
    """Read modules of these ports; return the alarms, and the calls of ethtool."""
    for name, files in ports.items():
        (tree / name / "device").mkdir(parents=True)
        for file, text in files.items():
            write(tree, f"{name}/{file}", f"{text}\n")
    calls = tree / "calls"
    write(tree, "bin/ethtool", f'#!/bin/sh\necho "$@" >>{calls}\n[ "$2" != eno9 ] && cat {output}\n')
    (tree / "bin/ethtool").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", COMMAND.replace("cd /sys/class/net", f"cd {tree}")],
        env={"PATH": f"{tree}/bin:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    found = MODULES.read({"modules": CommandResult(done.returncode, done.stdout, "")})
    return {**(found.value or {}), **dict.fromkeys(found.notes, ())}, calls.read_text() if calls.exists() else ""


@pytest.mark.parametrize(
    ("port", "is_read"),
    [
        (WELL, False),
        (TROUBLED, True),
        ({**WELL, "statistics/rx_crc_errors": "1"}, True),
        ({**TROUBLED, "carrier": "0"}, False),  # what it receives says nothing of it
        ({**TROUBLED, "device/physfn": ""}, False),
        ({"carrier_down_count": "9"}, False),  # an interface that is set down: its carrier can't be read
        ({"carrier": "1"}, False),
    ],
)
def test_only_a_port_that_is_up_and_had_trouble_has_its_module_read(
    tmp_path: Path, samples: Path, port: dict[str, str], is_read: bool
) -> None:
    found, calls = read(tmp_path, {"eno1": port}, samples / "ethtool" / "netdata_ddm-no-fiber.txt")
    assert (calls == "-m eno1\n", calls == "") == (is_read, not is_read)
    assert found == ({"eno1": tuple(DARK)} if is_read else {})


def test_a_module_that_is_well_has_no_alarm_and_one_that_is_not_read_is_not_known(
    tmp_path: Path, samples: Path
) -> None:
    ports = {"eno1": TROUBLED, "eno9": TROUBLED}
    found, _ = read(tmp_path, ports, samples / "ethtool" / "netdata_ddm.txt")
    assert found == {"module_alarms.eno9": ()}
