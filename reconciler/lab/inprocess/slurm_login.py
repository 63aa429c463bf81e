"""The login host of the lab's Slurm, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from reconciler.lab.hardware.slurm import SlurmTruth
from reconciler.lab.hardware.slurm_commands import ENVIRONMENT, SlurmCommands
from reconciler.model.gate import CommandResult
from reconciler.model.ports import Clock


class SlurmLogin:
    """Runs Slurm's commands. `ran`: what was run there, without its environment."""

    def __init__(self, truth: SlurmTruth, clock: Clock, *, user: str = "root") -> None:
        self._commands = SlurmCommands(truth, lambda at: clock.now() + timedelta(seconds=at - truth.now()))
        self._user = user
        self.ran: list[tuple[str, ...]] = []

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:  # noqa: ARG002 - the port's signature
        self.ran.append(tuple(word for word in argv if word != "env" and not word.startswith(ENVIRONMENT)))
        return self._commands.run(argv, self._user)

    async def close(self) -> None:
        """Do nothing: no connection is open."""
