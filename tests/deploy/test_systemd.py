"""The systemd units: what systemd says of them, and that of `run` at work under a real systemd, on a lab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import ROOT, running_lab, until
from tests.converge.soak_machine import NoMachine, SoakMachine

FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "reconciler-run.service"
SCRIPTS = Path(sysconfig.get_path("scripts"))
UNITS = sorted(FOLDER.glob("*.service"))
MOST_EXPOSED = 13  # tenths, of 100; what remains is the network, /proc and the host's own root
systemd_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


@pytest.mark.tool
@systemd_analyze
@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_systemd_understands_the_units(name: str, tmp_path: Path) -> None:
    """All but the programs, which are not installed where the test runs."""
    unit = tmp_path / name
    unit.write_text(re.sub(r"/opt/reconciler/bin/\w+", "/bin/true", (FOLDER / name).read_text()))
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert [line for line in said.stderr.splitlines() if name in line] == []
    assert said.returncode == 0
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=strickt"))
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "strickt" in said.stderr


@pytest.mark.tool
@systemd_analyze
@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_the_units_are_hardened(name: str, tmp_path: Path) -> None:
    assert exposed(FOLDER / name) == 0
    soft = tmp_path / name
    soft.write_text((FOLDER / name).read_text().replace("SystemCallFilter=@system-service\n", ""))
    assert exposed(soft) != 0


@pytest.mark.parametrize(("unit", "program"), [("worker", ["reconciler"]), ("scheduler", ["dask"])])
def test_the_programs_of_an_engine_understand_their_options(unit: str, program: list[str]) -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", (FOLDER / f"{unit}.env").read_text(), re.MULTILINE))
    text = (FOLDER / f"reconciler-{unit}.service").read_text().replace("\\\n", " ")
    [line] = re.findall(r"^ExecStart=/opt/reconciler/bin/(.*)$", text, re.MULTILINE)
    words = [part for word in line.split() for part in (settings[word[1:]].split() if word[1:] in settings else [word])]
    assert words[:1] == program
    shown = subprocess.run([SCRIPTS / words[0], words[1], "--help"], capture_output=True, text=True, check=True).stdout
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert options
    assert [option for option in options if not re.search(rf"{option}\b", shown)] == []


def exposed(unit: Path) -> int:
    command = ("systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={MOST_EXPOSED}", unit)
    done = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze judges no files before systemd 250")
    return done.returncode


def test_the_account_is_the_one_of_the_unit() -> None:
    [account] = {name for unit in UNITS for name in re.findall(r"^User=(\S+)$", unit.read_text(), re.MULTILINE)}
    assert re.search(rf"^u {account} ", (FOLDER / "reconciler.sysusers").read_text(), re.MULTILINE)


# --- under a real systemd --------------------------------------------------------------------------------------------

# $1: Python's prefix, $2: the project, $3: its packages. Nothing of it is outside the machine's own mounts.
_INSTALL = """set -e; exec 2>/run/machine/trouble
mkdir /run/machine/etc; mount -t tmpfs none /run/machine/etc; mkdir /run/machine/etc/upper /run/machine/etc/work
mount -t overlay none -o lowerdir=/etc,upperdir=/run/machine/etc/upper,workdir=/run/machine/etc/work /etc
mount -t tmpfs -o mode=755 none /opt; cd /opt; mkdir -p reconciler/bin python source packages
mount --bind "$1" python; mount --bind "$2" source; mount --bind "$3" packages
printf '#!/bin/sh\\nexport LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/source:/opt/packages\\n%s\\n' \\
    'exec /opt/python/bin/python3 -m reconciler "$@"' >reconciler/bin/reconciler
chmod 755 reconciler/bin/reconciler
systemd-sysusers /opt/source/deploy/systemd/reconciler.sysusers
cp -r /run/machine/etc-reconciler /etc/reconciler
chmod -R u=rwX,go= /etc/reconciler; chmod -R go+rX /etc/reconciler/pki /etc/reconciler/fleet-spec
chmod go+rx /etc/reconciler; chmod go+r /etc/reconciler/endpoints.json
chmod go+x /etc/reconciler/secrets; chown -R reconciler /etc/reconciler/secrets /etc/reconciler/kubeconfig
mkdir -p /etc/systemd/system/reconciler-run.service.d; cp source/deploy/systemd/*.service /etc/systemd/system
cp /run/machine/test.conf /etc/systemd/system/reconciler-run.service.d
systemctl daemon-reload
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[SoakMachine]:
    """A machine with the unit installed, for a lab."""
    with tempfile.TemporaryDirectory(prefix="unit-", dir="/var/tmp") as name:
        folder = Path(name)
        try:
            made = SoakMachine(folder)
            made.boot()
        except NoMachine as why:
            pytest.skip(f"there can be no machine with a systemd here: {why}")
        try:
            with running_lab(folder / "lab", "--scenario", "clean", time_scale=1) as lab:
                configure(folder, lab.path)
                python = Path(sys.base_prefix), ROOT, Path(sysconfig.get_path("purelib"))
                try:
                    made.run("sh", "-c", _INSTALL, "sh", *map(str, python))
                except subprocess.CalledProcessError:
                    raise AssertionError((folder / "trouble").read_text()) from None
                yield made
        finally:
            made.cut_power()


def configure(folder: Path, lab: Path) -> None:
    """Write what an operator has in /etc/reconciler, with the lab's own secrets, which its endpoints.json names."""
    etc = folder / "etc-reconciler"
    shutil.copytree(lab, etc, ignore=shutil.ignore_patterns("control.sock"))
    (etc / "run.env").write_text(
        "RUN_OPTIONS=/etc/reconciler/fleet-spec --endpoints /etc/reconciler/endpoints.json --create-ledger "
        "--listen unix:/run/reconciler/api.sock\nRECONCILER_LEDGER=/var/lib/reconciler/lab.sqlite\n"
    )
    log = "append:/run/machine/log"  # such a machine has no journal
    (folder / "test.conf").write_text(f"[Service]\nStandardOutput={log}\nStandardError={log}\n")


@pytest.mark.tool
@pytest.mark.wire
@pytest.mark.skipif("SOAK_SYSTEMD" not in os.environ, reason="make soak-systemd runs it")
def test_the_loop_works_under_it(machine: SoakMachine) -> None:
    """It reads every node with the unit's rights alone, and parks when it is stopped."""
    log = machine.folder / "log"
    machine.run("systemctl", "start", UNIT.name)
    try:
        until(lambda: ready(machine), seconds=40)
    except AssertionError:
        raise AssertionError(log.read_text()) from None
    assert machine.run("systemctl", "show", "--property=NRestarts", "--value", UNIT.name).strip() == "0"
    metrics = machine.run("curl", "-s", "--unix-socket", "/run/reconciler/api.sock", "http://api/metrics")
    answered = set(re.findall(r'^reconciler_observation_oldest_\w+\{source="(\w+)"\}', metrics, re.MULTILINE))
    assert answered == {"kubernetes", "redfish", "ssh"}
    assert "\nreconciler_observation_silent_nodes{" not in metrics, "some source gave no answer"
    assert re.search(r"^process_start_time_seconds \d", metrics, re.MULTILINE), "/proc is shown too little of"
    machine.run("systemctl", "stop", UNIT.name)
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert told[-1]["event"] == "parked"
    result = machine.run("systemctl", "show", "--property=Result", "--property=ExecMainStatus", UNIT.name)
    assert set(result.split()) == {"Result=success", "ExecMainStatus=0"}
    kept = machine.run("stat", "-c", "%U %a", "/var/lib/reconciler", "/var/lib/reconciler/lab.sqlite")
    assert kept.splitlines() == ["reconciler 700", "reconciler 600"]


def ready(machine: SoakMachine) -> bool:
    try:
        answer = machine.run("curl", "-s", "--unix-socket", "/run/reconciler/api.sock", "http://api/readyz")
        document: dict[str, Any] = json.loads(answer)
    except (subprocess.CalledProcessError, ValueError):
        return False
    return document["ready"] is True and document["role"] == "leader"
