"""Judge a program of the site, such as a reference training: it prints metrics, and ends with the declared status.

It prints one JSON object last, {"mfu": 0.42, "step_ms": {"value": 381, "unit": "ms"}}, or lines like `mfu 0.42` and
`step_ms 381 ms` among others. Only the names in args.metrics count, and each must be there with one value and one unit.
With args.repeat the program runs that often, and the text that it prints for the name args.same, such as a hash of the
weights after training with one seed, must be the same each time: a GPU that computes wrongly shows in it.

With args.partners, args.serve runs on another node, and starts again whenever it ends: each run of a collective over
two nodes, such as NCCL's by torchrun, needs another one there. $PARTNER is that node's address in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import (
    ResultBuilder,
    Tool,
    find_document,
    note_if_killed,
    number,
    shown,
    storable,
)
from reconciler.gate.tools.shell import AGAIN
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import SERVER, listed
from reconciler.model.observed import Observed

LARGEST = 2**20  # characters of output that are read
_LINE = re.compile(r"^[ \t]*([A-Za-z_][\w.]{0,79})(?:[ \t]*[=:][ \t]*|[ \t]+)(\S{1,200})(?:[ \t]+(\S{1,20}))?[ \t]*$")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    run = (*_environment(test), "sh", "-c", str(test.args.get("run", "")), "sh")
    return (run,) * int(test.args.get("repeat", 1))


def _serve(test: GateTest) -> tuple[str, ...]:
    """Return the command that runs the partner's part again and again, until it is ended or can't run."""
    return (*_environment(test), "sh", "-c", AGAIN, "sh", "sh", "-c", str(test.args["serve"]), "sh")


def _environment(test: GateTest) -> tuple[str, ...]:
    partner = (f"PARTNER={test.args[SERVER]}",) if SERVER in test.args else ()
    return ("env", "LC_ALL=C", *partner)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    runs = int(test.args.get("repeat", 1))
    if len(outputs) != runs or not outputs:
        builder.unjudged(f"{len(outputs)} of {runs} runs were made")
        return builder.result(test, outputs)
    printed = [_read(builder, test, output) for output in outputs]
    read = [found for found in printed if found is not None]
    if len(read) == runs:
        for name in listed(test.args.get("metrics", "")):
            _judge_metric(builder, name, read)
        if same := test.args.get("same"):
            _judge_same(builder, str(same), read)
        builder.version = next((shown(cell[0]) for name, cell in read[0] if name == "version"), "")
        if test.versions:
            builder.check_version(test, ())
    return builder.result(test, outputs)


_Cells = list[tuple[str, tuple[Any, str]]]


def _judge_metric(builder: ResultBuilder, name: str, read: Sequence[_Cells]) -> None:
    cells = [cell for found in read if (cell := _only(builder, name, found)) is not None]
    values = [value for cell in cells if (value := number(cell[0])) is not None]
    units = sorted({unit for _, unit in cells})
    if len(units) > 1:
        builder.unjudged(f"{name} has more than one unit, {', '.join(units[1:])} among them")
        return
    if units and units[0]:
        builder.units[name] = storable(units[0][:20])
    if len(values) < len(cells):
        builder.unjudged(f"{name} is no finite number")
    elif len(values) == len(read) > 1:
        builder.parts(name, {str(at): value for at, value in enumerate(values)})
    elif values:
        builder.metrics[name] = values[0]


def _judge_same(builder: ResultBuilder, name: str, read: Sequence[_Cells]) -> None:
    texts = [shown(cell[0]) for found in read if (cell := _only(builder, name, found)) is not None]
    if len(set(texts)) > 1:
        builder.fail(f"{name} differs between runs: {', '.join(texts)}")


def _read(builder: ResultBuilder, test: GateTest, output: CommandResult) -> _Cells | None:
    """Return what one run printed as (name, (value, unit)); None, with a note, where it can't be read."""
    if note_if_killed(builder, output):
        return None
    if output.exit_status != int(test.args.get("exit", 0)):
        builder.error(f"exit status {output.exit_status}, {test.args.get('exit', 0)} is declared")
    elif len(output.stdout) > LARGEST:
        builder.error(f"it printed more than {LARGEST} characters")
    elif not output.stdout.endswith("\n"):
        builder.error("the output breaks off: its last line has no end")
    else:
        document = find_document(output.stdout)
        return list(_members(document) if document is not None else _lines(output.stdout))
    return None


def _members(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, str]]]:
    for name, cell in document.items():
        if isinstance(cell, Mapping):
            unit = cell.get("unit", "")
            yield name, (cell.get("value"), unit if isinstance(unit, str) else "?")
        else:
            yield name, (cell, "")


def _lines(text: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    for line in text.splitlines():
        if found := _LINE.match(line):
            yield found[1], (found[2], found[3] or "")


def _only(builder: ResultBuilder, name: str, found: _Cells) -> tuple[Any, str] | None:
    """Return the value of a name. Note one that is missing, or there with two values."""
    cells = [cell for known, cell in found if known == name]
    if not cells:
        builder.unjudged(f"it does not print {name}")
    elif any((shown(cell[0]), cell[1]) != (shown(cells[0][0]), cells[0][1]) for cell in cells):
        builder.unjudged(f"it prints {name} more than once, with different values")
    else:
        return cells[0]
    return None


TOOL = Tool(_commands, _judge, _serve)
