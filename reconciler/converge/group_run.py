"""Run one program over several nodes at once, such as a collective of NCCL, over the reconciler's own connections.

The nodes need not trust each other: what MPI would start on them by SSH is started from here (gate/tools/mpi.py). Each
of its parts runs under the lock and the guard of its own node, so whatever ends one ends all, and nothing stays behind.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Final

from reconciler.converge.gate_command import run_alone
from reconciler.converge.observe import io_seconds
from reconciler.converge.ports import Partners, TakenPartner
from reconciler.gate.fabric.pair_steps import Ended
from reconciler.gate.fabric.rail_by_rail import by_rail, each_rail
from reconciler.gate.lock import unlocked
from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.mpi import Launch, daemon_command, first_command, read_told, told_command, why_not_started
from reconciler.model.desired import Desired, GateTest
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gate_arguments import GROUP
from reconciler.model.observed import Observed
from reconciler.model.ports import Clock, Host

SERVES_S: Final = 60.0  # that a partner's part outlives the time limit of the first, so that it is not what ends first
_LOOK_S: Final = 15.0
_POLL_S: Final = 1.0
_STARTS_S: Final = 60.0  # for mpirun to tell which daemons it needs
_GOES_S: Final = 10.0  # for mpirun to end by itself once one of its daemons has
_TELLS_S: Final = 20.0  # for its daemons to end once it has, and for a lost one's host to be asked to end the rest

_Task = asyncio.Task[CommandResult]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the nodes of a test."""

    desired: Desired
    observed: Observed
    host: Host


def side_of(partner: TakenPartner) -> Side:
    return Side(partner.desired, partner.observed, partner.host)


def error(test: GateTest, why: str) -> TestResult:
    """Return the result of a test that could not run, which proves nothing."""
    return TestResult(test.name, test.tool, Verdict.ERROR, (why,), {})


async def with_partners(
    partners: Partners | None, held: dict[str, TakenPartner], test: Callable[[Partners], Awaitable[Ended]]
) -> Ended:
    """Return how a test with partners ended. Afterwards none of those that it put into `held` is held any more."""
    if partners is None:
        return Ended(Verdict.UNJUDGED, "needs partners, and none can be had here")
    try:
        return await test(partners)
    finally:
        for name in list(held):
            await partners.free(held.pop(name))


async def run_group(test: GateTest, sides: Sequence[Side], clock: Clock, outputs: list[CommandResult]) -> TestResult:
    """Run the test over all these nodes, rail after rail if it asks so, and put what the first printed into `outputs`.

    Whatever happens, all that was started is ended on each of them. A DriverError is raised where the first was lost.
    """
    each = each_rail(test)
    if not each:
        return await _run_once(test, sides, clock, outputs)
    return by_rail(test, {rail: await _run_once(one, sides, clock, outputs) for rail, one in each.items()})


async def _run_once(test: GateTest, sides: Sequence[Side], clock: Clock, outputs: list[CommandResult]) -> TestResult:
    tool, first = TOOLS[test.tool], sides[0]
    assert tool.launch is not None, "the spec takes groups of no other tool"
    test = replace(test, args={**test.args, GROUP: len(sides)})
    launch = tool.launch(test, first.desired)
    if isinstance(launch, str):
        return replace(error(test, launch), verdict=Verdict.UNJUDGED)
    other = next((one for one in sides if one.desired.profile.inventory.gpus != launch.ranks), None)
    if other is not None:
        return error(test, f"{other.desired.node} is declared with another number of GPUs than {first.desired.node}")
    launch = replace(launch, name="".join(secrets.choice(ascii_lowercase) for _ in range(12)))
    run = _GroupRun(launch, sides, clock, io_seconds(clock, test.timeout_s))
    output = await run.output()
    if isinstance(output, str):
        return error(test, output)
    result = tool.judge(test, first.desired, first.observed, [output])
    if run.gone and (output.exit_status or result.verdict is Verdict.ERROR) and not _by_signal(output):
        return error(test, run.gone)
    outputs.append(output)
    return result


@dataclass(slots=True)
class _GroupRun:
    """One run over all nodes. `gone`: which daemon ended by itself before its time and why, "" where none says so."""

    launch: Launch
    sides: Sequence[Side]
    clock: Clock
    timeout: float
    gone: str = ""

    async def output(self) -> CommandResult | str:
        """Return what the first node printed, or why the program could not run.

        Open MPI 5 ends with 0 where it lost a daemon. So its status proves nothing, and `gone` tells what is missing.
        """
        first = asyncio.create_task(run_alone(first_command(self.launch), self.sides[0].host, self.timeout))
        daemons: dict[str, _Task] = {}
        try:
            told = await self._told(first)
            if isinstance(told, str):
                return told
            serving = self.timeout + io_seconds(self.clock, SERVES_S)
            for at, values in told.items():
                one, argv = self.sides[at], daemon_command(self.launch, values)
                daemons[one.desired.node] = asyncio.create_task(run_alone(argv, one.host, serving))
            await asyncio.wait({first, *daemons.values()}, return_when=asyncio.FIRST_COMPLETED)
            await self._ended([first], _GOES_S)
            if not first.done():
                return _why_gone(daemons) or "a daemon ended before its mpirun"
            output = unlocked(first.result())
            if not isinstance(output, str):
                await self._ended(daemons.values(), 0.0 if output.timed_out else _TELLS_S)
                self.gone = _why_gone(daemons)
            return output
        finally:
            await _end([first, *daemons.values()])

    async def _told(self, first: _Task) -> Mapping[int, Mapping[str, str]] | str:
        """Return what each daemon needs, by its place among the nodes; nothing where the first has ended before."""
        until = self.clock.monotonic() + min(_STARTS_S, self.timeout)
        host = self.sides[0].host
        while not first.done():
            await self.clock.sleep(_POLL_S)
            printed = await host.run(told_command(self.launch), timeout=io_seconds(self.clock, _LOOK_S))
            told = read_told(printed.stdout, self.launch)
            if told is not None:
                return told
            if self.clock.monotonic() >= until:
                return f"mpirun has not asked for its daemons within {min(_STARTS_S, self.timeout):g} s"
        return {}

    async def _ended(self, parts: Iterable[_Task], seconds: float) -> None:
        """Wait until these parts have ended, or so long: once one part has, all end by themselves."""
        parts = tuple(parts)
        until = self.clock.monotonic() + seconds
        while not all(part.done() for part in parts) and self.clock.monotonic() < until:
            await self.clock.sleep(_POLL_S)


def _by_signal(output: CommandResult) -> bool:
    """Return whether mpirun, or a process of which it tells, was ended by a signal: daemons that complain then follow.

    Of a daemon that it lost, Open MPI 4 makes the status 205 and Open MPI 5 makes 0.
    """
    return 128 < output.exit_status < 160


def _why_gone(daemons: Mapping[str, _Task]) -> str:
    """Return which daemon could not run and why; "" where none has said so.

    That of Open MPI 5 ends with 1 and says nothing after whatever went wrong elsewhere, of which its mpirun tells.
    """
    for name, task in daemons.items():
        if not task.done() or task.cancelled():
            continue
        if isinstance(lost := task.exception(), DriverError):
            return f"{name} was lost: {lost}"
        output = unlocked(task.result())
        if isinstance(output, str):
            return f"{name}: {output}"
        if output.exit_status and (output.stderr or output.stdout).strip():
            return f"{name}: {why_not_started(output.stderr or output.stdout)} (exit status {output.exit_status})"
    return ""


async def _end(tasks: Sequence[_Task]) -> None:
    """End all parts; the end of each is told by no exception: one here is of whoever cancels us."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
