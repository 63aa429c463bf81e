"""`python -m tests.bench`: print tables or JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence

from tests.bench import (
    documents,
    engine,
    engine_plans,
    engine_sites,
    fabric,
    hosts,
    hot_spots,
    html,
    installer,
    judges,
    latency,
    leader,
    live,
    loop_passes,
    machine,
    past,
    rehearsal,
    reset,
    results,
    scale,
    schedules,
    spares,
    start,
    wan,
    wire,
    worst_search,
)
from tests.bench.report import Table

Section = Callable[[bool], Sequence[Table]]

SECTIONS: dict[str, Section] = {
    "start": lambda quick: start.section(3 if quick else 10),
    "search": lambda quick: worst_search.section(50 if quick else 1_000),
    "scale": lambda quick: scale.section((100,) if quick else (1_000, 10_000, 100_000)),
    "leader": lambda quick: leader.section((100,) if quick else (1_000, 10_000)),
    "profile": lambda quick: hot_spots.section(100 if quick else 10_000),
    "documents": lambda quick: documents.section((100,) if quick else (1_000, 10_000)),
    "rehearse": lambda quick: rehearsal.section((20,) if quick else (1_000, 5_000)),
    "html": lambda quick: html.section((100,) if quick else (1_000, 5_000, 10_000)),
    "live": lambda quick: live.section((100,) if quick else (1_000, 5_000)),
    "hosts": lambda quick: hosts.section(3 if quick else 20),
    "wire": lambda quick: wire.section(10 if quick else 200),
    "wan": lambda quick: wan.section(3 if quick else 12),
    "engine": lambda quick: engine.section(10, (1,)) if quick else engine.section(200, (1, 2, 4)),
    "engine-sites": lambda quick: engine_sites.section(10, (2,)) if quick else engine_sites.section(2_000, (2, 4)),
    "engine-plans": lambda quick: engine_plans.section(1_000 if quick else 100_000, 4),
    "loop": lambda quick: loop_passes.section(20, 20) if quick else loop_passes.section(500, 1_000),
    "installer": lambda quick: installer.section(8, 10) if quick else installer.section(32, 100),
    "fabric": lambda quick: fabric.section(50) if quick else fabric.section(10_000),
    "fabric-512": lambda quick: fabric.section(6 if quick else 10_000, (512,), 1),
    "latency": lambda quick: latency.section(20, 5, 5, chain_scale=60) if quick else latency.section(500, 100, 50),
    "reset": lambda quick: reset.section(10, 3, scale=20) if quick else reset.section(500, 20),
    "spares": lambda quick: spares.section(20, 2, scale=20) if quick else spares.section(500, 20),
    "schedules": lambda quick: schedules.section(10 if quick else 500),
    "judges": lambda _quick: judges.section(),
    "results": lambda quick: results.section(10_000 if quick else 1_000_000),
    "past": lambda quick: past.section(10_000 if quick else 1_000_000),
    "past-10m": lambda quick: past.section(10_000 if quick else 10_000_000),
    "machine": lambda _quick: machine.section(),
}
# Root and a quarter of an hour; twice that; 10 GB of disk; an hour; 6 GB of memory; root.
_BY_NAME_ALONE = ("machine", "fabric-512", "past-10m", "engine-sites", "engine-plans", "wan")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure speed and memory.")
    parser.add_argument(
        "section",
        nargs="*",
        choices=[*SECTIONS, []],
        help="sections to run; default: all but machine, fabric-512, past-10m, engine-sites, engine-plans, wan",
    )
    parser.add_argument("--quick", action="store_true", help="smoke test in a minute: 100 nodes, 10 on the wire")
    parser.add_argument("--schedules", type=int, metavar="N", help="play N schedules; alone: nothing else")
    parser.add_argument("--nodes", type=int, metavar="N", help="of engine-plans, engine-sites; default: 100,000, 2,000")
    parser.add_argument("--first", type=int, metavar="SEED", help="of the schedules; default: drawn and printed")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    given = parser.parse_args()
    host = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if not given.json:
        print(f"{host}\n")
    document: dict[str, object] = {"machine": host, "quick": given.quick}
    chosen = dict(SECTIONS)
    if given.schedules is not None:
        chosen["schedules"] = lambda _quick: schedules.section(given.schedules, given.first)
        given.section = given.section or ["schedules"]
    if given.nodes is not None:
        chosen["engine-plans"] = lambda _quick: engine_plans.section(given.nodes, 4)
        chosen["engine-sites"] = lambda _quick: engine_sites.section(given.nodes, (2, 4))
    for name in given.section or [name for name in SECTIONS if name not in _BY_NAME_ALONE]:
        tables = chosen[name](given.quick)
        document[name] = [table.json() for table in tables]
        if not given.json:
            print("\n\n".join(table.text() for table in tables), end="\n\n", flush=True)
    if given.json:
        print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
