"""Random events on a small fleet over some hours, drawn from a seed: a list that can be printed, run and shortened."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.lab.hardware.faults import FaultValue
from reconciler.model.records import FLEET
from reconciler.model.units import format_duration
from reconciler.model.vocab import NodeState
from tests.soak.machine import EDITS
from tests.soak.spec import ALL, POOL_OF, Spec
from tests.soak.world import DRIFTS
from tests.soak.world import FAULTS as USUAL

MINUTE, HOUR = 60.0, 3600.0
LENGTH_S = 4 * HOUR
FAULTS: Mapping[str, tuple[str, Mapping[str, FaultValue]]] = {
    **USUAL,
    "node object contended": ("node_conflicts", {}),
    "boots the wrong disk": ("wrong_boot_disk", {}),
    "BMC busy for long": ("bmc_503", {"times": 0}),
    "no power order works": ("power_ignored", {"times": 0}),
    "hangs in POST each time": ("post_hang", {"times": 0}),
    "installer fails each time": ("installer_fails", {"times": 0}),
    "host hangs each time": ("host_hung", {"persistent": True}),
    "flash forgotten, not done": ("firmware_task_lost", {"flashed": False}),
}
LASTS = (30.0, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, 2 * HOUR, LENGTH_S)
EDITED = tuple(edit for edit in EDITS if edit[0] != "rollout")


@dataclass(frozen=True)
class ScheduledEvent:
    """One event. `until`: its end, if it ends. `what`, `subject` and `detail` as in `schedule_run.HANDLERS`."""

    at: float
    what: str
    subject: str = ""
    detail: object = ""
    until: float | None = None

    def __str__(self) -> str:
        span = "" if self.until is None else f" for {format_duration(self.until - self.at)}"
        words = (word for word in (self.what, self.subject, str(self.detail)) if word)
        return f"{format_duration(round(self.at)) or '0s':>8}  {': '.join(words)}{span}"


@dataclass(frozen=True)
class Schedule:
    """A fleet, its policy, and the events on it."""

    seed: int
    names: tuple[str, ...]
    policy: Mapping[str, str]  # names of the budgets, windows and rollout policy of the spec
    events: tuple[ScheduledEvent, ...]

    def spec(self) -> Spec:
        spec = Spec(states=dict.fromkeys(self.names, NodeState.ACTIVE))
        spec.budgets, spec.windows = self.policy["budgets"], self.policy["windows"]
        for pool in spec.pools.values():
            pool.rollout = self.policy["rollout"]
        return spec


@dataclass
class _Draw:
    rng: random.Random
    names: Sequence[str]
    found: list[ScheduledEvent] = field(default_factory=list)

    def some(self, most: int, what: Callable[[], None]) -> None:
        for _ in range(self.rng.randint(0, most)):
            what()

    def at(self) -> float:
        return round(self.rng.uniform(0.0, LENGTH_S))

    def add(self, what: str, subject: str = "", detail: object = "", *, at: float = -1.0, lasts: bool = False) -> None:
        begins = self.at() if at < 0 else at
        until = min(begins + self.rng.choice(LASTS), LENGTH_S) if lasts else None
        self.found.append(ScheduledEvent(begins, what, subject, detail, until))

    def node(self) -> str:
        return self.rng.choice(self.names)

    def pool(self) -> str:
        return self.rng.choice(sorted({POOL_OF[name] for name in self.names}))


def draw(seed: int) -> Schedule:
    """Draw a schedule. It depends only on the seed."""
    rng = random.Random(seed)
    names = tuple(rng.sample(ALL, min(rng.randint(3, len(ALL)), rng.randint(3, len(ALL)))))  # small fleets are cheaper
    one = _Draw(rng, sorted(names))
    for name in one.names:
        if rng.random() < 0.25:
            one.add("drift", name, rng.choice(DRIFTS), at=0.0)
    if rng.random() < 0.7:
        one.add("edit", one.pool(), ("image", rng.choice(("2", "3"))), at=0.0)
    one.some(2, lambda: one.add("edit", one.pool(), rng.choice(EDITED)))
    one.some(3, lambda: one.add("drift", one.node(), rng.choice(DRIFTS)))
    for _ in range(rng.randint(1, 2 + len(names))):
        one.add("fault", one.node(), rng.choice(sorted(FAULTS)), lasts=True)
    one.some(1, lambda: one.add("fails its gate", one.node()))
    one.some(2, lambda: one.add("cordon", one.node(), lasts=True))
    one.some(2, lambda: one.add("hold", rng.choice((one.node(), one.node(), f"pool/{one.pool()}", FLEET)), lasts=True))
    one.some(1, lambda: one.add("API server down", lasts=True))
    one.some(3, lambda: one.add("crash", "", (rng.choice(("Ctrl-C", "power cut")), rng.randint(1, 60))))
    one.some(1, lambda: one.add("second runner"))
    policy = {
        "budgets": rng.choice(("half", "half", "all", "default", "one a rack", "one a pool")),
        "windows": rng.choice(("none", "none", "none", "nights", "not at noon")),
        "rollout": rng.choice(("at once", "at once", "bold", "default", "slow")),
    }
    return Schedule(seed, tuple(one.names), policy, tuple(sorted(one.found, key=lambda found: found.at)))
