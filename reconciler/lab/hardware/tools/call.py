"""The input and the result of a tool."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import GpuState
from reconciler.model.gate import CommandResult

EPOCH = 1_750_000_000  # seconds, of the moment at which a lab begins, on the clocks of its machines


@dataclass(frozen=True, slots=True)
class Call:
    """`name` is argv[0], `args` the rest; `environment` holds the variables that `env` set."""

    machine: Machine
    name: str
    args: tuple[str, ...]
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def jitter(self, what: str, share: float = 0.004) -> float:
        """Return a factor near 1 that is constant for this machine, because no two boards are equal."""
        return 1 + share * (random.Random(f"{self.machine.state.serial} {what}").random() * 2 - 1)  # noqa: S311  noise

    @property
    def visible_gpus(self) -> list[GpuState]:
        return [gpu for gpu in self.machine.state.gpus if not gpu.lost]


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a tool, which it prints after `seconds` of the machine's time.

    `at_end` returns the result of one that depends on what other machines do until then, and `waits` says whether it
    still waits for them.
    """

    result: CommandResult
    seconds: float = 0.05
    at_end: Callable[[], CommandResult] | None = None
    waits: Callable[[], bool] = lambda: False

    def printed(self) -> CommandResult:
        return self.result if self.at_end is None else self.at_end()


Tool = Callable[[Call], Ran]


def done(stdout: str = "", *, seconds: float = 0.05) -> Ran:
    return Ran(CommandResult(0, stdout), seconds)


def failed(status: int, stderr: str = "", *, stdout: str = "", seconds: float = 0.05) -> Ran:
    return Ran(CommandResult(status, stdout, stderr), seconds)


def parse_options(args: Sequence[str], valued: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return (key -> value, other words in order). `valued`: option with a value -> its key in the first."""
    options: dict[str, str] = {}
    others: list[str] = []
    rest = iter(args)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in valued:
            options[valued[name]] = value if equals else next(rest, "")
        else:
            others.append(word)
    return options, others


def cuda_error(machine: Machine) -> str | None:
    """Return why no CUDA program can start, or None. Systems with NVSwitches need their Fabric Manager."""
    system = machine.system()
    if len(machine.state.gpus) > 4 and not system.services_active.get("nvidia-fabricmanager", True):
        return "system not yet initialized"
    if all(gpu.lost for gpu in machine.state.gpus):
        return "no CUDA-capable device is detected"
    return None
