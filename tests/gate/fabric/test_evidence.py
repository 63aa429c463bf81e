"""Readings that are counted round by round say what all of them say at once."""

from __future__ import annotations

import random

from reconciler.gate.fabric.diagnose import judge
from reconciler.gate.fabric.evidence import Evidence, bits
from reconciler.gate.fabric.measured import blame_matrix
from reconciler.gate.fabric.results import Bar, Leg, PairRun, Reading, read
from reconciler.gate.fabric.topology import Fabric
from reconciler.lab.leaf_spine import LeafSpine
from tests.gate.fabric.trial import BAR, draw

FABRIC = Fabric({"a": "g0", "b": "g0", "c": "g1", "d": "g1"}, 2, {})


def reading(number: int, one: str, other: str, *, low: bool = False, unread: bool = False) -> Reading:
    good = Leg((1.0, None if unread else 1.0))
    return read(PairRun(number, one, other, Leg((0.1, 1.0)) if low else good, good), Bar(0.8))


def test_a_round_that_gets_more_readings_is_counted_anew() -> None:
    evidence = Evidence(FABRIC, [reading(0, "a", "b", low=True)])
    assert evidence.valid.runs["a"]["b"] == evidence.valid.lows.narrow[0]["a"]["b"] == 1

    evidence.add(reading(0, "a", "b", low=True))
    evidence.add(reading(1, "a", "c", unread=True))

    found = evidence.valid
    assert found.runs["a"] == {"b": 2, "c": 1}
    assert found.totals == {"a": 3, "b": 2, "c": 1}
    assert found.lows.narrow[0]["a"] == {"b": 2}
    assert found.unread[1]["c"] == {"a": 1}
    assert [len(one.runs) for one in evidence.rounds.values()] == [1, 1]


def test_each_round_of_a_search_is_judged_as_if_all_were_read_at_once() -> None:
    seed = random.SystemRandom().randrange(10**9)
    for at in range(12):
        lab = LeafSpine.of_size(12, random.Random(seed + at))
        lab.refusals = 0.05 * (at % 3)
        lab.faults = [draw(lab, lab.chance, flaps=at % 2 == 0) for _ in range(at % 4)]
        fabric = Fabric(lab.groups, lab.rails, lab.racks)
        evidence = Evidence(fabric)
        for number in range(6):
            found = judge(evidence, [], BAR)
            assert found == judge(Evidence(fabric, evidence.readings), [], BAR), f"seed {seed + at}"
            for one, other, runs, control in found.next.matches if found.next else ():
                for run in lab.pair(one, other, runs):
                    legs = Leg(run.there, run.there_spines), Leg(run.back, run.back_spines)
                    evidence.add(read(PairRun(number, one, other, *legs, control), BAR))
        matrix = blame_matrix(fabric, evidence.readings)
        assert all(one.lows for one in matrix)
        assert not lab.faults or matrix


def test_the_rails_of_a_mask_are_its_bits() -> None:
    assert [bits(mask) for mask in (0, 1, 0b1010, 1 << 40)] == [(), (0,), (1, 3), (40,)]
