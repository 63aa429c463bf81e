"""How far results speak against each part of a fabric.

Every part has an account of its runs: how many were low, with which partners. A run that a convicted part explains is
low for nobody else. The figure is a likelihood ratio: a part that is at fault in a share of its runs, against one that
is healthy and has LUCK of its runs low by noise, other traffic or its partner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import log
from typing import NamedTuple

from reconciler.gate.fabric.evidence import Lows, Pair, Sums, bits, is_broad
from reconciler.gate.fabric.results import Reading
from reconciler.gate.fabric.tally import NONE, Counts, Tally, counts_of
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

LUCK = 0.04  # share of low runs of a healthy part
CONVICTS = 14.0  # natural logarithm: one in a million, for each of the parts that are looked at
SUSPECTS = 1.5
LEAST_SHARE = 0.25  # of low runs, of what is convicted
CLEAN = 0.2  # a partner counts whose runs with others are low less often
_INSIDE = 10  # a run between two nodes of a leaf passes no other: between two leaves that may be it, it counts most
SMALL = 3  # members of a group: runs with others alone tell one of them from the next
PARTNERS = 2  # that are independent and saw it low, before a part of a node is convicted


@lru_cache(maxsize=1 << 14)  # the same few hundred of them, for each of thousands of links
def strength(lows: int, runs: int) -> float:
    """Return the logarithm of the likelihood ratio; 0 where no more runs are low than by luck."""
    share = lows / runs if runs else 0.0
    if share <= LUCK:
        return 0.0
    return likelier(lows, runs, share)


def likelier(lows: int, runs: int, share: float, luck: float = LUCK) -> float:
    """Return the logarithm of how much likelier a part that is low in this share of its runs is than a healthy one."""
    good = (runs - lows) * log((1 - share) / (1 - luck)) if lows < runs else 0.0
    return lows * log(share / luck) + good


class Blame(NamedTuple):
    """The account of a part: `lows` of `runs` that count, and the partners that saw it low.

    `weight`: of a cause that nodes share, the strength with all its nodes; of two that fit, the heavier one is it.
    `rounds`: in which it was low, where that convicts it.
    """

    part: Part
    lows: int
    runs: int
    partners: tuple[str, ...] = ()
    weight: float = 0.0
    rounds: int = 0

    @property
    def strength(self) -> float:
        return strength(self.lows, self.runs)

    @property
    def share(self) -> float:
        return self.lows / self.runs if self.runs else 0.0

    @property
    def convicts(self) -> bool:
        return self.share >= LEAST_SHARE and self.strength >= CONVICTS


class Met(NamedTuple):
    """The runs of two nodes with each other that count, or their flows, and how many of them were low."""

    one: str
    other: str
    runs: int
    lows: int


def _counts(met: Iterable[Met]) -> tuple[int, int]:
    """Return how many runs were low, of how many."""
    lows = runs = 0
    for pair in met:
        lows += pair.lows
        runs += pair.runs
    return lows, runs


class Accounts:
    """The accounts of all parts, less what is explained by those that are convicted.

    `runs`, `broad` (most rails low), and by rail `narrow` (that rail low) and `unread`: node -> partner -> runs.
    `hot`: the readings with a rail low that nothing convicted explains yet, without what is explained.
    """

    def __init__(self, fabric: Fabric, sums: Sums) -> None:
        self.fabric, self._rounds = fabric, sums.rounds
        self.runs, self.unread, self._totals, self._crossings = sums.runs, sums.unread, sums.totals, sums.crossings
        self._of_groups = sums.groups
        self.convicted: list[Part] = []
        self._hidden: dict[int | None, frozenset[str]] = {}
        self.hot = sums.hot
        self._take(sums.lows)

    def explain(self, part: Part) -> None:
        """Take from the accounts what a convicted part explains."""
        self.convicted.append(part)
        self._hidden.clear()
        behind = frozenset(self._behind(part))
        kept = []
        for reading in self.hot:
            run = reading.run
            if part.kind is not PartKind.SPINE and run.one not in behind and run.other not in behind:
                kept.append(reading)
                continue
            there = reading.there & ~explained(self.fabric, part, reading, run.there.spines)
            back = reading.back & ~explained(self.fabric, part, reading, run.back.spines)
            if there or back:
                kept.append(reading._replace(there=there, back=back))
        self.hot = kept
        self._take(Lows(self.fabric, kept))

    def _take(self, lows: Lows) -> None:
        self.broad, self.narrow, self._broads = lows.broad, lows.narrow, lows.broads
        self._lows, self._leaves, self._slow_flows = lows.links, lows.leaves, lows.spines

    def of_node(self, node: str) -> Blame:
        """Return the account of a node: runs with most rails low."""
        lows, runs = counts_of(self.broad, node), self.runs[node]
        part, partners = Part(PartKind.NODE, node), self._partners(node, None)
        return Blame(part, sum(lows[one] for one in partners), sum(runs[one] for one in partners))

    def links(self, least: float) -> list[Blame]:
        """Return the accounts of all links whose figure is at least this."""
        most = strength(1, 1)
        found = []
        for rail, counts in self._lows.items():
            read = rail not in self.unread
            for node, lows in counts.items():
                if most * lows < least:
                    continue
                whole = read and self._sees_all(node, rail)
                if whole and strength(lows, self._totals[node] - self._broads[node]) < least:
                    continue  # as nearly all of thousands of links
                blame = self.of_link(node, rail)
                if blame.strength >= least:
                    found.append(blame)
        return found

    def of_link(self, node: str, rail: int, without: str = "") -> Blame:
        """Return the account of a node's link to a leaf: runs with that rail low, without those of the node's own.

        `without`: a partner whose runs don't count.
        """
        part, lows = Part(PartKind.LINK, node, rail), counts_of(self.narrow[rail], node)
        if not without and self._sees_all(node, rail):
            return Blame(part, self._lows[rail][node], self._totals[node] - self._lost(node, rail))
        partners = [partner for partner in self._partners(node, rail) if partner != without]
        runs = sum(self._link_runs(node, partner, rail) for partner in partners)
        return Blame(part, sum(lows[one] for one in partners), runs)

    def _unread(self, node: str, rail: int) -> Counts:
        """Return by partner the runs that prove nothing of a rail."""
        return counts_of(self.unread[rail], node) if rail in self.unread else NONE

    def _lost(self, node: str, rail: int) -> int:
        """Return how many runs of a node tell nothing of its link: the node was low itself, or the rail did not run."""
        return self._broads[node] + self._unread(node, rail).total()

    def _sees_all(self, node: str, rail: int) -> bool:
        """Return whether all runs of a node on a rail count."""
        hidden = self.hidden(rail)
        return not hidden or (node not in hidden and hidden.isdisjoint(self.runs[node]))

    def _link_runs(self, node: str, partner: str, rail: int) -> int:
        return self.runs[node][partner] - self._unread(node, rail)[partner] - counts_of(self.broad, node)[partner]

    def _partners(self, node: str, rail: int | None) -> Collection[str]:
        """Return the partners whose runs tell of a node: those that go through nothing that is convicted."""
        met, hidden = self.runs[node], self.hidden(rail)
        if not hidden:
            return met
        return () if node in hidden else [partner for partner in met if partner not in hidden]

    def hidden(self, rail: int | None) -> frozenset[str]:
        """Return the nodes all of whose runs on a rail go through a convicted part; `rail` None: on all rails."""
        if rail not in self._hidden:
            behind = (self._behind(part) for part in self.convicted if part.rail is None or part.rail == rail)
            self._hidden[rail] = frozenset(chain.from_iterable(behind))
        return self._hidden[rail]

    def _behind(self, part: Part) -> Iterable[str]:
        if part.kind is PartKind.LEAF:
            return self.fabric.members[part.name]
        if part.kind is PartKind.RACK:
            return [node for node, rack in self.fabric.racks.items() if rack == part.name]
        return [part.name] if part.blames_node else ()

    def proven(self, blame: Blame) -> Blame:
        """Return the account by independent partners alone: those whose runs with others are good.

        `partners`: those of them that saw the part low about as often as the others did.
        """
        name, rail = blame.part.name, blame.part.rail
        lows = counts_of(self.broad if rail is None else self.narrow[rail], name)
        counted: dict[str, tuple[int, int]] = {}
        for partner in self._partners(name, rail):
            runs = self.runs[name][partner] if rail is None else self._link_runs(name, partner, rail)
            if runs > 0 and self._clean(partner, name, rail):
                counted[partner] = (lows[partner], runs)
        found, runs = sum(low for low, _ in counted.values()), sum(runs for _, runs in counted.values())
        least = found / runs / 3 if runs else 0.0
        seen = tuple(sorted(partner for partner, (low, of) in counted.items() if low and low / of >= least))
        return Blame(blame.part, found, runs, seen)

    def _clean(self, partner: str, suspect: str, rail: int | None) -> bool:
        others = [one for one in self._partners(partner, rail) if one != suspect]
        every, broad = self.runs[partner], counts_of(self.broad, partner)
        runs, lows = sum(every[one] for one in others), sum(broad[one] for one in others) if broad else 0
        if rail is not None and (narrow := counts_of(self.narrow[rail], partner)):
            lows += sum(narrow[one] for one in others)
        return runs > 0 and lows / runs <= CLEAN

    def common(self, least: float = 0.0) -> Iterator[Blame]:
        """Yield the accounts of leaves, racks and spines without their two worst nodes, where they may be low.

        A leaf with one bad node is low as often as that node is met. What is low without its worst nodes is so for a
        cause that its nodes share. `least`: leaves that can't be low in this share of runs are left out.
        """
        most = 2 * max(self._totals.values(), default=0)  # runs that may go with the two worst nodes
        halves = {group: self._half(group) for group in self.fabric.members}
        for rail, leaves in self._leaves.items():
            every = not self.hidden(rail) and rail not in self.unread
            for group, lows in leaves.items():
                members = len(self.fabric.members[group])
                left = self._of_groups[group] - most if every and members > SMALL else 0
                if members > 1 and lows >= max(LEAST_SHARE / 2 * halves[group], least * left):
                    yield self.leaf(group, rail)
        for rack in sorted({self.fabric.racks.get(node, "") for node in self.broad} - {""}):
            yield self._rack(rack)
        yield from self._spines()

    def _half(self, group: str) -> float:
        """Return how many runs a group has at least: one of two members is in the totals of both."""
        return sum([self._totals[node] for node in self.fabric.members[group]]) / 2

    def leaf(self, group: str, rail: int, without: frozenset[str] = frozenset()) -> Blame:
        members = frozenset(self.fabric.members[group])
        met = list(self._met(members, self.narrow[rail], rail))
        return self._without_worst(Part(PartKind.LEAF, group, rail), members, met, without)

    def _rack(self, rack: str) -> Blame:
        members = frozenset(node for node, name in self.fabric.racks.items() if name == rack)
        return self._without_worst(Part(PartKind.RACK, rack), members, list(self._met(members, self.broad, None)))

    def _spines(self) -> Iterator[Blame]:
        lows = self._slow_flows
        members = frozenset(self.fabric.groups)
        for spine, count in lows.items():
            taken, others = self._crossings[spine], self._crossings.total() - self._crossings[spine]
            usual = (lows.total() - count) / others if others else 0.0
            if count >= max(LEAST_SHARE / 2, 2 * usual) * taken:  # all spines alike: congestion, and no spine's fault
                yield self._without_worst(Part(PartKind.SPINE, spine), members, self._crossed(spine))

    def _crossed(self, spine: str) -> list[Met]:
        """Return the pairs whose flows took a spine. `runs`: flows that did; several rails of a run may."""
        taken = Counter[Pair]()
        for tested in self._rounds:
            taken.update(tested.taken(spine))
        lows = Counter[Pair]()
        for reading in self.hot:
            lows[reading.run.one, reading.run.other] += _lows_by(reading, spine)
        return [Met(*pair, runs, lows[pair]) for pair, runs in taken.items()]

    def _met(self, members: frozenset[str], tally: Tally, rail: int | None) -> Iterator[Met]:
        """Yield the pairs of members, of SMALL groups with others alone."""
        hidden = self.hidden(rail)
        for node in sorted(members - hidden):  # an order of its own: ties are decided alike in each process
            unread = NONE if rail is None else self._unread(node, rail)
            lows = counts_of(tally, node)
            for partner, runs in self.runs[node].items():
                apart = partner not in members or (len(members) > SMALL and node < partner)
                if apart and partner not in hidden and runs > unread[partner]:
                    yield Met(node, partner, runs - unread[partner], lows[partner])

    def _without_worst(
        self, part: Part, members: frozenset[str], met: Sequence[Met], without: frozenset[str] = frozenset()
    ) -> Blame:
        """Return the account without the two nodes that have most low runs, 0 where few of the others have any."""
        met = [pair for pair in met if not without or (pair.one not in without and pair.other not in without)]
        inside = [pair for pair in met if pair.one in members and pair.other in members]
        alone = 0.0 if part.kind is PartKind.SPINE else strength(*_counts(inside))
        weight = strength(*_counts(met)) + _INSIDE * alone
        spared = len(members) - 2
        for _ in range(2 - len(without)):
            worst: Counter[str] = Counter()
            for pair in met:
                if pair.lows:
                    worst[pair.one] += pair.lows
                    worst[pair.other] += pair.lows
            may = (node for node, _ in worst.most_common() if node not in members or len(without & members) < spared)
            if (node := next(may, None)) is not None:
                without |= {node}
                met = [pair for pair in met if node not in (pair.one, pair.other)]
        lows, total = _counts(met)
        found: dict[str, list[int]] = {}
        for pair in met:
            for node in members.intersection((pair.one, pair.other)):
                mine = found.setdefault(node, [0, 0])
                mine[0] += pair.lows
                mine[1] += pair.runs
        share = lows / total if total else 0.0
        hit = [node for node, (low, of) in found.items() if low and low / of >= share / 3]
        if len(hit) < 2 or len(hit) * 2 <= len(found):
            return Blame(part, 0, total)
        blame = Blame(part, lows, total, tuple(sorted(hit)), weight)
        return blame._replace(rounds=self._rounds_of(part, met)) if blame.convicts else blame

    def _rounds_of(self, part: Part, met: Iterable[Met]) -> int:
        """Return in how many rounds a cause that nodes share was low for these pairs."""
        pairs = {frozenset((pair.one, pair.other)) for pair in met if pair.lows}
        return len(
            {
                reading.run.round
                for reading in self.hot
                if self._shows(part, reading) and frozenset((reading.run.one, reading.run.other)) in pairs
            }
        )

    def _shows(self, part: Part, reading: Reading) -> bool:
        """Return whether a reading is low as a cause that nodes share would have it."""
        if part.kind is PartKind.SPINE:
            return _lows_by(reading, part.name) > 0
        if part.rail is None:
            return is_broad(reading, self.fabric.rails)
        return not is_broad(reading, self.fabric.rails) and bool((reading.there | reading.back) >> part.rail & 1)


def explained(fabric: Fabric, part: Part, reading: Reading, spines: tuple[str, ...]) -> int:
    """Return the mask of the rails of one way of a run that go through a part."""
    kind, name, run = part.kind, part.name, reading.run
    if kind is PartKind.SPINE:
        return sum([1 << rail for rail, spine in enumerate(spines) if spine == name])
    if kind is PartKind.LEAF or kind is PartKind.RACK:
        domains = fabric.groups if kind is PartKind.LEAF else fabric.racks
        passes = domains.get(run.one) == name or domains.get(run.other) == name
    else:
        passes = name in (run.one, run.other)
    if not passes:
        return 0
    return (1 << fabric.rails) - 1 if part.rail is None else 1 << part.rail


def _lows_by(reading: Reading, spine: str) -> int:
    return sum(
        1
        for low, leg in ((reading.there, reading.run.there), (reading.back, reading.run.back))
        for rail in bits(low)
        if leg.spines and leg.spines[rail] == spine
    )
