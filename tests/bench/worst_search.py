"""The planner's search in the worst case: everything about a node is wrong, and MIG is desired."""

from __future__ import annotations

import itertools
import time

from reconciler.model.desired import DesiredGpu
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import NodeTraits, admission_requires
from reconciler.planner.node.catalogue import Catalogue, catalogue
from reconciler.planner.node.search import search
from tests import builders
from tests.bench.report import Table

TARGET_MS = 10.0
# Conditions that a node may start with in the worst case. An empty set is not worse: without HOST_UP or an identity
# many rows of the catalogue are not applicable.
_GIVEN = frozenset({c.IDENTITY, c.SIGNATURE, c.HEALTHY, c.HARDWARE})
_VARIED = (c.HOST_UP, c.POWER_ON, c.REGISTERED, c.MEMBER, c.IN_SERVICE, c.GPU_PLAIN, c.BIOS_STAGED, c.BOOT_STAGED)


def section(runs: int) -> list[Table]:
    wanted = builders.node(profile=builders.profile(gpu=DesiredGpu({"3g.40gb": 2})))
    table = catalogue(NodeTraits(wanted, clustered=True, registered=True, busy=True, cordoned=False))
    goal = frozenset({*admission_requires(wanted), c.IN_SERVICE})
    starts = [_GIVEN | set(some) for size in range(len(_VARIED) + 1) for some in itertools.combinations(_VARIED, size)]
    slowest = max(starts, key=lambda start: min(_milliseconds(table, start, goal, 3)))
    everything = _GIVEN | {c.HOST_UP, c.POWER_ON, c.REGISTERED, c.MEMBER, c.IN_SERVICE}
    conditions = {name for row in table.rows for name in (*row.requires, *row.achieves, *row.breaks)}
    return [
        Table(
            f"Search: CPU milliseconds of {runs:,} runs; {len(conditions)} conditions, {len(table.rows)} actions",
            ("a node in service of which", "actions", "best", "median", "99%", "worst"),
            [
                _row("everything has drifted, MIG is wanted", table, everything, goal, runs),
                _row(f"the slowest of {len(starts)} such starts", table, slowest, goal, runs),
            ],
            (f"target: {TARGET_MS:g} ms", "equal nodes share one search"),
        )
    ]


def _row(
    name: str, table: Catalogue, start: frozenset[str], goal: frozenset[str], runs: int
) -> tuple[str | float | int, ...]:
    found = search(table, start, goal)
    assert found is not None
    spent = sorted(_milliseconds(table, start, goal, runs))
    return name, len(found), spent[0], spent[runs // 2], spent[runs * 99 // 100], spent[-1]


def _milliseconds(table: Catalogue, start: frozenset[str], goal: frozenset[str], runs: int) -> list[float]:
    spent = []
    for _ in range(runs):
        began = time.process_time()
        search(table, start, goal)
        spent.append(1000 * (time.process_time() - began))
    return spent
