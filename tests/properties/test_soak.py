"""A soak passes only where the boot in which it began also saw its end, and each of its runs was read in its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import event, example, given
from hypothesis import strategies as st

from reconciler.converge.ports import SoakRun
from reconciler.converge.soak import Follower
from reconciler.gate.certificate import judge_test
from reconciler.gate.soak import on_node
from reconciler.model import soak
from reconciler.model.desired import GateTest, Threshold
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, Verdict
from reconciler.model.observed import Answered, HostFacts, Silent
from tests import builders as b
from tests.gate.cases import wanted

SECONDS = 3600
BOOT, NEXT_BOOT = "boot-1", "boot-2"
LOAD = GateTest("train", "command", {"run": "train", "metrics": "speed"}, (Threshold("speed", 50.0),), 5.0)


@dataclass(frozen=True)
class Shown:
    """What the node shows at one look. `runs`: numbers of the runs that it lists, whichever were asked for."""

    boot: str = BOOT
    began: str = BOOT
    state: str = "active"
    runs: tuple[int, ...] = ()
    done: int | None = None
    cut: bool = False

    def text(self) -> str:
        lines = [f"now {self.boot}", "LoadState=loaded", f"ActiveState={self.state}", "SubState=running"]
        lines += [f"began {self.began}"] if self.began else []
        lines += [f"run {run} {run} 1 {(run - 1) * 60} {run * 60} 0" for run in self.runs]
        lines += [] if self.done is None else [f"done {self.done}"]
        return "\n".join(lines) + ("" if self.cut else "\nend\n")


@dataclass
class ScriptedNode:
    """Answers each look with the next of `looks`, and the last one from then on."""

    looks: Sequence[Shown]
    slow: frozenset[int]  # runs below their bar
    shown: list[Shown] = field(default_factory=list)
    stopped: bool = False

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:  # noqa: ARG002 - the port's signature
        words = tuple(argv)
        if words == on_node.stop("a1"):
            self.stopped = True
        elif words[2] == on_node.look("a1", 1)[2]:
            self.shown.append(self.looks[min(len(self.shown), len(self.looks) - 1)])
            return CommandResult(0, self.shown[-1].text(), "")
        elif words[2] == on_node.output("a1", 1)[2]:
            run = int(words[-1].rpartition("/")[2])
            return CommandResult(0, f"speed {10 if run in self.slow else 100}\n", "")
        return CommandResult(0, "", "")

    async def facts(self, _sysctls: Sequence[str], _services: Sequence[str]) -> Answered[HostFacts] | Silent:
        return b.observed().host


class NoWait:
    """A clock that jumps over each wait."""

    elapsed = 0.0

    def now(self) -> datetime:
        return b.NOW + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def real_seconds(self, seconds: float) -> float:
        return seconds

    async def sleep(self, seconds: float) -> None:
        self.elapsed += seconds


@st.composite
def histories(draw: st.DrawFn) -> tuple[Shown, ...]:
    """Draw looks at a soak that ends well, or with its end brought forward, and let some of them go wrong."""
    steps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    looks, read = [], 0
    for more in steps:
        looks.append(Shown(runs=tuple(range(read + 1, read + more + 1))))
        read += more
    looks.append(Shown(state="inactive", runs=(read + 1,), done=draw(st.sampled_from([SECONDS, SECONDS + 60, 60]))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(looks) - 1))
        good = looks[at]
        looks[at] = draw(
            st.sampled_from(
                [
                    Shown(NEXT_BOOT, good.began, "inactive", good.runs, good.done),
                    Shown(good.boot, "", good.state),
                    Shown(good.boot, good.began, "failed", good.runs),
                    Shown(good.boot, good.began, good.state, (*good.runs, *good.runs), good.done),
                    Shown(good.boot, good.began, good.state, tuple(run + 1 for run in good.runs), good.done),
                    Shown(good.boot, good.began, good.state, good.runs, good.done, cut=True),
                ]
            )
        )
    return tuple(looks)


AFTER_A_BOOT = (Shown(runs=(1, 2)), Shown(NEXT_BOOT, BOOT, "inactive", (3,), SECONDS))


@example(AFTER_A_BOOT, frozenset(), True)
@given(histories(), st.frozensets(st.integers(1, 12), max_size=1), st.booleans())
def test_a_soak_passes_only_with_the_end_of_the_boot_that_it_began_in(
    looks: tuple[Shown, ...], slow: frozenset[int], resumed: bool
) -> None:
    node = ScriptedNode(looks, slow)
    (test,) = soak.phase(SECONDS, 2.0, (LOAD,)).tests
    facts = b.observed()
    follow = Follower(test, wanted(gpus=2), facts, node, NoWait(), SoakRun("a1", resumed))  # type: ignore[arg-type]
    try:
        result = asyncio.run(follow.result())
    except DriverError:
        event("unreadable")
        assert node.stopped
        return
    verdict, reasons = judge_test(follow.test, result)
    event(str(verdict))
    assert node.stopped
    last = node.shown[-1]
    listed = [run for one in node.shown for run in one.runs]
    whole = all(one.began == one.boot == BOOT and not one.cut for one in node.shown)
    good = (
        whole
        and last.done is not None
        and last.done >= SECONDS
        and listed == list(range(1, len(listed) + 1))
        and slow.isdisjoint(listed)
    )
    if verdict is Verdict.PASS:
        assert good, (looks, slow)
    if good and len(listed) > 1 and all(one.state in ("active", "inactive") for one in node.shown):
        assert verdict is Verdict.PASS, reasons
