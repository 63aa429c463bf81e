"""Run Slurm's commands where they are installed, and tell what a failure of theirs means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult

_PLAIN: Final = ("env", "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=standard")
_LONGEST: Final = 300
# What the commands print, by slurm_strerror of src/common/slurm_errno.c. The first match counts.
_MESSAGES: Final = (
    (Failure.UNREACHABLE, re.compile(r"Unable to contact slurm controller|Connection refused|No route|fetch_config")),
    (Failure.AMBIGUOUS, re.compile(r"Socket timed out|Zero Bytes|Unexpected message|backup|standby", re.IGNORECASE)),
    (Failure.AUTH, re.compile(r"Invalid user id|[Aa]ccess(?:/permission)? denied|authentication|Munge|credential")),
    (Failure.CONFLICT, re.compile(r"Invalid node name|not found|Invalid job id|already (?:finished|completing)")),
    (
        Failure.CONFLICT,
        re.compile(r"Duplicate reservation|Requested reservation is invalid|Reservation already started"),
    ),
    (Failure.UNSUPPORTED, re.compile(r"unrecognized option|[Cc]ommand not found|No such file|keyword")),
)


class Login(Protocol):
    """A machine where Slurm's commands run: see `Host.run` of model/ports.py."""

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult: ...

    async def close(self) -> None: ...


class Commands:
    """`programs`: their folder, "" = PATH has it. `timeout_s`: for each, by the wall clock."""

    def __init__(self, login: Login, programs: str, timeout_s: float) -> None:
        self._login = login
        self._folder = programs.rstrip("/") + "/" if programs else ""
        self._timeout_s = timeout_s

    async def read(self, program: str, *arguments: str) -> str:
        """Return what a command prints. Raise DriverError, never AMBIGUOUS."""
        try:
            return await self.write(program, *arguments)
        except DriverError as error:
            kind = Failure.TIMEOUT if error.kind is Failure.AMBIGUOUS else error.kind
            raise DriverError(kind, error.detail) from error

    async def write(self, program: str, *arguments: str) -> str:
        """Run a command that changes something. CONFLICT: the node or job that it names is gone."""
        result = await self._login.run((*_PLAIN, f"{self._folder}{program}", *arguments), timeout=self._timeout_s)
        if result.timed_out:
            raise DriverError(Failure.AMBIGUOUS, f"{program} did not end within {self._timeout_s:g} s")
        if result.exit_status == 0:
            return result.stdout
        text = " ".join((result.stderr + "\n" + result.stdout).split())[:_LONGEST]
        if result.exit_status == 127:
            raise DriverError(Failure.UNSUPPORTED, f"{program} is not installed there (`slurm.programs`): {text}")
        kind = next((kind for kind, words in _MESSAGES if words.search(text)), Failure.REJECTED)
        raise DriverError(kind, f"{program}: {text or f'exit status {result.exit_status}'}")

    async def close(self) -> None:
        await self._login.close()
