"""What joins the leaves is told by all runs together, and by no less than that."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from reconciler.gate.fabric.across import between_leaves
from reconciler.gate.fabric.diagnose import Conviction, Diagnosis, Incident
from reconciler.gate.fabric.results import Leg, PairRun, Reading
from reconciler.gate.fabric.topology import Fabric, Part, PartKind
from reconciler.lab.leaf_spine import Broken, FabricFault, LeafSpine
from tests.gate.fabric.trial import play

LEAVES, EACH, RAILS, RUNS = 16, 4, 8, 6
NODES = [f"n{at:02d}" for at in range(LEAVES * EACH)]
FABRIC = Fabric({node: f"l{at // EACH}" for at, node in enumerate(NODES)}, RAILS, {})
NOTHING = Diagnosis((), (), frozenset(), {}, None)


def readings(
    share: float, *, only: frozenset[str] = frozenset(NODES), spine: str = "", names: Sequence[str] = NODES,
    each: int = EACH,
) -> Iterator[Reading]:  # fmt: skip
    """Pair each node with its neighbour, and with two behind other leaves. `share`: of flows across that are low."""
    chance = random.Random(5)
    for number, step in enumerate((1, each, 3 * each)):
        for at, one in enumerate(names):
            other = names[at ^ 1] if number == 0 else names[(at + step) % len(names)]
            across = number > 0 and bool(only & {one, other})
            leg = Leg((1.0,) * RAILS, (spine,) * RAILS if number else ())
            for _ in range(RUNS):
                low = sum(1 << rail for rail in range(RAILS) if across and chance.random() < share)
                yield Reading(PairRun(number, one, other, leg, leg), low, 0, 0)


def told(diagnosis: Diagnosis = NOTHING, share: float = 1 / 8, **how: frozenset[str] | str) -> Conviction | None:
    return between_leaves(FABRIC, diagnosis, list(readings(share, **how)))  # type: ignore[arg-type]


def test_a_few_low_flows_of_every_node_show_what_joins_the_leaves() -> None:
    found = told()
    assert found is not None
    assert str(found.part) == "between leaves"
    assert "6% of flows across leaves, and 0% of those behind one leaf" in found.detail
    assert not found.part.blames_node


@pytest.mark.parametrize(
    "why",
    ["as seldom as chance", "of two nodes alone", "of a few nodes", "a route is told", "explained", "in one round"],
)
def test_less_than_that_shows_nothing(why: str) -> None:
    everyone = tuple(Conviction(Part(PartKind.NODE, node), 9, 9, ()) for node in NODES)
    void = Incident(Part(PartKind.EVERYTHING), 1, "")
    found = {
        "as seldom as chance": lambda: told(share=0.02),
        "of two nodes alone": lambda: told(share=1.0, only=frozenset(NODES[:2])),
        "of a few nodes": lambda: told(share=0.5, only=frozenset(NODES[::12])),
        "a route is told": lambda: told(spine="s3"),
        "explained": lambda: told(replace(NOTHING, convicted=everyone)),
        "in one round": lambda: told(replace(NOTHING, incidents=(void,))),
    }[why]()
    assert found is None


def test_two_bad_nodes_of_a_small_fleet_are_not_what_joins_its_leaves() -> None:
    """They show with most of the others, which have too few partners to be good with."""
    names = NODES[:8]
    fabric = Fabric({node: f"l{at // 2}" for at, node in enumerate(names)}, RAILS, {})
    found = list(readings(1.0, only=frozenset({names[0], names[3]}), names=names, each=2))
    assert between_leaves(fabric, NOTHING, found) is None


@pytest.mark.parametrize("pace", [0.2, 0.7])
def test_one_bad_spine_of_sixteen_is_told_though_no_test_tells_a_route(pace: float) -> None:
    seed = random.randrange(2**40)
    lab = LeafSpine.of_size(512, random.Random(seed))
    assert len(lab.spines) == 16
    lab.faults.append(Broken(FabricFault.SPINE, "s05", pace=pace))
    outcome = play(lab, routes=False)
    assert [str(one.part) for one in outcome.diagnosis.convicted] == ["between leaves"], (seed, pace)


def test_nothing_is_told_of_a_large_fabric_without_a_fault() -> None:
    seed = random.randrange(2**40)
    outcome = play(LeafSpine.of_size(512, random.Random(seed)), routes=False)
    assert outcome.diagnosis.convicted == (), seed
