"""The scripts of a soak (gate/soak/on_node.py) on a lab machine, where systemd runs its unit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from reconciler.gate.soak import on_node
from reconciler.lab.hardware.state import SoakUnit
from reconciler.lab.hardware.tools.call import Call, Ran, done, failed

_START, _LOOK, _STOP = (
    argv[2]
    for argv in (
        on_node.start("x", 1, [on_node.Step(("true",), 1)])[0],
        on_node.look("x", 1),
        on_node.stop("x"),
    )
)
_KEEP = on_node.keep("x", 1, "")[0][2]
_KEPT = on_node.kept("x")[2]
_OUTPUT = on_node.output("x", 1)[2]
SCRIPTS_THAT_READ: Final = ([_START], [_KEEP])  # stdin
_CASE: Final = re.compile(r"^\d+\) (.*?) ;;$", re.MULTILINE | re.DOTALL)
Run = Callable[[Sequence[str]], Ran]


def soak_script(call: Call, run: Run) -> Ran | None:
    """Run one of the scripts, as `sh -c SCRIPT ...`; None for any other. `run` runs a command on this machine."""
    match call.args:
        case ("-c", script, "sh", folder, _, _, _, seconds, *_) if script == _START:
            return _start(call, folder, float(seconds))
        case ("-c", script, "sh", folder, _, first, _) if script == _LOOK:
            return _look(call, folder, int(first), run)
        case ("-c", script, "sh", _, _) if script == _STOP:
            call.machine.state.soak = None
            return done()
        case ("-c", script, "sh", folder, number) if script == _KEEP:
            return _keep(call, folder, int(number))
        case ("-c", script, "sh", folder) if script == _KEPT:
            unit = _unit(call, folder)
            return done(unit.judged) if unit is not None else failed(1)
        case ("-c", script, "sh", path) if script == _OUTPUT:
            return _output(call, path)
        case _:
            return None


def _start(call: Call, folder: str, seconds: float) -> Ran:
    machine = call.machine
    soak = folder.rsplit("/", 1)[-1]
    if _unit(call, folder) is not None:
        return failed(on_node.BEGUN)
    steps = [shlex.split(case) for case in _CASE.findall(call.stdin)]
    machine.state.soak = SoakUnit(soak, machine.system().boot_id, machine.now, seconds, steps, next_at=machine.now)
    return done(seconds=0.3)


def _unit(call: Call, folder: str) -> SoakUnit | None:
    unit = call.machine.state.soak
    return unit if unit is not None and unit.id == folder.rsplit("/", 1)[-1] else None


def kill(call: Call, units: Sequence[str]) -> Ran:
    """Kill the soak's unit, as `systemctl kill --signal=KILL` does, and none but that."""
    unit = call.machine.state.soak
    if unit is None or list(units) != [on_node.unit_of(unit.id).removesuffix(".service")]:
        return failed(1, f"Failed to kill unit {' '.join(units)}.service: Unit {' '.join(units)}.service not loaded.\n")
    unit.killed = True
    return done()


def _keep(call: Call, folder: str, number: int) -> Ran:
    unit = _unit(call, folder)
    if unit is None:
        return failed(73)
    unit.judged = call.stdin
    for at in range(min(number, len(unit.outputs))):
        unit.outputs[at] = []
    return done()


def _look(call: Call, folder: str, first: int, run: Run) -> Ran:
    machine, here = call.machine, _unit(call, folder)
    lines = [f"now {machine.system().boot_id}"]
    if here is not None and here.boot_id == machine.system().boot_id and here.killed:
        lines += ["Result=signal", "ExecMainStatus=9", "LoadState=loaded", "ActiveState=failed", "SubState=failed"]
    elif here is not None and here.boot_id == machine.system().boot_id:
        _advance(here, machine.now, run)
        state = "exited" if here.lasted is not None else "running"
        lines += ["Result=success", "ExecMainStatus=0", "LoadState=loaded", "ActiveState=active", f"SubState={state}"]
    else:
        lines += ["Result=success", "ExecMainStatus=0", "LoadState=not-found", "ActiveState=inactive", "SubState=dead"]
    if here is not None:
        lines += [f"began {here.boot_id}", f"elapsed {machine.now - here.began:.0f}"]
        lines += [*(f"run {line}" for line in here.lines[first - 1 :])]
        lines += [f"done {here.lasted:.0f}"] if here.lasted is not None else []
    return done("\n".join([*lines, "end", ""]))


def _advance(unit: SoakUnit, now: float, run: Run) -> None:
    """Run the steps that have ended by now."""
    while unit.lasted is None:
        ran = run(unit.steps[unit.step])
        ends = unit.next_at + max(1.0, ran.seconds)
        if ends > now:
            return
        began, ended = unit.next_at - unit.began, ends - unit.began
        unit.step += 1
        unit.outputs.append([ran.result.stdout, ran.result.stderr])
        number = len(unit.outputs)
        unit.lines.append(f"{number} {unit.round} {unit.step} {began:.0f} {ended:.0f} {ran.result.exit_status}")
        unit.next_at = ends
        if unit.step == len(unit.steps):
            unit.step, unit.round = 0, unit.round + 1
        if ended >= unit.seconds:
            unit.lasted = ended


def _output(call: Call, path: str) -> Ran:
    unit, number = call.machine.state.soak, path.rsplit("/", 1)[-1]
    listed = unit is not None and f"/{unit.id}/" in path and 0 < int(number) <= len(unit.outputs)
    if unit is None or not listed or not unit.outputs[int(number) - 1]:
        return failed(1, f"cat: {path}: No such file or directory\n")
    stdout, stderr = unit.outputs[int(number) - 1]
    return failed(0, stderr, stdout=stdout)
