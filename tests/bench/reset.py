"""A fault that a reset of the GPU heals, at the real pace: from the sign until the node is in service again.

Signs are lines in kernel logs, on many nodes at once. Times of actions are the ledger's; the sign's and the mark's are
the lab's. What is ours is the rest: what neither the drain, the GPU's reset nor the gate took.

The gate is measured as two profiles ask for it. The minimum set has DCGM's level 2, which takes two minutes by itself
(NVIDIA, dcgmi-diag: "normally lasting approximately two minutes"), so no sequence with it ends within two. READY is a
profile's own row: level 1, which NVIDIA means as the readiness metric before work is deployed, copies between all
GPUs, and a collective over all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.control import inject_fault, read_node_events
from reconciler.model.records import MARK_TAINT, Attempt
from reconciler.spec import load_spec
from tests.bench.latency import percentiles, reconciler, under_load
from tests.bench.report import Table
from tests.bench.wire import running_lab

FAULT, CODE = "xid", 119
LADDER = [{"action": "gpu_reset"}, {"action": "power_cycle"}]
OTHERS = ("drain", "gpu_reset", "run_gate")  # of which the hardware, the pods and the tests are the most
READY: dict[str, Any] = {
    "after": {"gpu_reset": ["ready", "links", "nccl"]},
    "phases": [
        {"name": "inventory", "tests": [{"name": "inventory", "tool": "inventory"}, {"name": "xids", "tool": "xid"}]},
        {
            "name": "burn",
            "tests": [
                {"name": "ready", "tool": "dcgmi-diag", "args": {"level": 1}, "timeout": "2m"},
                {"name": "dcgm", "tool": "dcgmi-diag", "args": {"level": 2}, "timeout": "10m"},
                {
                    "name": "links", "tool": "nvbandwidth", "args": {"testcases": "device_to_device_memcpy_read_ce"},
                    "thresholds": [{"metric": "device_to_device_memcpy_read_ce.min", "min": 340}], "timeout": "5m",
                },
                {
                    "name": "nccl", "tool": "nccl-tests",
                    "args": {"collective": "all_reduce", "minBytes": "8G", "maxBytes": "16G"},
                    "thresholds": [{"metric": "busbw_peak", "min": 440}], "timeout": "10m",
                },
            ],
        },
    ],
}  # fmt: skip
PROFILES = {"the minimum set": {}, "DCGM's level 1, copies between GPUs and a collective": READY}
MARKED, HEALED, JUDGED, SERVES = "sign -> cordon", "cordon -> healed", "healed -> gate", "gate -> in service"
WHOLE, OURS = "sign -> in service", "ours: without drain, reset and gate"
GOALS = {
    MARKED: "p99 < 1", HEALED: "", JUDGED: "", SERVES: "", WHOLE: "< 120", OURS: "< 5",
    **{f"of it: {action}": "" for action in OTHERS},
}  # fmt: skip
PATIENCE_S = 600.0
_LOOK_S = 1.0


def section(nodes: int, faults: int, *, scale: float = 1.0) -> list[Table]:
    """Let so many of the nodes log an Xid at once, and return what each phase took, for each profile."""
    return [_table(nodes, faults, scale, words, profile) for words, profile in PROFILES.items()]


def _table(nodes: int, faults: int, scale: float, words: str, profile: Mapping[str, Any]) -> Table:
    with (
        running_lab(nodes, time_scale=scale) as (directory, lab),
        reconciler(directory, ladder=LADDER, acceptance=profile) as process,
    ):
        names = _spread(directory, faults)
        with under_load(lab, process) as load:
            began = {name: inject(directory, name) for name in names}
            ends = time.monotonic() + PATIENCE_S
            waiting = set(names)
            while waiting and time.monotonic() < ends:
                time.sleep(_LOOK_S)
                waiting = {name for name in waiting if _served_again(directory, name, began[name]) is None}
        phases = [_phases(directory, name, began[name]) for name in names if name not in waiting]
    rows = [
        (phase, *(f"{seconds:.2f}" for seconds in percentiles([one[phase] for one in phases])), goal)
        for phase, goal in GOALS.items()
    ]
    told = f"{len(phases)} of {faults} nodes are back in service"
    ours, lab_s = load.reconciler / faults, load.lab / faults
    return Table(
        f"{faults} GPUs of {nodes} nodes log Xid {CODE} at once, and a reset heals them; a gate of {words}; seconds, "
        f"at {scale:g} times the real pace",
        ("phase", "p50", "p99", "max", "goal"),
        rows,
        (
            told,
            f"CPU of each of them: reconciler {ours:.2f} s, lab {lab_s:.2f} s, over {load.wall:.0f} s in which all "
            "nodes are looked at, too",
            f"cores used: {load.cores()}; {os.cpu_count()} are there; load average {load.average:.1f}",
        ),
    )


def _spread(directory: Path, count: int) -> list[str]:
    """Return nodes spread over all pools and racks."""
    nodes = load_spec(directory / "fleet-spec", directory="").nodes.values()
    names = [node.node for node in nodes if node.profile.gpu is not None and node.profile.gpu.mig is None]
    return [names[int(at * len(names) / count)] for at in range(count)]


def inject(directory: Path, name: str) -> float:
    now = float(read_node_events(directory, name)["now"])
    inject_fault(directory, name, FAULT, {"gpu": 2, "code": CODE, "heals": "reset"})
    return now


def marks(directory: Path, name: str) -> list[tuple[float, bool]]:
    """Return when the node's object changed, and whether it had our mark then."""
    events = read_node_events(directory, name)["cluster"]
    taints = [(float(one["at"]), one["object"]["taints"]) for one in events if one["kind"] == "Node"]
    return [(at, any(taint["key"] == MARK_TAINT for taint in found)) for at, found in taints]


def _served_again(directory: Path, name: str, since: float) -> float | None:
    """Return when the mark was lifted again; None = it is not."""
    seen = [one for one in marks(directory, name) if one[0] >= since]
    first = next((at for at, marked in seen if marked), None)
    return None if first is None else next((at for at, marked in seen if at > first and not marked), None)


def _phases(directory: Path, name: str, since: float) -> dict[str, float]:
    """Return the seconds of each phase of one node."""
    back = _served_again(directory, name, since)
    marked = next(at for at, is_marked in marks(directory, name) if is_marked and at >= since)
    assert back is not None
    ledger = SqlLedger(directory / "ledger.db")
    try:
        attempts = ledger.node(name).attempts
    finally:
        ledger.close()
    cordoned, healed, judged = (_ended(attempts, action) for action in ("mark", "gpu_reset", "run_gate"))
    whole = back - since
    return {
        MARKED: marked - since,
        HEALED: healed - cordoned,
        JUDGED: judged - healed,
        SERVES: back - marked - (judged - cordoned),
        WHOLE: whole,
        OURS: whole - sum(_took(attempts, action) for action in OTHERS),
        **{f"of it: {action}": _took(attempts, action) for action in OTHERS},
    }


def _ended(attempts: Sequence[Attempt], action: str) -> float:
    """Return when the last attempt at an action ended, by the ledger's clock, which is not that of the lab's events."""
    return [one.ended_at.timestamp() for one in attempts if one.action == action and one.ended_at is not None][-1]


def _took(attempts: Sequence[Attempt], action: str) -> float:
    """Return how long the attempts at an action took."""
    spans = [(one.at, one.ended_at) for one in attempts if one.action == action]
    return sum((ended - began).total_seconds() for began, ended in spans if ended is not None)
