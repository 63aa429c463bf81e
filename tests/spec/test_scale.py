"""Ten thousand nodes are read, checked and resolved in well under two seconds, and share what is equal."""

from __future__ import annotations

import time
import tracemalloc

from reconciler.spec import load_spec
from tests.spec.example import changed

NODES = 10_000


def spec() -> dict[str, bytes]:
    rows = ["name,bmc,host,serial,rootDisk,domains.rack,domains.pdu"]
    for number in range(NODES):
        last = f"{number // 250}.{number % 250}"
        rows.append(
            f"gpu-c{number:05d},https://10.100.{last},10.101.{last},"
            f"SN{number:07d},D{number},r{number // 16},p{number // 64}"
        )
    return {**changed(), "nodes.csv": "\n".join(rows).encode()}


def test_ten_thousand_nodes_take_little_time_and_memory() -> None:
    files = spec()
    started = time.process_time()
    fleet = load_spec(files, directory="")
    took = time.process_time() - started
    assert len(fleet.nodes) == NODES + 9
    assert len({id(node.profile) for node in fleet.nodes.values()}) == 2
    assert len({id(node.domains) for node in fleet.nodes.values()}) < NODES / 10
    assert took < 2, f"{took:.2f} s of processor time"

    tracemalloc.start()
    kept = load_spec(files, directory="")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept.nodes) == len(fleet.nodes)
    assert size / NODES < 2_000, f"{size / NODES:.0f} bytes a node"
