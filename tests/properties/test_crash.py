"""Invariant 22: whatever crashes in the work on one node costs that node, and nobody else.

A run in which a reader, a judge or an action of one node raises what nobody expects is held against the same run
without: all other nodes end alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit
from reconciler.model.limits import Brake
from reconciler.model.plan import BlockCode
from tests.converge.invariant_checker import InvariantChecker, counters
from tests.converge.world import World
from tests.properties.test_execute import CURABLE, FAULTS, Case, cases, few, fleet_of

ERRORS = (KeyError("nobody expects it"), ValueError(), RecursionError("too deep"), AssertionError("our own"))
READS = {"bmc": ("hot", "inventory"), "host": ("facts",)}
WRITES = {
    "bmc": ("power", "stage_bios", "set_boot_order", "boot_once", "insert_media", "update_firmware", "reset"),
    "host": ("run",),
}
JUDGES = (
    "reconciler.planner.node.planner.assess",
    "reconciler.planner.node.planner.with_drift",
    "reconciler.planner.node.planner.fingerprint",
)
# What is kept or counted of a node besides: it costs the note, and is told, and decides nothing of the node's own work.
NOTES = (
    "reconciler.planner.node.signal_cache.signals",
    "reconciler.planner.node.signal_cache.unread_signals",
    "reconciler.converge.remember._news",
    "reconciler.planner.fleet.rollout_member._missing_now",
)
# The evidence of one is no news to another: neighbours confirm that a host is down.
ALONE = tuple(fault for fault in FAULTS if not {"host_hung", "ssh_refused", "ssh_hang"} & fault.keys())
# Nor is it to others whether there is room for them: nodes share budgets and the storm brake by design.
ROOM: dict[str, Any] = {"budgets": (BudgetLimit("fleet", "100%"),), "brake": Brake("100%", "100%")}


@dataclass(frozen=True)
class Bug:
    """`port` and `call` of a node's ports, or "" and a judge by its name; `after`: so many calls go well."""

    port: str
    call: str
    after: int
    error: Exception


@st.composite
def bugs(draw: st.DrawFn) -> Bug:
    calls = [(port, call) for table in (READS, WRITES) for port, names in table.items() for call in names]
    calls += [("", judge) for judge in (*JUDGES, *NOTES)] + [("", "gate"), ("", "fabric")]
    port, call = draw(st.sampled_from(calls))
    after = 0 if call == "fabric" else draw(st.sampled_from([0, 0, 1, 3, 8]))
    return Bug(port, call, after, draw(st.sampled_from(ERRORS)))


class Struck:
    """Counts the calls about one node, and raises. `at`: how many writes anybody had seen by the first time."""

    def __init__(self, bug: Bug, node: str, checker: InvariantChecker) -> None:
        self.bug = bug
        self.node = node
        self.calls = 0
        self.at: int | None = None
        self._witness = checker

    def call(self) -> None:
        self.calls += 1
        if self.calls > self.bug.after:
            if self.at is None:
                self.at = len(self._witness.writes)
            raise type(self.bug.error)(*self.bug.error.args)

    def about(self, words: tuple[Any, ...]) -> bool:
        return any(getattr(word, "node", None) == self.node for word in words)


@contextmanager
def struck(here: World, bug: Bug, node: str, checker: InvariantChecker) -> Iterator[Struck]:
    found = Struck(bug, node, checker)
    if bug.port:
        _break_port(here, found)
        yield found
    elif bug.call == "gate":
        real = here.gate.run

        async def run(desired: Any, *rest: Any) -> Any:
            if desired.node == node:
                found.call()
            return await real(desired, *rest)

        with mock.patch.object(here.gate, "run", run):
            yield found
    elif bug.call == "fabric":
        bmc = here.fabric.bmc

        def port(desired: Any) -> Any:
            if desired.node == node:
                found.call()
            return bmc(desired)

        with mock.patch.object(here.fabric, "bmc", port):
            yield found
    else:
        with mock.patch(bug.call, _breaking(bug.call, found)):
            yield found


def _break_port(here: World, found: Struck) -> None:
    """The node's own port, which all of its fabric's callers get."""
    desired = here.fleet.nodes[found.node]
    port: Any = here.fabric.bmc(desired) if found.bug.port == "bmc" else here.fabric.host(desired)
    inner = port._port  # behind the checker
    real = getattr(inner, found.bug.call)

    async def call(*words: Any, **options: Any) -> Any:
        found.call()
        return await real(*words, **options)

    setattr(inner, found.bug.call, call)


def _breaking(name: str, found: Struck) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[attribute]), attribute)

    def call(*words: Any, **options: Any) -> Any:
        if found.about(words):
            found.call()
        return real(*words, **options)

    return call


def _own(actions: list[str]) -> list[str]:
    """Leave out drains: pods that other nodes evict move to wherever there is room, and are evicted there again."""
    return [action for action in actions if action != "drain"]


# A machine that is off explains a host that does not answer, and not a bug of ours in reading it.
OFF = Case((("powered_off", "bios_off"), ()), ({}, {}), ())


@few
@given(cases(most=3, drifts=CURABLE, faults=ALONE), st.integers(0, 2), bugs())
@example(OFF, 0, Bug("host", "facts", 1, ERRORS[2]))
def test_one_nodes_crash_is_its_own(case: Case, at: int, bug: Bug) -> None:
    """Invariant 22."""
    name = f"n{at % len(case.drift)}"
    with fleet_of(case, **ROOM) as calm:
        expected = calm.apply(wait_s=36000.0).results
        others = [other for other in calm.fleet.nodes if other != name]
        done = {other: (expected[other].state, _own(calm.did(other)), counters(calm)[other]) for other in others}
    with fleet_of(case, **ROOM) as here:
        checker = InvariantChecker(here)
        with struck(here, bug, name, checker) as found:
            report = here.apply(wait_s=36000.0)
        ends = {other: (report.results[other].state, _own(here.did(other)), counters(here)[other]) for other in others}
        assert ends == done
        if found.at is None or bug.call in NOTES:
            return
        assert [write for node, write in checker.writes[found.at :] if node == name] == [], "it is left alone"
        assert checker.seen == {}
        assert report.results[name].state is Ended.CRASHED
        assert type(bug.error).__name__ in report.results[name].detail


def test_a_node_that_crashes_is_told_as_crashed_and_others_go_on() -> None:
    """By name and message, in its result and in the plan."""
    case = Case((("bios_off",), ("bios_off",)), ({}, {}), ())
    with fleet_of(case, **ROOM) as here:
        checker = InvariantChecker(here)
        with struck(here, Bug("", "reconciler.planner.node.planner.assess", 0, ERRORS[0]), "n0", checker):
            report = here.apply()
        assert report.results["n0"].state is Ended.CRASHED
        assert "KeyError: 'nobody expects it' at " in report.results["n0"].detail
        blocked = report.plan.nodes["n0"].blocked
        assert blocked is not None
        assert blocked.code is BlockCode.CRASHED
        assert not any(node == "n0" for node, _ in checker.writes)
        assert report.results["n1"].state is Ended.DONE
        assert here.serves("n1")
        assert here.ledger.node("n0").applied == {}, "nothing was compared, so nothing is known to be as desired"
