"""The reconciler's latency from a sign of illness to its reaction, and its overhead on the hardware's own time.

A sign is an event of the cluster, a line in a kernel log, or an event of a BMC.

The lab and `reconciler run` are separate processes. All times come from the lab's record of events on its objects, so
that measuring adds nothing; only the gate's duration is read from the ledger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.converge.observe import observe
from reconciler.drivers.endpoints import load_endpoints
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import SecretStore
from reconciler.lab.control import inject_fault, read_node_events
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.records import MARK_TAINT
from reconciler.spec import load_spec
from tests.bench import measure
from tests.bench.report import Table
from tests.bench.wire import cpu_of, running_lab
from tests.builders import certificate

TARGET_MS = 1000
TARGET_OWN_S = 5
FAULT, CONDITION = "node_condition", "GpuUnhealthy"
LOGGED: tuple[str, dict[str, Any]] = ("xid_79", {"gpu": 0})  # in the kernel log alone
PUSHED: tuple[str, dict[str, Any]] = ("failed_part", {"part": "dimm", "how": "logged"})  # by the BMC alone
APART_S = 1.0  # from a mark to the next fault
PATIENCE_S = 60.0
_LOOK_S = 0.1

NodeHistory = dict[str, Any]


def section(nodes: int, events: int, burst: int, *, chain_scale: float = 1.0) -> list[Table]:
    return [*_marks(nodes, events, burst), *_chain(chain_scale)]


# --- from the fault to the mark ------------------------------------------------------------------------------------


def _marks(nodes: int, events: int, burst: int) -> list[Table]:
    with running_lab(nodes) as (directory, lab), reconciler(directory) as process:
        names = _spread(directory, 3 * events + burst)
        with under_load(lab, process) as alone:
            one_by_one = [_latency(directory, [name])[0] for name in _apart(names[:events])]
        time.sleep(5 * APART_S)
        with under_load(lab, process) as together:
            at_once = _latency(directory, names[events : events + burst])
        time.sleep(5 * APART_S)
        with under_load(lab, process) as logged:
            in_log = [mark_ms(directory, name, LOGGED) for name in _apart(names[events + burst : 2 * events + burst])]
        time.sleep(5 * APART_S)
        with under_load(lab, process) as pushed:
            by_bmc = [mark_ms(directory, name, PUSHED) for name in _apart(names[2 * events + burst :])]
    rows = [
        (f"{events} conditions, one at a time", *percentiles(one_by_one), alone.cores(), alone.average),
        (f"{burst} conditions at once", *percentiles(at_once), together.cores(), together.average),
        (f"{events} XIDs in kernel logs, one at a time", *percentiles(in_log), logged.cores(), logged.average),
        (f"{events} events of BMCs, one at a time", *percentiles(by_bmc), pushed.cores(), pushed.average),
    ]
    return [
        Table(
            f"From a watch event that shows a condition, a line in a kernel log, or an event of a BMC, to our mark, "
            f"{nodes} nodes on loopback, milliseconds",
            ("signs", "p50", "p99", "max", "cores used", "load average"),
            rows,
            (
                f"target: p99 under {TARGET_MS} ms one at a time; at once is for information",
                f"{os.cpu_count()} cores for lab, reconciler, kubectl and whatever else runs",
                "what was marked goes on: it is drained, restarted, tested and admitted while the next faults come",
            ),
        )
    ]


def _apart(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield name
        time.sleep(APART_S)


def _spread(directory: Path, count: int) -> list[str]:
    """Return nodes spread over all pools and racks."""
    names = list(load_spec(directory / "fleet-spec", directory="").nodes)
    step = len(names) / count
    spread = [names[int(at * step)] for at in range(count)]
    return spread[::2] + spread[1::2]


def _latency(directory: Path, names: Sequence[str]) -> list[float]:
    """Inject a fault into all nodes at once; return for each the milliseconds from the fault to the mark."""
    for name in names:
        inject_fault(directory, name, FAULT, {})
    return [1000 * (_at(history, _marked) - _at(history, _ill)) for history in _histories(directory, names, _marked)]


def mark_ms(directory: Path, name: str, fault: tuple[str, dict[str, Any]]) -> float:
    """Inject a fault that no watch of the cluster tells of; return the milliseconds from then to the mark."""
    began = float(read_node_events(directory, name)["now"])
    inject_fault(directory, name, *fault)
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        marks = [float(e["at"]) for e in read_node_events(directory, name)["cluster"] if _marked(e)]
        if marks and marks[-1] >= began:
            return 1000 * (min(at for at in marks if at >= began) - began)
        time.sleep(_LOOK_S)
    raise RuntimeError(f"{name}: not marked within {PATIENCE_S:g} s; see {directory}/run.log")


def _histories(directory: Path, names: Sequence[str], matches: Callable[[NodeHistory], bool]) -> list[NodeHistory]:
    """Return the events of each node, once one of them matches."""
    return [_wait_for(directory, name, matches, PATIENCE_S) for name in names]


def _wait_for(directory: Path, name: str, matches: Callable[[NodeHistory], bool], patience_s: float) -> NodeHistory:
    ends = time.monotonic() + patience_s
    while True:
        history = read_node_events(directory, name)
        if any(matches(event) for event in _since_ill(history)):
            return history
        if time.monotonic() > ends:
            raise RuntimeError(f"{name}: nothing of the kind within {patience_s:g} s; see {directory}/run.log")
        time.sleep(_LOOK_S)


def _since_ill(history: NodeHistory) -> list[NodeHistory]:
    found: list[NodeHistory] = history["cluster"]
    first = next((at for at, event in enumerate(found) if _ill(event)), len(found))
    return found[first:]


def _at(history: NodeHistory, matches: Callable[[NodeHistory], bool], *, last: bool = False) -> float:
    times = [float(event["at"]) for event in _since_ill(history) if matches(event)]
    return times[-1 if last else 0]


def _of_node(event: NodeHistory) -> bool:
    return bool(event["kind"] == "Node")


def _ill(event: NodeHistory) -> bool:
    condition = event["object"]["conditions"].get(CONDITION) if _of_node(event) else None
    return condition is not None and bool(condition["status"] == "True")


def _well(event: NodeHistory) -> bool:
    return _of_node(event) and not _ill(event)


def _ready(event: NodeHistory) -> bool:
    return _of_node(event) and bool(event["object"]["ready"] == "True")


def _marked(event: NodeHistory) -> bool:
    return _of_node(event) and any(taint["key"] == MARK_TAINT for taint in event["object"]["taints"])


def _evicted(event: NodeHistory) -> bool:
    return not _of_node(event) and event["object"]["deletion_started"] is not None


def _gone(event: NodeHistory) -> bool:
    return not _of_node(event) and bool(event["type"] == "DELETED")


# --- from the fault until the node is in service again -------------------------------------------------------------


def _chain(scale: float) -> list[Table]:
    with running_lab(4, time_scale=scale) as (directory, _), reconciler(directory):
        name = _plain(directory)
        inject_fault(directory, name, FAULT, {})
        _wait_for(directory, name, _marked, PATIENCE_S)

        def admitted(event: NodeHistory) -> bool:
            return _well(event) and not _marked(event) and _ready(event)

        history = _wait_for(directory, name, admitted, max(PATIENCE_S, 7200 / scale))
        gate_s = _gate_seconds(directory, name)
    off, on = (_power(history, word) for word in ("off", "on"))
    up = max(_at(history, _well), _ready_again(history, on))
    steps = {
        "the condition to the mark": _at(history, _marked) - _at(history, _ill),
        "the mark to the first eviction": _at(history, _evicted) - _at(history, _marked),
        "the last pod gone to the order to power off": off - TYPICAL.shutdown_s - _at(history, _gone, last=True),
        "power off to power on": on - off,
        "condition gone to the mark lifted, without the gate": _at(history, admitted) - up - gate_s,
    }
    others = {
        "drain: first eviction to last pod gone": _at(history, _gone, last=True) - _at(history, _evicted),
        "hardware: shutdown, POST, boot, kubelet, detector": up - on + TYPICAL.shutdown_s,
        "gate": gate_s,
    }
    rows = [
        *((f"own: {step}", seconds, seconds / scale) for step, seconds in steps.items()),
        ("own: together", sum(steps.values()), sum(steps.values()) / scale),
        *((other, seconds, seconds / scale) for other, seconds in others.items()),
        ("all", _at(history, admitted) - _at(history, _ill), (_at(history, admitted) - _at(history, _ill)) / scale),
    ]
    return [
        Table(
            f"Fault, mark, drain, power cycle, gate, admission at {scale:g} times the real pace, seconds",
            ("step", "of the fleet's time", "of real time"),
            rows,
            (
                f"target: own under {TARGET_OWN_S} s together at the real pace",
                "pauses between looks pass as fast as the fleet's time; computing and kubectl take their real time",
            ),
        )
    ]


def _plain(directory: Path) -> str:
    """Return a node without MIG, because restoring MIG takes time that is not part of the chain."""
    nodes = load_spec(directory / "fleet-spec", directory="").nodes.values()
    return next(node.node for node in nodes if node.profile.gpu is not None and node.profile.gpu.mig is None)


def _power(history: NodeHistory, word: str) -> float:
    """Return when the machine last went off, or on."""
    return next(float(e["at"]) for e in reversed(history["bmc"]) if e["message"] == f"System power {word}")


def _ready_again(history: NodeHistory, since: float) -> float:
    return next(float(e["at"]) for e in history["cluster"] if _ready(e) and e["at"] >= since)


def _gate_seconds(directory: Path, name: str) -> float:
    ledger = SqlLedger(directory / "ledger.db")
    try:
        last = [a for a in ledger.node(name).attempts if a.action == "run_gate" and a.ended_at is not None][-1]
    finally:
        ledger.close()
    assert last.ended_at is not None
    return (last.ended_at - last.at).total_seconds()


# --- a running reconciler ----------------------------------------------------------------------------------------


@contextmanager
def reconciler(
    directory: Path,
    ladder: Sequence[Any] = ({"action": "power_cycle"},),
    acceptance: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[int]:
    """Start `reconciler run` on an accepted fleet, wait for its first pass, and yield its process id.

    `acceptance`: what its AcceptanceProfile says instead.
    """
    _remove_limits(directory / "fleet-spec", ladder)
    edit(directory / "fleet-spec" / "policies.yaml", "AcceptanceProfile", **acceptance)
    asyncio.run(_accept(directory))
    log = directory / "run.log"
    command = [sys.executable, "-m", "reconciler", "run", str(directory / "fleet-spec"), "--listen", "off"]
    command += ["--endpoints", str(directory / "endpoints.json"), "--ledger", str(directory / "ledger.db")]
    with (
        log.open("wb") as output,
        subprocess.Popen([*command, "--log", "json"], cwd=measure.ROOT, stdout=output, stderr=output) as process,
    ):
        try:
            _wait_for_pass(log, process)
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _remove_limits(spec: Path, ladder: Sequence[Any]) -> None:
    """Edit the spec so that neither budget nor storm brake delays a node, and these rungs alone are tried."""
    edit(spec / "fleet.yaml", "Fleet", budgets=[{"scope": "fleet", "nodes": "100%"}],
          brake={"fleet": "99%", "domain": "99%"})  # fmt: skip
    edit(spec / "policies.yaml", "RemediationPolicy", ladder=list(ladder))


def edit(file: Path, kind: str, **changes: Any) -> None:
    yaml = YAML(typ="rt", pure=True)
    documents = list(yaml.load_all(file.read_text()))
    for document in documents:
        if document["kind"] == kind:
            document["spec"].update(changes)
    with file.open("w") as out:
        yaml.dump_all(documents, out)


async def _accept(directory: Path) -> None:
    """Save certificates for all nodes, as gates write them that were just met, so that nothing is left to do."""
    fleet = load_spec(directory / "fleet-spec", directory="")
    clock, overlay = RealClock(), load_endpoints(directory / "endpoints.json")
    fabric = WireFabric(fleet, clock, SecretStore.load(), overlay)
    seen = await observe(fleet, list(fleet.nodes), fabric, clock)
    await fabric.close()
    ledger = SqlLedger(directory / "ledger.db")
    try:
        with ledger.batch():
            for name, node in fleet.nodes.items():
                assert node.profile.acceptance is not None
                bars = [bar for test in node.profile.acceptance.tests for bar in test.thresholds]
                met = certificate(node, seen.nodes[name], **{bar.metric: bar.min or 0.0 for bar in bars})
                ledger.save_certificate(replace(met, issued_at=clock.now()))
    finally:
        ledger.close()


def _wait_for_pass(log: Path, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 300
    while '"event": "pass"' not in (said := log.read_text()) and '"event":"pass"' not in said:
        if process.poll() is not None or time.monotonic() > ends:
            raise RuntimeError(f"the reconciler does not run (exit status {process.returncode}): {said[-2000:]}")
        time.sleep(0.2)


# --- figures -------------------------------------------------------------------------------------------------------


def percentiles(found: Sequence[float]) -> tuple[float, float, float]:
    """Return the 50th, 99th and 100th percentile (nearest rank)."""
    ordered = sorted(found)
    return tuple(ordered[max(0, -(-len(ordered) * share // 100) - 1)] for share in (50, 99, 100))  # type: ignore[return-value]  # three


@dataclass(slots=True)
class Load:
    wall: float = 0.0
    lab: float = 0.0
    reconciler: float = 0.0
    average: float = 0.0

    def cores(self) -> str:
        return f"lab {self.lab / self.wall:.2f}, reconciler {self.reconciler / self.wall:.2f}"


@contextmanager
def under_load(lab: int, reconciler: int) -> Iterator[Load]:
    found = Load()
    began, used = time.monotonic(), (cpu_of(lab), cpu_of(reconciler))
    yield found
    found.wall = time.monotonic() - began
    found.lab, found.reconciler = cpu_of(lab) - used[0], cpu_of(reconciler) - used[1]
    found.average = os.getloadavg()[0]
