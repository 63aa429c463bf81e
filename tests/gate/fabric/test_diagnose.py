"""What convicts, what acquits, and what proves nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from reconciler.gate.fabric.diagnose import Diagnosis, diagnose
from reconciler.gate.fabric.results import Bar, Leg, PairRun, read
from reconciler.gate.fabric.rounds import Room
from reconciler.gate.fabric.topology import Fabric, Part, PartKind
from reconciler.lab.leaf_spine import Broken, FabricFault, LeafSpine
from tests.gate.fabric.trial import BAR, play

RAILS = 4
FABRIC = Fabric({f"n{at}": f"g{at // 4}" for at in range(8)}, RAILS, {f"n{at}": f"r{at // 4}" for at in range(8)})
Pace = Callable[[str, str, int], float | None]


def runs_of(number: int, one: str, other: str, pace: Pace, *, runs: int = 6, control: bool = True) -> list[PairRun]:
    def leg(source: str, target: str) -> Leg:
        crosses = FABRIC.groups[source] != FABRIC.groups[target]
        spines = tuple(f"s{rail}" for rail in range(RAILS)) if crosses else ()
        return Leg(tuple(pace(source, target, rail) for rail in range(RAILS)), spines)

    return [PairRun(number, one, other, leg(one, other), leg(other, one), control)] * runs


def slow(*nodes: str, rails: range = range(RAILS)) -> Pace:
    return lambda source, target, rail: 0.4 if {source, target} & {*nodes} and rail in rails else 1.0


def after(pace: Pace, rounds: int) -> Diagnosis:
    """Play rounds of the algorithm's own choice."""
    runs: list[PairRun] = []
    for number in range(rounds):
        following = diagnose(FABRIC, runs, [], BAR).next
        assert following is not None
        for match in following.matches:
            runs += runs_of(number, match.one, match.other, pace, control=match.control)
    return diagnose(FABRIC, runs, [], BAR)


def test_no_node_is_convicted_before_two_independent_partners() -> None:
    one, two = after(slow("n5"), 1), after(slow("n5"), 2)
    assert one.convicted == ()
    assert [str(each) for each in two.convicted] == ["node n5: 12 of 12 runs are low"]
    assert len(two.convicted[0].partners) == 2


@pytest.mark.parametrize("seed", [13 + 7919 * 6, 13 + 7919 * 50])
def test_each_process_names_the_same_evidence(seed: int) -> None:
    """A seed that a bench prints is played again in another process, which hashes names differently."""
    program = (
        "from tests.gate.fabric.trial import trial\n"
        f"print([(str(one), one.partners) for one in trial({seed}, 8, 'one').diagnosis.convicted])"
    )
    said = set()
    for salt in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        said.add(ran.stdout)
    assert len(said) == 1, said


def test_any_number_of_runs_with_one_partner_convicts_nobody() -> None:
    runs = [run for number in range(9) for run in runs_of(number, "n0", "n1", slow("n0"))]
    for node in ("n2", "n3", "n4"):
        runs += runs_of(9, "n1", node, slow("n0"))
    found = diagnose(FABRIC, runs, [], BAR)
    assert found.convicted == ()
    assert "n0" in found.undecided
    assert "n0" not in found.acquitted


def test_a_partner_that_is_low_with_others_convicts_nobody() -> None:
    """Two that are ill meet: what each sees of the other counts for nothing."""
    bad = slow("n0", "n1")
    runs = [*runs_of(0, "n0", "n1", bad), *runs_of(1, "n1", "n2", bad), *runs_of(2, "n1", "n3", bad)]
    runs += [*runs_of(3, "n2", "n3", bad), *runs_of(3, "n6", "n7", bad), *runs_of(4, "n0", "n6", bad)]
    convicted = {each.part.name for each in diagnose(FABRIC, runs, [], BAR).convicted}
    assert convicted == {"n1"}


def test_a_test_that_could_not_run_proves_nothing() -> None:
    found = after(lambda source, target, _: None if "n5" in (source, target) else 1.0, 3)
    assert found.convicted == ()
    assert found.undecided == {"n5": "its tests ran with fewer than 2 partners"}
    assert found.next is not None
    assert "n5" not in found.acquitted


def test_one_rail_that_could_not_run_spares_the_others() -> None:
    def pace(source: str, target: str, rail: int) -> float | None:
        return (None, 0.4, 1.0, 1.0)[rail] if "n5" in (source, target) else 1.0

    found = after(pace, 2)
    assert [each.part for each in found.convicted] == [Part(PartKind.LINK, "n5", 1)]


def test_a_common_cause_is_no_nodes_fault() -> None:
    def behind(source: str, target: str, rail: int) -> float:
        return 0.4 if rail == 2 and "g1" in (FABRIC.groups[source], FABRIC.groups[target]) else 1.0

    leaf = after(behind, 3)
    assert [each.part for each in leaf.convicted] == [Part(PartKind.LEAF, "g1", 2)]
    spine = after(
        lambda source, target, rail: 0.4 if rail == 3 and FABRIC.groups[source] != FABRIC.groups[target] else 1.0, 3
    )
    assert [each.part for each in spine.convicted] == [Part(PartKind.SPINE, "s3")]
    assert not any(each.part.blames_node for each in (*leaf.convicted, *spine.convicted))


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_round_in_which_most_are_low_counts_for_no_one(everywhere: bool) -> None:
    found = after(
        lambda source, target, _: 0.4 if everywhere or FABRIC.groups[source] != FABRIC.groups[target] else 1.0, 2
    )
    assert found.convicted == ()
    assert {one.part.kind for one in found.incidents} <= {PartKind.EVERYTHING, PartKind.BETWEEN}
    assert len(found.incidents) == 1 + everywhere
    assert found.next is not None
    assert found.acquitted == frozenset()


def test_what_a_convicted_part_explains_speaks_against_nobody() -> None:
    found = after(slow("n5"), 3)
    assert [each.part.name for each in found.convicted] == ["n5"]
    assert found.acquitted == FABRIC.groups.keys() - {"n5"}


@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 9, 33, 100])
@pytest.mark.parametrize("budget", [2, 5, None])
def test_a_round_keeps_its_room(nodes: int, budget: int | None) -> None:
    lab = LeafSpine.of_size(nodes, random.Random(nodes), rails=2, per_group=8)
    fabric = Fabric(lab.groups, lab.rails, lab.racks)
    room = Room(budget or nodes, crossings=2)
    readings: list[PairRun] = []
    for number in range(3 * (nodes if budget else 1)):
        following = diagnose(fabric, readings, [], BAR, room).next
        if following is None:
            break
        taken = [node for match in following.matches for node in (match.one, match.other)]
        assert len(taken) == len(set(taken)) <= room.nodes
        crossing = [match for match in following.matches if fabric.groups[match.one] != fabric.groups[match.other]]
        for group in fabric.members:
            assert sum(group in {fabric.groups[one], fabric.groups[other]} for one, other, _, _ in crossing) <= 2
        for match in following.matches:
            for run in lab.pair(match.one, match.other, 1):
                legs = Leg((1.0,) * 2, run.there_spines), Leg((1.0,) * 2, run.back_spines)
                readings.append(PairRun(number, match.one, match.other, *legs))
    assert readings


def test_latency_and_errors_count_where_they_were_measured() -> None:
    good = Leg((1.0, 1.0), latency=(3.0, 3.0), errors=(0, 0))
    late = Leg((1.0, 1.0), latency=(3.0, 9.0), errors=(5, 0))
    bar = Bar(0.8, latency=5.0, errors=0)
    assert read(PairRun(0, "a", "b", good, late), bar)[1:] == (0b00, 0b11, 0b00)
    assert read(PairRun(0, "a", "b", good, late), Bar(0.8))[1:] == (0, 0, 0)


def test_tests_that_do_not_start_delay_and_convict_nobody() -> None:
    lab = LeafSpine.of_size(16, random.Random(5), per_group=8)
    lab.refusals = 0.2
    lab.faults = [Broken(FabricFault.NODE, "n003", pace=0.4)]
    found = play(lab)
    assert [each.part for each in found.diagnosis.convicted] == [Part(PartKind.NODE, "n003")]


def test_a_rack_that_is_slow_is_one_incident() -> None:
    lab = LeafSpine.of_size(32, random.Random(5), per_group=16)
    lab.faults = [Broken(FabricFault.RACK, "r002", pace=0.4)]
    found = play(lab)
    assert [each.part for each in found.diagnosis.convicted] == [Part(PartKind.RACK, "r002")]
    assert found.rounds <= found.most_rounds


def test_groups_are_failure_domains_of_the_spec() -> None:
    domains = {"a": {"rack": "r1", "leaf": "l1"}, "b": {"rack": "r2", "leaf": "l1"}, "c": {"rack": "r3"}, "d": {}}
    fabric = Fabric.of_domains(domains, 8)
    assert fabric.groups == {"a": "l1", "b": "l1", "c": "r3", "d": ""}
    assert fabric.racks == {"a": "r1", "b": "r2", "c": "r3"}


def test_a_bandwidth_that_is_no_number_is_low() -> None:
    """It compares with nothing, so the least of all rails hid it."""
    ways = Leg((400.0, float("nan"), None)), Leg((400.0, 400.0, 400.0))
    found = read(PairRun(1, "n0", "n1", *ways), Bar(300.0))
    assert (found.there, found.back, found.unread) == (0b010, 0, 0b100)
    whole = read(PairRun(1, "n0", "n1", Leg((float("nan"), 400.0)), Leg((400.0, 400.0))), Bar(300.0))
    assert (whole.there, whole.back, whole.unread) == (0b01, 0, 0)
