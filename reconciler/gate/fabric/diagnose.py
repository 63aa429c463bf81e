"""From all results so far to the next round, or to the verdict.

The blame goes on without what is explained: a convicted part takes its low runs with it, and the rest is judged anew. A
cause that nodes share comes first, as it makes good nodes look bad. A test that could not run proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop
from math import ceil, log

from reconciler.gate.fabric.blame import CONVICTS, LEAST_SHARE, PARTNERS, SUSPECTS, Accounts, Blame, explained, likelier
from reconciler.gate.fabric.evidence import Evidence, Pair
from reconciler.gate.fabric.results import Bar, LoopbackRun, PairRun, read
from reconciler.gate.fabric.rounds import CONFIRMING_RUNS, CONTROLS, SCREENING_RUNS, Room, Round, Seats
from reconciler.gate.fabric.topology import Fabric, Part, PartKind

ROUNDS = 2  # in which a common cause is low before it is named: what passes is no fault of a switch
_ONE_WAY, _BOTH_WAYS = 0.3, 0.55  # shortfall of the better way, as a share of the worse: between them, measure again
_MISSED = 0.001  # chance that a loopback test of an intermittent NIC is good throughout
_MOST_LOOPBACKS = 60
_LUCK_ALONE = 0.005  # share of low runs of a healthy NIC with itself: no other traffic and no partner takes part
_NEARLY_ALL = 0.9  # of a link's low flows
_FEW = 6  # low flows, as many as noise may have on a cable
_SURE = 0.9  # a part that was always low may be good now and then, too; half or a third of its share is reckoned with


@dataclass(frozen=True, slots=True)
class Conviction:
    """A part that is at fault, and the evidence: lows of runs, and the partners that saw it, whose others were good."""

    part: Part
    lows: int
    runs: int
    partners: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        seen = f"{self.lows} of {self.runs} runs are low"
        return f"{self.part}: {'; '.join(filter(None, (seen, self.detail)))}"


@dataclass(frozen=True, slots=True)
class Incident:
    """A cause that nodes share, in a round that counts for no one."""

    part: Part
    round: int
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The outcome of all results so far. `next` None: nothing is left to ask, or no round is left.

    `convicted` has common causes too (`Part.blames_node` is false for them). `undecided`: node -> why.
    """

    convicted: tuple[Conviction, ...]
    incidents: tuple[Incident, ...]
    acquitted: frozenset[str]
    undecided: Mapping[str, str]
    next: Round | None


def diagnose(
    fabric: Fabric, runs: Sequence[PairRun], loopbacks: Sequence[LoopbackRun], bar: Bar, room: Room | None = None
) -> Diagnosis:
    """Judge all runs so far. `bar`: what a healthy rail keeps; `room`: what a round may take, by default every node."""
    return judge(Evidence(fabric, [read(run, bar) for run in runs]), loopbacks, bar, room)


def judge(evidence: Evidence, loopbacks: Sequence[LoopbackRun], bar: Bar, room: Room | None = None) -> Diagnosis:
    """Judge readings, to which a caller that asks round after round adds."""
    fabric = evidence.fabric
    room = room or Room(len(fabric.groups))
    accounts = Accounts(fabric, evidence.valid)
    convicted, undivided = [], []
    for blame in _convict(accounts):
        conviction: Conviction | None = _conviction(blame)
        if blame.part.kind is PartKind.LINK:
            conviction = _divide(evidence, accounts, blame, loopbacks, bar)
            if conviction is None:
                undivided.append(blame)
                continue
        assert conviction is not None
        convicted.append(conviction)
    suspects = _suspects(accounts, [*(one.part for one in convicted), *(blame.part for blame in undivided)])
    done = 1 + max([*evidence.rounds, *(run.round for run in loopbacks)], default=-1)
    times = ceil(len(fabric.groups) / max(2, room.nodes))
    following = None
    if done < fabric.most_rounds * times:
        alone = Counter(run.node for run in loopbacks)
        following = _next(accounts, evidence.screenings, suspects, undivided, alone, room)
    convicted += [
        _conviction(blame, detail="a loopback test has to tell NIC, cable and leaf port apart") for blame in undivided
    ]
    void = [(number, part) for number, tested in sorted(evidence.rounds.items()) if (part := tested.void) is not None]
    incidents = tuple(Incident(part, number, _VOID[part.kind]) for number, part in void)
    undecided = dict(_undecided(accounts, convicted, suspects))
    guilty = {one.part.name for one in convicted if one.part.blames_node}
    acquitted = frozenset(node for node in fabric.groups if node not in undecided and node not in guilty)
    return Diagnosis(tuple(convicted), incidents, acquitted, undecided, following)


_VOID = {
    PartKind.EVERYTHING: "most pairs of nodes held for healthy were low: congestion, the subnet manager or the test",
    PartKind.BETWEEN: "most pairs across leaves were low, and those within leaves were not: congestion of the uplinks",
}


def _convict(accounts: Accounts) -> Iterator[Blame]:
    """Yield what is convicted, one after the other; each is explained before the next is looked for."""
    while (blame := _worst(accounts)) is not None:
        yield blame
        accounts.explain(blame.part)


def _worst(accounts: Accounts) -> Blame | None:
    shared = [blame for blame in accounts.common(LEAST_SHARE) if blame.convicts]
    if shared:
        worst = max(shared, key=lambda blame: blame.weight)
        return worst if worst.rounds >= ROUNDS else None  # nobody is blamed for what may be a common cause
    nodes = [accounts.of_node(node) for node in accounts.broad]
    for many in (nodes, accounts.links(CONVICTS)):
        proven = [accounts.proven(blame) for blame in many if blame.convicts]
        guilty = [blame for blame in proven if blame.convicts and len(blame.partners) >= PARTNERS]
        for blame in sorted(guilty, key=lambda blame: -blame.strength):
            if not _shared_by_leaf(accounts, blame) and not _shared_by_cable(accounts, blame):
                return blame
    return None


def _shared_by_cable(accounts: Accounts, blame: Blame) -> bool:
    """Return whether all that is low of a link takes one cable to a spine, on which flows of other nodes are low, too.

    Where a flow's spine goes by its destination, all flows to a node across leaves take one cable, and hide in the
    account of the node what is the cable's.
    """
    name, rail, groups = blame.part.name, blame.part.rail, accounts.fabric.groups
    if rail is None:
        return False
    mine, others, flows = Counter[str](), Counter[str](), 0
    for reading in accounts.hot:
        one, other = reading.run.one, reading.run.other
        is_mine = name in (one, other)
        for low, leg, ends in (
            (reading.there, reading.run.there, (one, other)),
            (reading.back, reading.run.back, (other, one)),
        ):
            if low >> rail & 1:
                flows += is_mine
                (mine if is_mine else others).update(leg.route(rail, [groups[end] for end in ends]))
    return any(
        count >= _NEARLY_ALL * flows and others[cable] >= max(_FEW, LEAST_SHARE * count)
        for cable, count in mine.items()
    )


def _shared_by_leaf(accounts: Accounts, blame: Blame) -> bool:
    """Return whether to wait until it is clear whose fault it is.

    It is not while the rest of the leaf is low nearly as often, or another of its links, and the proof is not twice as
    strong as it need be: a leaf that flaps makes two links look bad before it shows in the others.
    """
    part = blame.part
    group = accounts.fabric.groups[part.name]
    if part.rail is None or len(accounts.fabric.members[group]) < 2:
        return False
    rest = accounts.leaf(group, part.rail, frozenset({part.name}))
    if rest.share >= blame.share / 2 and rest.strength >= SUSPECTS:
        return True
    if blame.strength >= 2 * CONVICTS:
        return False
    others = (node for node in accounts.fabric.members[group] if node != part.name)
    return any(accounts.of_link(node, part.rail, part.name).strength >= CONVICTS / 2 for node in others)


def _divide(
    evidence: Evidence, accounts: Accounts, blame: Blame, loopbacks: Sequence[LoopbackRun], bar: Bar
) -> Conviction | None:
    """Tell NIC, cable and leaf port apart; None before the node has tested with itself.

    A NIC that is low with itself is at fault by itself. Otherwise a cable is low both ways, and a port one way.
    """
    node, rail = blame.part.name, blame.part.rail
    assert rail is not None
    alone = [value for run in loopbacks if run.node == node and (value := run.bandwidth[rail]) is not None]
    if len(alone) < _loopbacks(blame):
        return None
    low = sum(value < bar.bandwidth for value in alone)
    if likelier(low, len(alone), min(_SURE, blame.share) / 2, _LUCK_ALONE) > 0:
        return _conviction(blame, PartKind.NIC, f"so are {low} of {len(alone)} with itself")
    into, out = _shortfalls(evidence, accounts, blame, bar)
    ratio = min(into, out) / max(into, out, 1e-9)
    if _ONE_WAY < ratio < _BOTH_WAYS:
        return None
    if ratio >= _BOTH_WAYS:
        return _conviction(blame, PartKind.CABLE, "both ways, and none with itself: swap its ends first")
    way = "to" if into > out else "from"
    return _conviction(blame, PartKind.LEAF_PORT, f"only {way} the node, and none with itself")


def _conviction(blame: Blame, kind: PartKind | None = None, detail: str = "") -> Conviction:
    part = blame.part if kind is None else blame.part._replace(kind=kind)
    return Conviction(part, blame.lows, blame.runs, blame.partners, detail)


def _loopbacks(blame: Blame) -> int:
    """Return how many runs with itself show a NIC that is low in this share of its runs."""
    return min(_MOST_LOOPBACKS, ceil(log(_MISSED) / log(1 - min(_SURE, blame.share) / 3)))


def _shortfalls(evidence: Evidence, accounts: Accounts, blame: Blame, bar: Bar) -> tuple[float, float]:
    """Return the mean shortfall below the bar of what goes to the node, and of what comes from it."""
    node, rail = blame.part.name, blame.part.rail
    assert rail is not None
    into, out = list[float](), list[float]()
    others = [part for part in accounts.convicted if part != blame.part]
    for reading in evidence.of(node):
        run = reading.run
        if (run.other if run.one == node else run.one) not in blame.partners:
            continue
        ways = (run.there, run.back) if run.other == node else (run.back, run.there)
        for leg, found in zip(ways, (into, out), strict=True):
            value = leg.bandwidth[rail]
            elsewhere = any(explained(accounts.fabric, part, reading, leg.spines) >> rail & 1 for part in others)
            if value is not None and not elsewhere:
                found.append(max(0.0, bar.bandwidth - value))
    return sum(into) / max(1, len(into)), sum(out) / max(1, len(out))


def _suspects(accounts: Accounts, convicted: Iterable[Part]) -> list[Blame]:
    """Return the accounts of nodes and links that are neither good nor convicted, the worst first."""
    known = set(convicted)
    nodes = {part.name for part in known if part.kind is PartKind.NODE}
    links = {(part.name, part.rail) for part in known}
    every = [accounts.of_node(node) for node in accounts.broad]
    every += accounts.links(SUSPECTS)
    worst: dict[str, Blame] = {}
    for blame in sorted(every, key=lambda blame: -blame.strength):
        part = blame.part
        if blame.strength >= SUSPECTS and part.name not in nodes and (part.name, part.rail) not in links:
            worst.setdefault(part.name, blame)
    return list(worst.values())


def _next(
    accounts: Accounts,
    asked: Sequence[Pair],
    suspects: list[Blame],
    undivided: list[Blame],
    alone: Counter[str],
    room: Room,
) -> Round | None:
    """Return the next round: loopbacks, screenings that are still due, and suspects with partners; None when done.

    `asked`: pairs that are screened. `alone`: runs of each node with itself.
    """
    fabric = accounts.fabric
    seats = Seats(fabric, room)
    unclear = []
    for blame in undivided:
        node, wanted = blame.part.name, _loopbacks(blame)
        if alone[node] >= wanted:
            unclear.append(blame)
        else:
            seats.loopback(node, wanted)
    guilty = {part.name: part for part in accounts.convicted if part.blames_node}
    slow = {name for name, part in guilty.items() if part.kind is PartKind.NODE}
    met = accounts.runs
    due = [(one, other) for one, other in asked if other not in met[one] and slow.isdisjoint((one, other))]
    if due:
        for one, other in due:
            seats.pair(one, other, SCREENING_RUNS, control=True)
        return seats.round() if seats.matches or seats.loopbacks else None
    thin = [node for node in fabric.groups if node not in slow and len(_partners(accounts, node)) < PARTNERS]
    doubtful = list(dict.fromkeys([*(blame.part.name for blame in [*suspects, *unclear]), *thin]))
    if not doubtful:
        return seats.round() if seats.loopbacks else None
    bad = {*doubtful, *guilty}
    rails = {blame.part.name: blame.part.rail for blame in [*suspects, *unclear]}
    for node in doubtful:
        _seat(seats, accounts, node, rails.get(node), bad)
    good = [node for node in fabric.groups if node not in bad]
    _seat_controls(seats, fabric, good)
    return seats.round()


def _seat_controls(seats: Seats, fabric: Fabric, good: Sequence[str]) -> None:
    """Pair nodes that are held for healthy, across groups and within one in the same round."""
    for across in (True, False) * (CONTROLS // 2):
        free = [node for node in good if seats.free(node)]
        pairs = ((one, other) for at, one in enumerate(free) for other in free[at + 1 :])
        pair = next((pair for pair in pairs if (len({fabric.groups[node] for node in pair}) == 2) is across), None)
        if pair is not None:
            seats.pair(*pair, SCREENING_RUNS, control=True)


def _partners(accounts: Accounts, node: str) -> Collection[str]:
    """Return the partners with which a node has a run that could be read."""
    if not accounts.unread or not any(node in tally for tally in accounts.unread.values()):
        return accounts.runs[node]
    blind = [accounts.unread[rail][node] for rail in range(accounts.fabric.rails)]
    return [name for name, runs in accounts.runs[node].items() if any(runs > by[name] for by in blind)]


def _seat(seats: Seats, accounts: Accounts, node: str, rail: int | None, bad: Set[str]) -> None:
    """Pair a doubtful node with the partner that tells most.

    It is one that nothing convicted stands before, one held for healthy, and one that it has not met. Where its lows
    came from one side, from within its group or from others, so does the partner.
    """
    groups, met = accounts.fabric.groups, accounts.runs[node]
    within = across = 0
    for tally in (accounts.broad, *accounts.narrow.values()):
        for partner, low in tally[node].items() if node in tally else ():
            if groups[partner] == groups[node]:
                within += low
            else:
                across += low

    if seats.full() or not seats.free(node):
        return
    hidden, home = accounts.hidden(rail), groups[node]
    aside = within > 2 * across, across > 2 * within  # whether a partner across is, and one within
    behind = node in hidden
    found = [
        (behind or other in hidden, other in bad, aside[groups[other] == home], met[other], other)
        for other in seats.left
        if other != node
    ]
    heapify(found)
    while found and not seats.pair(node, heappop(found)[-1], CONFIRMING_RUNS, control=False):
        pass


def _undecided(
    accounts: Accounts, convicted: Sequence[Conviction], suspects: Iterable[Blame]
) -> Iterator[tuple[str, str]]:
    fabric = accounts.fabric
    for node in fabric.groups:
        if len(_partners(accounts, node)) < PARTNERS:
            yield node, f"its tests ran with fewer than {PARTNERS} partners"
    for one in convicted:
        if one.part.kind is PartKind.LEAF:
            for node in fabric.members[one.part.name]:
                yield node, f"its rail {one.part.rail} is behind {one.part}"
    for blame in suspects:
        yield blame.part.name, f"{blame.part} was low in {blame.lows} of {blame.runs} runs: neither good nor bad yet"
