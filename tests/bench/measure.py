"""Measure time and memory of this process, and run work in fresh processes."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


@dataclass(slots=True)
class Spent:
    """Times in seconds. `children`: CPU of child processes that ended meanwhile."""

    wall: float = 0.0
    cpu: float = 0.0
    children: float = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure the block. The result is filled in when the block ends."""
    spent = Spent()
    wall, cpu, children = time.perf_counter(), time.process_time(), _children()
    yield spent
    spent.wall = time.perf_counter() - wall
    spent.cpu = time.process_time() - cpu
    spent.children = _children() - children


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rss_mib() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE / _MIB


def peak_mib_of(pid: int) -> float:
    """Return the peak resident memory of another process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def peak_mib() -> float:
    """Return the peak resident memory in MiB since `forget_peak`, or since the start.

    ru_maxrss would include the memory of the parent at the fork.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def forget_peak() -> None:
    """Reset `peak_mib` to the present resident memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def in_fresh_process(module: str, *arguments: str) -> Any:
    """Run `python -m module arguments`; return the JSON that it prints. It inherits stderr."""
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout)


def median_wall(command: Sequence[str], runs: int) -> float:
    """Return the median wall time of `runs` runs of a command, in seconds."""
    walls = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        walls.append(time.perf_counter() - started)
    return sorted(walls)[len(walls) // 2]


def best_cpu(command: Sequence[str], runs: int, **environment: str) -> float:
    """Return the least CPU time of `runs` runs of a command with all of its children, in seconds.

    What else the machine does makes a run dearer, never cheaper.
    """
    spent = []
    for _ in range(runs):
        before = _children()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
                       env={**os.environ, **environment})  # fmt: skip
        spent.append(_children() - before)
    return min(spent)
