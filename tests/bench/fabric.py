"""How often the culprit in a fabric is named, how soon, and whether a healthy node is ever convicted."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median
from typing import NamedTuple

from tests.bench.report import Table
from tests.gate.fabric.trial import SCENES, trial

NODES = (8, 64, 512)
LARGE, OF_LARGE = 500, 10  # a trial of 512 nodes takes 0.1 s or more: one seed in ten, unless all are asked for


class Played(NamedTuple):
    seed: int
    named: bool
    wronged: bool
    innocent: bool
    rounds: int
    most_rounds: int
    seconds: float


def section(seeds: int, sizes: Sequence[int] = NODES, of_large: int = OF_LARGE) -> list[Table]:
    """Play `seeds` seeds of each size, one in `of_large` of LARGE ones, an equal share for each scene, on all cores."""
    first = random.SystemRandom().randrange(10**12)
    rows, missed = [], []
    with ProcessPoolExecutor() as pool:
        for nodes in sizes:
            share = max(1, seeds // len(SCENES) // (of_large if nodes >= LARGE else 1))
            for at, scene in enumerate(SCENES):
                drawn = range(first + at * seeds, first + at * seeds + share)
                played = list(pool.map(partial(_play, nodes, scene), drawn, chunksize=max(1, share // 200)))
                rows.append(_row(nodes, scene, played))
                missed += [f"trial({one.seed}, {nodes}, {scene!r})" for one in played if one.wronged]
    notes = (
        f"Seeds from {first}; {os.cpu_count()} processors. A fault is a node, NIC, cable, leaf port, leaf or spine; "
        "figures of healthy rails are +-20 %, and one flow of 100 meets another job's.",
        "flap: slow in 40-80 % of runs. double: two faults, a third of them flapping. congested: two, and one round in "
        "which all that crosses the spines has half its pace. wire: one, and tests that tell no route, as those of "
        "`gate fabric` over Ethernet; a bad spine is named as what joins the leaves. traced: one, over "
        "InfiniBand: a flow's spine goes by its destination, and ibtracert tells it. uplink: so, and a cable between a "
        "leaf and a spine is bad, or one of its two ports, which slows one way.",
        "misnamed: a healthy part was named, mostly another part of the faulty link, or the leaf on its other side.",
        "A test that tells no route can't tell which of several spines is bad.",
        *([f"Of fleets of {LARGE} nodes and more, one seed in {of_large} is played."] if of_large > 1 else []),
        *(f"A healthy node was convicted in {where}" for where in missed),
    )
    columns = (
        "nodes, scene",
        "seeds",
        "all named %",
        "healthy nodes convicted",
        "misnamed %",
        "rounds, median",
        "most",
        "bound",
        "ms of CPU",
    )
    return [Table("Which part of a fabric is at fault", columns, rows, notes)]


def _play(nodes: int, scene: str, seed: int) -> Played:
    gc.set_threshold(500_000)  # a trial makes as many tuples that live to its end, and each look at them is in vain
    began = time.process_time()
    found = trial(seed, nodes, scene)
    return Played(
        seed,
        found.named,
        bool(found.wronged),
        bool(found.innocent),
        found.rounds,
        found.most_rounds,
        time.process_time() - began,
    )


def _row(nodes: int, scene: str, played: Sequence[Played]) -> tuple[str | float | int | None, ...]:
    def percent(each: Iterable[bool]) -> float:
        return 100 * sum(each) / len(played)

    return (
        f"{nodes}, {scene}",
        len(played),
        None if scene == "none" else percent(one.named for one in played),
        sum(one.wronged for one in played),
        percent(one.innocent for one in played),
        int(median(one.rounds for one in played)),
        max(one.rounds for one in played),
        played[0].most_rounds,
        1000 * sum(one.seconds for one in played) / len(played),
    )
