"""Routes as `ibtracert` prints them; what breaks off, or is of another pair, tells nothing.

`recordings/ibtracert.txt` is what ibtracert 44.0 printed of a fabric of two leaves and two spines that ibsim 0.10
simulates and opensm 3.3.23 has routed. A test runs the real programs where they are installed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reconciler.gate.fabric.measured import legs
from reconciler.gate.fabric.results import UNKNOWN, Spines
from reconciler.gate.fabric.routes import Ends, ends_of, spines_of, trace_command
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.mutations import FOLDER

TEST = GateTest("rails", "perftest", {"rails": "mlx5_0, mlx5_1", "partners": 2}, (), 60.0)
TRACE = (FOLDER / "ibtracert.txt").read_text()
PERFTEST = (FOLDER / "perftest.txt").read_text()
SPINE = "spine-1 0x0000000000200003"
CABLES = ("leaf-a port 8, spine-1 port 1", "leaf-b port 8, spine-1 port 2")
ENDS = (Ends("mlx5_0", 2, 8),)
PRELOAD = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"


def told(trace: str) -> Spines:
    return spines_of(TEST, ENDS, f"there mlx5_0\n{trace}back mlx5_0\n")


def test_the_switch_in_the_middle_is_the_spine() -> None:
    known = told(TRACE)
    assert (known.there, known.back) == ((SPINE, ""), ()), "the way back, and the other rail, are unknown"
    assert (known.there_cables, known.back_cables) == ((CABLES, ()), ())
    there, back = legs(TEST, TestResult("rails", "perftest", Verdict.PASS, (), {}), told(TRACE))
    assert (there.spines, back.spines) == ((SPINE, ""), ())
    assert (there.cables, back.cables) == ((CABLES, ()), ())


def test_of_a_trace_that_is_not_whole_nothing_is_known() -> None:
    lines = TRACE.splitlines(keepends=True)
    broken = ["".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines))]
    broken += [TRACE[:end] for end in range(len(TRACE) - 1)]
    broken += [TRACE + TRACE, TRACE.replace("lid 2-2", "lid 4-4"), TRACE.replace("lid 8-8", "lid 9-9"), ""]
    assert [trace for trace in broken if told(trace) != UNKNOWN] == []


def test_a_way_behind_one_leaf_has_no_spine_and_one_of_five_switches_the_topmost() -> None:
    lines = TRACE.splitlines(keepends=True)
    assert told("".join([*lines[:2], *lines[4:]])) == UNKNOWN
    up = '[3] -> switch port {0x0000000000200009}[4] lid 19-19 "core-1"\n'
    down = '[9] -> switch port {0x0000000000200010}[4] lid 20-20 "spine-7"\n'
    assert told("".join([*lines[:3], up, down, *lines[3:]])).there == ("core-1 0x0000000000200009", "")


def test_a_trace_under_another_head_counts_for_no_rail() -> None:
    assert spines_of(TEST, ENDS, f"there mlx5_1\n{TRACE}") == UNKNOWN
    assert spines_of(TEST, ENDS, f"there mlx5_0\n{TRACE}there mlx5_0\n{TRACE}") == UNKNOWN, "which of them is it?"


def test_perftest_tells_both_ends_over_infiniband_alone() -> None:
    assert ends_of(TEST, [CommandResult(0, PERFTEST)]) == (), "Ethernet has no LIDs"
    real = PERFTEST.replace("Link type       : Ethernet", "Link type       : IB")
    for end, lid in (("local", "0x02"), ("remote", "0x1c4")):
        real = real.replace(f"{end} address: LID 0000", f"{end} address: LID {lid}")
    assert ends_of(TEST, [CommandResult(0, "Version: 6.06\n"), CommandResult(0, real)]) == (Ends("mlx5_0", 2, 452),)
    assert ends_of(TEST, [CommandResult(0, real.replace("remote address", "remote"))]) == ()
    assert trace_command((Ends("mlx5_0", 2, 452),))[-3:] == ("mlx5_0", "2", "452")


NET = "".join(
    f'Switch 8 "{leaf}"\n[1] "{one}"[1]\n[2] "{two}"[1]\n[7] "spine-0"[{port}]\n[8] "spine-1"[{port}]\n\n'
    f'Hca 1 "{one}"\n[1] "{leaf}"[1]\n\nHca 1 "{two}"\n[1] "{leaf}"[2]\n\n'
    for leaf, one, two, port in (("leaf-a", "node1", "node2", 1), ("leaf-b", "node3", "node4", 2))
) + "".join(f'Switch 8 "spine-{at}"\n[1] "leaf-a"[{7 + at}]\n[2] "leaf-b"[{7 + at}]\n\n' for at in range(2))


@pytest.fixture
def subnet(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Simulate a fabric and route it; yield the environment in which programs see it."""
    programs = [shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("ibsim", "opensm", "ibtracert")]
    if None in programs or not Path(PRELOAD).exists():
        pytest.skip("needs ibsim-utils, opensm and infiniband-diags")
    (tmp_path / "net").write_text(NET)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    seen = {
        **os.environ, "PATH": "/usr/sbin:/usr/bin:/bin", "LD_PRELOAD": PRELOAD, "SIM_HOST": "node1",
        "IBSIM_SERVER_NAME": "127.0.0.1", "IBSIM_SERVER_PORT": port, "OSM_TMP_DIR": str(tmp_path),
        "OSM_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    simulator = subprocess.Popen(
        ["ibsim", "-r", "-s", "-n", "-l", port, "net"], cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(0.5)
        subprocess.run(
            ["opensm", "-o", "-f", "log"], cwd=tmp_path, env=seen, check=True, capture_output=True, timeout=60
        )
        yield seen
    finally:
        simulator.kill()
        simulator.wait()


@pytest.mark.tool
def test_the_real_program_tells_the_spine_of_each_way(subnet: Mapping[str, str]) -> None:
    lids = {}
    for node in ("node1", "node4"):
        asked = subprocess.run(["ibaddr"], env={**subnet, "SIM_HOST": node}, check=True, capture_output=True, text=True)
        lids[node] = int(asked.stdout.split(" LID start ")[1].split()[0], 0)
    here = subprocess.run(["ibstat", "-l"], env=subnet, check=True, capture_output=True, text=True).stdout.strip()
    test = GateTest("rails", "perftest", {"rails": here, "partners": 2}, (), 60.0)
    ends = (Ends(here, lids["node1"], lids["node4"]),)
    ran = subprocess.run(trace_command(ends), env=subnet, check=True, capture_output=True, text=True, timeout=30)
    spines = spines_of(test, ends, ran.stdout)
    assert {spine[:7] for way in spines[:2] for spine in way} == {"spine-0", "spine-1"}, ran.stdout
    gone = (Ends(here, lids["node1"], 99),)
    failed = subprocess.run(trace_command(gone), env=subnet, check=False, capture_output=True, text=True, timeout=30)
    assert spines_of(test, gone, failed.stdout) == UNKNOWN
