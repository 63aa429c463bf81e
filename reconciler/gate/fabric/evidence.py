"""The readings of a search by round, and what is counted of a round once: no later one changes it.

A search judges all its readings after each round. Of 512 nodes the first three rounds have thousands, later ones a few
dozen, so each is counted in its own round, and a judgement adds these counts up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Final

from reconciler.gate.fabric.results import Reading
from reconciler.gate.fabric.rounds import screenings
from reconciler.gate.fabric.tally import Counts, Tally
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

CONGESTED: Final = 0.6  # of the control pairs of a round that are low on most rails

Pair = tuple[str, str]


class Tested:
    """The readings of one round."""

    def __init__(self, fabric: Fabric, readings: Sequence[Reading]) -> None:
        self._fabric, self.readings = fabric, readings
        self._taken: dict[str, Counter[Pair]] = {}

    @cached_property
    def runs(self) -> Mapping[Pair, int]:
        """Return how many runs there were, by pair."""
        return Counter([(reading.run.one, reading.run.other) for reading in self.readings])

    @cached_property
    def hot(self) -> Sequence[Reading]:
        """Return the readings with a rail low."""
        return [reading for reading in self.readings if reading.there or reading.back]

    @cached_property
    def unread(self) -> Sequence[Reading]:
        """Return the readings with a rail that proves nothing."""
        return [reading for reading in self.readings if reading.unread]

    @cached_property
    def crossings(self) -> Mapping[str, int]:
        """Return by spine the rails of runs that took it."""
        legs = [leg.spines for reading in self.readings for leg in (reading.run.there, reading.run.back)]
        return Counter(chain.from_iterable(legs))

    def taken(self, spine: str) -> Mapping[Pair, int]:
        """Return by pair the flows that took a spine: several rails of a run may."""
        if spine not in self._taken:
            found = self._taken[spine] = Counter()
            for reading in self.readings:
                run = reading.run
                if taken := run.there.spines.count(spine) + run.back.spines.count(spine):
                    found[run.one, run.other] += taken
        return self._taken[spine]

    @cached_property
    def void(self) -> Part | None:
        """Return what makes the round count for no one: most control pairs were low, by spines that differ."""
        groups, rails = self._fabric.groups, self._fabric.rails
        runs = Counter([(one.run.one, one.run.other, one.run.control) for one in self.readings])
        broad = [one.run for one in self.hot if is_broad(one, rails)]
        lows = Counter([(run.one, run.other, run.control) for run in broad])
        bad = {pair: lows[pair] * 2 >= count for pair, count in runs.items()}
        controls = [is_low for (_, _, control), is_low in bad.items() if control]
        crossing = {pair: is_low for pair, is_low in bad.items() if groups[pair[0]] != groups[pair[1]]}
        across = [is_low for (_, _, control), is_low in crossing.items() if control]
        least = 1 if len(controls) < len(bad) else 2  # of a screening: one pair alone may be ill
        asked = list(crossing.values()) if not across and len(crossing) > 1 else across
        if len(controls) >= least and _most(controls) and sum(across) < sum(controls):
            return Part(PartKind.EVERYTHING)
        if len(asked) >= least and _most(asked) and _all_spines(self.readings):
            return Part(PartKind.BETWEEN)
        return None

    @cached_property
    def valid(self) -> Tested | None:
        """Return what counts of the round; None for nothing."""
        if self.void is None:
            return self
        if self.void.kind is PartKind.EVERYTHING:
            return None
        groups = self._fabric.groups
        return Tested(self._fabric, [one for one in self.readings if groups[one.run.one] == groups[one.run.other]])


class Lows:
    """Runs that were low. `broad`: on most rails, of a node itself; else by rail: `narrow`. Both by node and partner.

    `broads`, `links`: the same by node, and by rail and node; `leaves`: by rail and group, in how many runs it was low;
    `spines`: low flows by the spine that they took.
    """

    def __init__(self, fabric: Fabric, hot: Iterable[Reading] = ()) -> None:
        self._fabric = fabric
        self.broad: Tally = defaultdict(Counts)
        self.narrow: defaultdict[int, Tally] = defaultdict(lambda: defaultdict(Counts))
        self.broads = Counts()
        self.links: defaultdict[int, Counts] = defaultdict(Counts)
        self.leaves: defaultdict[int, Counts] = defaultdict(Counts)
        self.spines = Counts()
        self.add(hot)

    def add(self, hot: Iterable[Reading]) -> None:
        for reading in hot:
            run, there, back, _ = reading
            self._add_flows(there, run.there.spines)
            self._add_flows(back, run.back.spines)
            if is_broad(reading, self._fabric.rails):
                for node, partner in ((run.one, run.other), (run.other, run.one)):
                    self.broad[node][partner] += 1
                    self.broads[node] += 1
            else:
                self._add_links(there | back, run.one, run.other)

    def _add_links(self, low: int, one: str, other: str) -> None:
        first, second = self._fabric.groups[one], self._fabric.groups[other]
        for rail in bits(low):
            tally, links, leaves = self.narrow[rail], self.links[rail], self.leaves[rail]
            tally[one][other] += 1
            tally[other][one] += 1
            links[one] += 1
            links[other] += 1
            leaves[first] += 1
            if second != first:
                leaves[second] += 1

    def _add_flows(self, low: int, spines: tuple[str, ...]) -> None:
        """Count flows whose spine is known."""
        if low and spines:
            for rail in bits(low):
                if spines[rail]:
                    self.spines[spines[rail]] += 1


class Sums:
    """The sum of rounds, to which more are added.

    `hot`: the readings with a rail low; `lows`: what these say. `runs`, and by rail `unread`: node -> partner -> runs.
    `totals`: runs of a node; `groups`: of a group, those within it counted once. `crossings`: spine -> rails of runs
    that took it.
    """

    def __init__(self, fabric: Fabric, rounds: Iterable[Tested] = ()) -> None:
        self.rounds: list[Tested] = []
        self.hot: list[Reading] = []
        self.lows = Lows(fabric)
        self.runs: Tally = defaultdict(Counts)
        self.totals, self.groups = Counts(), Counts()
        self._fabric = fabric
        self.unread: defaultdict[int, Tally] = defaultdict(lambda: defaultdict(Counts))
        self.crossings = Counter[str]()
        for tested in rounds:
            self.add(tested)

    def add(self, tested: Tested) -> None:
        self.rounds.append(tested)
        self.hot += tested.hot
        self.lows.add(tested.hot)
        for (one, other), count in tested.runs.items():
            for node, partner in ((one, other), (other, one)):
                self.runs[node][partner] += count
                self.totals[node] += count
            for group in {self._fabric.groups[one], self._fabric.groups[other]}:
                self.groups[group] += count
        for reading in tested.unread:
            run = reading.run
            for rail in bits(reading.unread):
                self.unread[rail][run.one][run.other] += 1
                self.unread[rail][run.other][run.one] += 1
        self.crossings.update(tested.crossings)
        del self.crossings[""]  # the route of some rails may be unknown


class Evidence:
    """The readings of a search, in the order of its rounds."""

    def __init__(self, fabric: Fabric, readings: Iterable[Reading] = ()) -> None:
        self.fabric = fabric
        self.readings: list[Reading] = []
        self._by_round: defaultdict[int, list[Reading]] = defaultdict(list)
        self._rounds: dict[int, Tested] = {}
        self._valid = Sums(fabric)
        self._summed = 0  # rounds
        for reading in readings:
            self.add(reading)

    @cached_property
    def screenings(self) -> Sequence[Pair]:
        """Return the pairs that are screened, in order."""
        return tuple(dict.fromkeys(screenings(self.fabric)))

    def add(self, reading: Reading) -> None:
        self.readings.append(reading)
        self._by_round[reading.run.round].append(reading)
        if self._rounds.pop(reading.run.round, None) is not None:  # what was counted is of fewer readings
            self._valid, self._summed = Sums(self.fabric), 0

    @property
    def rounds(self) -> Mapping[int, Tested]:
        """Return the rounds by number."""
        known = self._rounds
        self._rounds = {at: known.get(at) or Tested(self.fabric, of_round) for at, of_round in self._by_round.items()}
        return self._rounds

    @property
    def valid(self) -> Sums:
        """Return what the rounds add up to, as far as they count."""
        rounds = list(self.rounds.values())
        for tested in rounds[self._summed :]:
            if (valid := tested.valid) is not None:
                self._valid.add(valid)
        self._summed = len(rounds)
        return self._valid

    def of(self, node: str) -> Iterator[Reading]:
        """Yield the readings of a node that count."""
        for tested in self.valid.rounds:
            if any(node in pair for pair in tested.runs):
                yield from (one for one in tested.readings if node in (one.run.one, one.run.other))


def is_broad(reading: Reading, rails: int) -> bool:
    """Return whether most rails were low in one of the ways: the fault is of a node, not of its rails."""
    return max(reading.there.bit_count(), reading.back.bit_count()) * 2 > rails


@lru_cache(maxsize=1 << 12)
def bits(mask: int) -> tuple[int, ...]:
    """Return the rails of a mask."""
    return tuple([rail for rail in range(mask.bit_length()) if mask >> rail & 1])


def _all_spines(readings: Iterable[Reading]) -> bool:
    """Return whether all spines are low in most of their flows: some alone are at fault themselves."""
    ways = [way for one in readings for way in ((one.there, one.run.there.spines), (one.back, one.run.back.spines))]
    flows = Counter(chain.from_iterable(spines for _, spines in ways))
    del flows[""]
    lows = Counter(spine for low, spines in ways if low for rail, spine in enumerate(spines) if low >> rail & 1)
    return sum(lows[spine] * 2 > count for spine, count in flows.items()) >= 0.9 * len(flows)


def _most(low: Collection[bool]) -> bool:
    return sum(low) > CONGESTED * len(low)
