"""Observation of a lab on loopback: its speed and its CPU cost for the reconciler, by source and tier.

The lab and the reconciler are separate processes, so that their CPU is measured separately.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import measure
from tests.bench.report import Table

TARGET_MS = 25
_PATIENCE_S = 180
_TICK = os.sysconf("SC_CLK_TCK")


def section(nodes: int) -> list[Table]:
    with running_lab(nodes) as (directory, pid):
        found = measure.in_fresh_process("tests.bench.wire_passes", str(directory), str(pid))
    passes = [
        (
            name,
            one["wall"],
            nodes / one["wall"],
            *(1000 * one[part] / nodes for part in ("cpu", "children", "lab")),
            1000 * (one["cpu"] + one["children"]) / nodes,
        )
        for name, one in found["passes"].items()
    ]
    sources = [
        (
            name,
            1000 * one["ours"] / nodes,
            1000 * one["floor"] / nodes if "floor" in one else None,
            one["ours"] / one["floor"] if "floor" in one else None,
            one.get("gets"),
        )
        for name, one in found["sources"].items()
    ]
    return [
        Table(
            f"Observation of {nodes} nodes on loopback: a pass over all sources, and the CPU of the reconciler",
            ("pass", "seconds", "nodes/s", "ours ms/node", "kubectl ms/node", "lab ms/node", "ours + kubectl"),
            passes,
            (
                f"target: {TARGET_MS} ms of CPU per node for a hot pass, ours and kubectl's together",
                "kubectl reads all nodes at once: the fewer they are, the more each of them bears",
                "the lab shares the cores with the reconciler: where real nodes answer, nodes/s are higher",
            ),
        ),
        Table(
            f"Observation of {nodes} nodes: CPU milliseconds per node, by source and tier",
            ("source", "ours", "floor", "ours/floor", "GETs"),
            sources,
            (
                "floor, redfish: one requests.Session per BMC that logs in and GETs the same URIs, reading nothing",
                "floor, ssh: bare asyncssh, its defaults, the same facts program, reading nothing",
                "floor, kubectl: subprocess.run of the same `get --raw`, and json.loads",
            ),
        ),
    ]


@contextmanager
def running_lab(nodes: int, *options: str, time_scale: float = 1.0) -> Iterator[tuple[Path, int]]:
    """Run a lab; yield its directory and process. In real time its machines do not change meanwhile.

    `options`: more of `lab up`.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        command = [sys.executable, "-m", "reconciler", "lab", "up", "--nodes", str(nodes), "--dir", name]
        command += ["--scenario", "clean", "--time-scale", f"{time_scale:g}", *options]
        log = directory / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(command, cwd=measure.ROOT, stdout=output, stderr=output) as lab,
        ):
            try:
                _wait_for(directory / "ready", lab, log)
                yield directory, lab.pid
            finally:
                lab.send_signal(signal.SIGINT)
                lab.wait(60)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process with its threads and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def _wait_for(file: Path, lab: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not file.exists():
        if lab.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the lab did not come up (exit status {lab.returncode}): {log.read_text()}")
        time.sleep(0.1)
