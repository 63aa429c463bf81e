"""The commands that the loads of a soak need on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.gate.soak.on_node import Step
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import Desired, GateTest
from reconciler.model.observed import Observed


def steps_of(loads: Sequence[GateTest], desired: Desired, observed: Observed) -> Mapping[str, tuple[Step, ...]] | str:
    """Return the commands of each load, by its name; a sentence where one can't run on this node."""
    found: dict[str, tuple[Step, ...]] = {}
    for load in loads:
        commands = TOOLS[load.tool].commands(load, desired, observed)
        if isinstance(commands, str):
            return f"{load.name}: {commands}"
        if not commands:
            return f"{load.name}: {load.tool} loads nothing"
        found[load.name] = tuple(Step(argv, load.timeout_s) for argv in commands)
    return found
