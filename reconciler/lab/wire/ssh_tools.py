"""Tools that only query. They print the same texts as the facts program; hardware.tools holds the others."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta

from reconciler.lab.hardware.commands import TOOLS
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, failed
from reconciler.lab.hardware.tools.nvidia_smi import nvidia_smi
from reconciler.lab.wire import facts
from reconciler.lab.wire.facts.context import FactContext

# Beginning of a command line -> the fact that it shows.
_SHOWN: Mapping[tuple[str, ...], str] = {
    ("nvidia-smi", "-q", "-x"): "nvidia_smi",
    ("nvidia-smi", "-x", "-q"): "nvidia_smi",
    ("nvidia-smi", "-L"): "gpu_list",
    ("nvidia-smi", "nvlink", "-s"): "nvlink",
    ("nvidia-smi", "nvlink", "-e"): "nvlink_errors",
    ("systemctl", "show"): "services",
    ("journalctl", "-k"): "kernel_log",
    ("uname", "-r"): "kernel",
    ("mokutil", "--sb-state"): "secure_boot",
    ("ip", "-j", "link"): "links",
    ("ip", "-d", "-j", "link"): "links",
}


def fact_context(machine: Machine, epoch: datetime, command: str) -> FactContext:
    now = machine.now
    asked = () if machine.k3s is None else machine.k3s.deprecated(machine.name)
    return FactContext(machine.state, now, epoch + timedelta(seconds=now), command, asked)


def host_tools(epoch: datetime) -> Mapping[str, Tool]:
    """Return all tools that a command line on a lab machine may start."""

    def shown(call: Call) -> Ran | None:
        words = (call.name, *call.args)
        for beginning, fact in _SHOWN.items():
            if words[: len(beginning)] == beginning:
                return Ran(facts.answer(fact, fact_context(call.machine, epoch, shlex.join(words))))
        return None

    def show_or(otherwise: Tool) -> Tool:
        return lambda call: shown(call) or otherwise(call)

    others = {name: show_or(TOOLS.get(name, _usage)) for name in {words[0] for words in _SHOWN}}
    return {**TOOLS, **others, "nvidia-smi": nvidia_smi(show_or(_usage))}


def _usage(call: Call) -> Ran:
    return failed(2, f"{call.name}: invalid option -- '{' '.join(call.args)}'\n")
