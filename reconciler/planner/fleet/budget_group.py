"""A limit of the disruption budget, and the nodes that use it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.model.desired import Floor, Hours, Reserve
from reconciler.model.plan import BlockCode, Blocked, BudgetLine
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Reason
from reconciler.planner.fleet import hours

ANY: frozenset[Reason] = frozenset(Reason)


def person_needed(nodes: Sequence[str]) -> str:
    """Return the end of a sentence about nodes that hold others up: what a person can do."""
    shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
    waits, them = ("waits", "it") if len(nodes) == 1 else ("wait", "them")
    return f"{shown} {waits} for a person: repair {them}, or set `state: quarantined` for {them} in the spec"


@dataclass(slots=True)
class Group:
    """A limit on some nodes. `words`: the start of its refusal, and what is counted."""

    name: str
    limit: int
    total: int
    rule: str
    words: tuple[str, str]
    reasons: frozenset[Reason] = ANY
    period: timedelta | None = None  # of a rate
    active: bool = True
    declared: bool = False  # by the fleet, as a limit on how many are out at once
    everywhere: bool = False  # one of its kind holds for every node
    during: Hours | None = None  # None = always
    used: dict[str, datetime] = field(default_factory=dict)  # node -> out since; {} of a rate
    isolated: set[str] = field(default_factory=set)  # of those, the ones that are not drained yet
    back: set[str] = field(default_factory=set)  # of those used, the ones in service that their serving group lacks
    taken: list[tuple[datetime, str]] = field(
        default_factory=list
    )  # of a rate: each time that a node was taken out within its period
    queued: int = 0  # nodes that wait for it
    full: Blocked | None = None  # the current refusal, the same for all that wait
    stuck: AbstractSet[str] = frozenset()  # nodes that nothing but a person brings back

    @property
    def count(self) -> int:
        return len(self.used) if self.period is None else len(self.taken)

    def use(self, node: str, now: datetime) -> None:
        if self.period is None:
            self.used[node] = now
            self.back.discard(node)
        else:
            self.taken.append((now, node))
        self.full = None

    def free(self, node: str) -> None:
        self.used.pop(node, None)
        self.isolated.discard(node)
        self.back.discard(node)
        self.full = None

    def come_back(self, node: str) -> None:
        """Take in that a node is in service, and counts until its serving group is told to serve with it."""
        self.back.add(node)
        self.full = None

    def forget(self, since: datetime) -> None:
        """Drop from a rate what was taken out up to `since`."""
        if any(at <= since for at, _ in self.taken):
            self.taken = [(at, node) for at, node in self.taken if at > since]
            self.full = None

    def has_room(self, node: str) -> bool:
        """Return whether `node` may go out. An isolated node is out already, and needs room among drained ones."""
        if self.count < self.limit:
            return True
        return self.has_room_to_drain if node in self.isolated else node in self.used

    @property
    def has_room_to_drain(self) -> bool:
        """Return whether another isolated node may be drained.

        Nodes that their serving group lacks only until it is told are no bar: it is told once the isolated one is back.
        """
        return len(self.used) - len(self.isolated) - len(self.back) < self.limit

    def refusal(self) -> Blocked:
        """Return why the limit lets nobody go. The text is made once, and again when what it names has changed."""
        self.full = self.full or self._refusal()
        return self.full

    def _refusal(self) -> Blocked:
        times = Counter(list(self.used)) if self.period is None else Counter(node for _, node in self.taken)
        names = [node if times[node] == 1 else f"{node} {times[node]} times" for node in sorted(times)]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        many = f"{self.count} of {self.limit} {self.words[1]}"
        if self.count > self.limit > 0:  # by others, or for reasons that it does not hold for
            many = f"{self.count} {self.words[1]} where {self.limit} may be"
        detail = f"{self.words[0]}: {many}" + (f" ({shown})" if shown else "")
        if stuck := sorted(self.used.keys() & self.stuck):
            detail += f"; {person_needed(stuck)}"
        until = None
        if self.period is not None and self.limit > 0:
            until = sorted(self.taken)[self.count - self.limit][0] + self.period
        return Blocked(BlockCode.BUDGET, detail, until)

    def line(self) -> BudgetLine:
        reasons = () if self.reasons == ANY else in_order(self.reasons)
        per_s = None if self.period is None else self.period.total_seconds()
        during = "" if self.during is None else hours.text(self.during)
        return BudgetLine(
            self.name,
            self.limit,
            self.total,
            (*self.used, *(node for _, node in self.taken)),
            self.rule,
            reasons,
            per_s,
            during,
            self.active,
        )


def in_order(reasons: Collection[Reason]) -> tuple[Reason, ...]:
    return tuple(reason for reason in Reason if reason in reasons)


def floor_group(floor: Floor, total: int, reserves: Sequence[Reserve]) -> Group:
    """Limit how many nodes of a persona, of which there are `total`, are out. Spares count as none of them.

    So they leave less room.
    """
    least = parse_nodes(floor.nodes, total)
    kept = sum(parse_nodes(one.nodes, total) for one in reserves if one.persona == floor.persona)
    spare = max(total - least - kept, 0)
    shown = f"{floor.nodes} of {total}" if floor.nodes.endswith("%") else floor.nodes
    shown += f" - {kept} spares" if kept else ""
    words = (f"{least} of {total} nodes of persona {floor.persona} must stay in service", "others out")
    return Group(f"persona {floor.persona}", spare, total, f"{total} - {shown} = {spare}", words)
