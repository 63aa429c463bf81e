"""Ten thousand nodes are read, checked and resolved with work that grows as they do, and share what is equal."""

from __future__ import annotations

import tracemalloc

from reconciler.spec import load_spec
from tests.spec.example import changed
from tests.work import calls

NODES = 10_000


def spec(nodes: int = NODES) -> dict[str, bytes]:
    rows = ["name,bmc,host,serial,rootDisk,domains.rack,domains.pdu"]
    for number in range(nodes):
        last = f"{number // 250}.{number % 250}"
        rows.append(
            f"gpu-c{number:05d},https://10.100.{last},10.101.{last},"
            f"SN{number:07d},D{number},r{number // 16},p{number // 64}"
        )
    return {**changed(), "nodes.csv": "\n".join(rows).encode()}


def test_ten_thousand_nodes_take_little_time_and_memory() -> None:
    files = spec()
    fleet, work = calls(lambda: load_spec(files, directory=""))
    assert len(fleet.nodes) == NODES + 9
    assert len({id(node.profile) for node in fleet.nodes.values()}) == 2
    assert len({id(node.domains) for node in fleet.nodes.values()}) < NODES / 10
    _, of_half = calls(lambda: load_spec(spec(NODES // 2), directory=""))
    assert work < 2.1 * of_half, "it grows with the nodes, not with their square"
    assert work / NODES < 500, "in all: `make bench` has the seconds"

    tracemalloc.start()
    kept = load_spec(files, directory="")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept.nodes) == len(fleet.nodes)
    assert size / NODES < 2_000, f"{size / NODES:.0f} bytes a node"
