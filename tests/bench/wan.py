"""Bytes that a pass sends for a node: a lab and its reader in a network namespace of their own; takes root.

Run as a module, this is the process in the namespace: `python -m tests.bench.wan NODES` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

from tests.bench import measure, wire
from tests.bench.report import Table

MTU = 1500
_PASSES = ("first pass: logins, inventories", "second pass: sessions kept", "later pass", "later pass with inventories")


def section(nodes: int) -> list[Table]:
    command = ("unshare", "--net", sys.executable, "-m", "tests.bench.wan", str(nodes))
    ended = subprocess.run(command, cwd=measure.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    rows = [(name, *found) for name, found in zip(_PASSES, json.loads(ended.stdout), strict=True)]
    notes = ("both directions, with all headers; the cluster is not read", "a lab's nvidia-smi document is sent whole")
    return [Table(f"Bytes on the wire, {nodes} nodes", ("pass", "bytes/node", "packets/node"), rows, notes)]


def _sent() -> tuple[int, int]:
    """Return the bytes and packets of the loopback so far."""
    [line] = [one for one in Path("/proc/net/dev").read_text(encoding="ascii").splitlines() if "lo:" in one]
    received = line.partition(":")[2].split()
    return int(received[0]), int(received[1])


async def _passes(directory: Path, lab: int) -> list[tuple[float, float]]:
    from reconciler.app.clocks import RealClock
    from reconciler.converge.observer import InProcessObserver, shards_of
    from reconciler.model.observed import Observed, Silent
    from reconciler.model.vocab import UnknownReason
    from tests.bench.wire_passes import Bench

    bench, clock = Bench(directory, lab), RealClock()
    fabric, names = bench.fabric(), list(bench.fleet.nodes)
    observer, before = InProcessObserver(fabric, clock), dict[str, Observed]()
    apart = Silent(clock.now(), UnknownReason.NOT_ASKED, "the cluster is not read")
    found = []
    for number in range(len(_PASSES)):
        began = _sent()
        kept = {} if number == len(_PASSES) - 1 else before
        async with aclosing(observer.observe(shards_of(bench.fleet, names, kept, clock, 0.0))) as parts:
            async for seen in parts:
                for name, own in seen.nodes.items():
                    assert not any(isinstance(one, Silent) for one in own), own
                    before[name] = Observed(name, *own, apart)
        sent, packets = (now - then for now, then in zip(_sent(), began, strict=True))
        found.append((sent / len(names), packets / len(names)))
    await fabric.close()
    return found


if __name__ == "__main__":
    subprocess.run(("ip", "link", "set", "lo", "up", "mtu", str(MTU)), check=True)
    with wire.running_lab(int(sys.argv[1])) as (directory, lab):
        json.dump(asyncio.run(_passes(directory, lab)), sys.stdout)
