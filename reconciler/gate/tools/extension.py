"""Judge a tool of an extension: its package gives the command line, and reads what the tool printed.

What decides stays here. A tool that was killed, is missing or ended with another status is an error, whatever it
printed; each metric in args.metrics must be there as one finite number; and the limits are those of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from reconciler.gate.tools.command import LARGEST
from reconciler.gate.tools.common import ResultBuilder, Tool, note_if_killed, number, shown, storable
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import listed
from reconciler.model.observed import Observed

USE, METRICS, OPTIONS = "use", "metrics", "options"  # of args


class UnreadableOutputError(Exception):
    """Raised by the reader of an extension for an output that proves nothing. Its text says why."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a tool. `options`: those of the spec's test. `inventory`: how many of each part the hardware has.

    The inventory has the fields of the HardwareProfile that are numbers and declared, such as `gpus` and `drives`.
    """

    node: str
    options: Mapping[str, str]
    inventory: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """The values that a tool measured, by metric. `version`: of the tool. `failed`: sentences on parts that are bad."""

    metrics: Mapping[str, float]
    units: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A tool of an extension. `command`: a line for the node's shell. `statuses`: with which it ends when it ran."""

    command: Callable[[Trial], str]
    read: Callable[[Trial, CommandResult], Measured]
    statuses: tuple[int, ...] = (0,)


def tool_of(programs: Mapping[str, Program]) -> Tool:
    """Return the tool that runs these programs, by the names that args.use has for them."""

    def commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
        found = programs.get(str(test.args.get(USE, "")))
        if found is None:
            return f"no extension that the Fleet names offers the gate tool {shown(test.args.get(USE, ''))!r}"
        try:
            line = found.command(_trial(test, desired))
        except Exception as error:  # noqa: BLE001 - code of others may raise anything
            return _bug(error)
        if not isinstance(line, str) or not line.strip():
            return f"the extension gave no command line, but {shown(line)!r}"
        return (("env", "LC_ALL=C", "sh", "-c", line, "sh"),)

    def judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
        builder = ResultBuilder()
        found = programs.get(str(test.args.get(USE, "")))
        if found is None or len(outputs) != 1:
            builder.unjudged("it was not run")
        elif not note_if_killed(builder, outputs[0]):
            _read(builder, found, test, desired, outputs[0])
        return builder.result(test, outputs)

    return Tool(commands, judge)


def _read(builder: ResultBuilder, program: Program, test: GateTest, desired: Desired, output: CommandResult) -> None:
    if output.exit_status not in program.statuses:
        builder.error(f"exit status {output.exit_status}, and not {' or '.join(map(str, program.statuses))}")
        return
    if len(output.stdout) > LARGEST:
        builder.error(f"it printed more than {LARGEST} characters")
        return
    try:
        found = program.read(_trial(test, desired), output)
    except UnreadableOutputError as why:
        builder.unjudged(str(why) or "the extension can't read the output")
        return
    except Exception as error:  # noqa: BLE001 - code of others may raise anything
        builder.error(_bug(error))
        return
    if not isinstance(found, Measured):
        builder.error(f"the extension returned a {type(found).__name__}, not Measured")
        return
    try:
        _keep(builder, found, test)
    except Exception as error:  # noqa: BLE001 - what it returned may be of any type inside
        builder.error(_bug(error))


def _keep(builder: ResultBuilder, found: Measured, test: GateTest) -> None:
    for name in listed(test.args.get(METRICS, "")):
        value = number(found.metrics.get(name))
        if name not in found.metrics:
            builder.unjudged(f"it does not measure {name}")
        elif value is None:
            builder.unjudged(f"{name} is no finite number")
        else:
            builder.metrics[name] = value
            if unit := found.units.get(name):
                builder.units[name] = storable(str(unit)[:20])
    for sentence in found.failed:
        builder.fail(str(sentence))
    builder.version = shown(found.version) if found.version else ""
    if test.versions:
        builder.check_version(test, ())


def _trial(test: GateTest, desired: Desired) -> Trial:
    declared = desired.profile.inventory
    counts = {one.name: getattr(declared, one.name) for one in fields(declared)}
    pairs = (pair.partition("=") for pair in listed(test.args.get(OPTIONS, "")))
    options = {name.strip(): value.strip() for name, _, value in pairs}
    return Trial(desired.node, options, {name: count for name, count in counts.items() if isinstance(count, int)})


def _bug(error: Exception) -> str:
    return storable(f"the extension failed: {type(error).__name__}: {error}"[:300])


TOOL: Final = tool_of({})  # without extensions: it says so, and nothing passes
