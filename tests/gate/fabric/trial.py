"""A fabric with faults that a seed draws, diagnosed round after round: what was named, and how soon."""

from __future__ import annotations

import random
from dataclasses import dataclass

from reconciler.gate.fabric.diagnose import Diagnosis, judge
from reconciler.gate.fabric.evidence import Evidence
from reconciler.gate.fabric.measured import confirming, without_routes
from reconciler.gate.fabric.results import Bar, Leg, LoopbackRun, PairRun, read
from reconciler.gate.fabric.rounds import Room
from reconciler.gate.fabric.topology import Fabric, Part, PartKind
from reconciler.lab.leaf_spine import Broken, FabricFault, LeafSpine

BAR = Bar(0.8)
KINDS = {
    FabricFault.NODE: PartKind.NODE,
    FabricFault.NIC: PartKind.NIC,
    FabricFault.CABLE: PartKind.CABLE,
    FabricFault.LEAF_PORT: PartKind.LEAF_PORT,
    FabricFault.LEAF: PartKind.LEAF,
    FabricFault.SPINE: PartKind.SPINE,
    FabricFault.RACK: PartKind.RACK,
    FabricFault.UPLINK: PartKind.UPLINK,
    FabricFault.UPLINK_PORT: PartKind.UPLINK,
}
UPLINKS = (FabricFault.UPLINK, FabricFault.UPLINK_PORT)
ONE_PART = tuple(kind for kind in FabricFault if kind not in (FabricFault.RACK, *UPLINKS))


@dataclass(frozen=True)
class Outcome:
    """What became of a trial. `innocent`: parts that were convicted and are healthy, other parts of a bad link too.

    `routes`: whether tests told the spines that their flows took. Else a bad spine is named as what joins leaves.
    """

    faults: tuple[Part, ...]
    diagnosis: Diagnosis
    rounds: int
    most_rounds: int
    routes: bool = True

    @property
    def innocent(self) -> list[Part]:
        faulty = {*self.expected, *(part._replace(kind=PartKind.LINK) for part in self.faults)}
        return [one.part for one in self.diagnosis.convicted if one.part not in faulty]

    @property
    def wronged(self) -> list[Part]:
        """Parts of nodes that have no fault at all."""
        faulty = {part.name for part in self.faults if part.blames_node}
        return [one.part for one in self.diagnosis.convicted if one.part.blames_node and one.part.name not in faulty]

    @property
    def named(self) -> bool:
        return {one.part for one in self.diagnosis.convicted} >= self.expected

    @property
    def expected(self) -> set[Part]:
        return {
            Part(PartKind.BETWEEN) if part.kind is PartKind.SPINE and not self.routes else part for part in self.faults
        }


def part_of(fault: Broken, lab: LeafSpine) -> Part:
    """Return the part that a verdict should name: of two leaves, no test tells their cables to one spine apart."""
    name, groups = fault.name, sorted(set(lab.groups.values()))
    if fault.kind in UPLINKS and len(groups) == 2:
        name = " or ".join(f"{group}/{name.partition('/')[2]}" for group in groups)
    return Part(KINDS[fault.kind], name, fault.rail)


def draw(lab: LeafSpine, chance: random.Random, *, flaps: bool = False) -> Broken:
    """Draw a fault of one part: half of the flaps are down in as few as two runs of five."""
    kind = chance.choice(ONE_PART)
    node = chance.choice(list(lab.groups))
    name = {FabricFault.LEAF: lab.groups[node], FabricFault.SPINE: chance.choice(lab.spines)}.get(kind, node)
    rail = None if kind in (FabricFault.NODE, FabricFault.SPINE) else chance.randrange(lab.rails)
    pace, duty = (chance.uniform(0, 0.5), chance.uniform(0.4, 0.8)) if flaps else (chance.uniform(0.1, 0.75), 1.0)
    return Broken(kind, name, rail, pace, duty, chance.random() < 0.5)


def draw_uplink(lab: LeafSpine, chance: random.Random) -> Broken:
    """Draw a cable between a leaf and a spine that is bad, or one of its two ports."""
    kind, name = chance.choice(UPLINKS), f"{chance.choice(list(lab.groups.values()))}/{chance.choice(lab.spines)}"
    pace, inbound = chance.uniform(0.1, 0.75), chance.random() < 0.5
    return Broken(kind, name, chance.randrange(lab.rails), pace, inbound=inbound)


def overlap(one: Broken, other: Broken, lab: LeafSpine) -> bool:
    """Return whether every test of the one fault passes the other, too: then none tells which of them it was."""
    first, second = sorted((one, other), key=lambda fault: list(FabricFault).index(fault.kind))
    if first.kind is second.kind and (first.name, first.rail) == (second.name, second.rail):
        return True
    if second.kind is FabricFault.SPINE:
        return False
    if second.kind is FabricFault.LEAF:
        group = lab.groups.get(first.name, first.name)
        return group == second.name and first.rail in (None, second.rail)
    return first.name == second.name and (first.kind is FabricFault.NODE or first.rail == second.rail)


def play(
    lab: LeafSpine, *, congested: tuple[int, ...] = (), room: Room | None = None, routes: bool = True,
    by_leaf: bool | None = None,
) -> Outcome:  # fmt: skip
    """Ask and measure until nothing is left to ask. `routes`: whether a test tells the spines that its flows took.

    `by_leaf`: ask and judge as `gate fabric` does, which convicts nobody by runs across leaves alone; by default where
    no routes are told.
    """
    by_leaf = not routes if by_leaf is None else by_leaf
    fabric = Fabric(lab.groups, lab.rails, lab.racks)
    evidence = Evidence(fabric)
    loopbacks: list[LoopbackRun] = []
    number = 0
    while True:
        diagnosis = judge(evidence, loopbacks, BAR, room)
        asked = diagnosis.next or (confirming(fabric, diagnosis, evidence.readings) if by_leaf else None)
        if asked is None:
            break
        lab.congestion = 0.5 if number in congested else 1.0
        for one, other, runs, control in asked.matches:
            for run in lab.pair(one, other, runs):
                there, back = Leg(run.there, run.there_spines), Leg(run.back, run.back_spines)
                if not routes:
                    there, back = Leg(run.there), Leg(run.back)
                evidence.add(read(PairRun(number, one, other, there, back, control), BAR))
        for node, runs in asked.loopbacks:
            loopbacks += [LoopbackRun(number, node, found) for found in lab.loopback(node, runs)]
        number += 1
    if by_leaf:
        diagnosis = without_routes(fabric, diagnosis, evidence.readings)
    return Outcome(tuple(part_of(fault, lab) for fault in lab.faults), diagnosis, number, fabric.most_rounds, routes)


SCENES = ("none", "one", "flap", "double", "congested", "wire", "traced", "uplink")


def trial(seed: int, nodes: int, scene: str, *, routes: bool = True) -> Outcome:
    """Play a scene of SCENES. `congested`: a double fault, and half of the pace between leaves in one round.

    `wire`: one fault, and tests that tell no route, as those of `gate fabric` over Ethernet. `traced`: over InfiniBand,
    whose routes are traced and are the same in each run of two nodes. `uplink`: so, and a cable of a spine is bad, or
    one of its two ports.
    """
    chance = random.Random(seed)
    lab = LeafSpine.of_size(nodes, chance)
    traced = scene in ("traced", "uplink")
    lab.by_destination = traced
    if scene == "uplink":
        lab.faults.append(draw_uplink(lab, chance))
    wanted = {"none": 0, "one": 1, "flap": 1, "wire": 1, "traced": 1, "uplink": 1}.get(scene, 2)
    while len(lab.faults) < wanted:
        fault = draw(lab, chance, flaps=scene == "flap" or (wanted == 2 and chance.random() < 0.3))
        if not any(overlap(known, fault, lab) for known in lab.faults):
            lab.faults.append(fault)
    congested = (chance.randrange(4),) if scene == "congested" else ()
    return play(lab, congested=congested, routes=routes and scene != "wire", by_leaf=traced or None)
