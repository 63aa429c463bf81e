"""ports.Host on a lab machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.lab.hardware import commands
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tools.call import Tool
from reconciler.lab.inprocess.facts import host_facts, own_lines
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult
from reconciler.model.host_certificate import read_host_certificate
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.ports import Clock
from reconciler.model.vocab import UnknownReason

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
CONNECT_TIMEOUT_S = 10.0
LATENCY_S = 0.4
_FACTS_S = 2.0
_WAIT_S = 1.0  # how often a command looks whether what it waits for on other machines has come
_STEP_S = 5.0  # how often a running command checks that its system still runs


class MachineHost:
    """`tools`: the installed tools by name. `latency`: whether connecting and reading facts take time."""

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        tools: Mapping[str, Tool] = commands.TOOLS,
        *,
        latency: bool = True,
        renewal_of: str = "",
    ) -> None:
        self.texts: Mapping[str, str] = {}  # what the fleet's own rows look for in the kernel log, by signal
        self._renewal_of = renewal_of
        self._latency = latency
        self._machine = machine
        self._clock = clock
        self._tools = tools

    @property
    def reached(self) -> bool:
        return self._machine.ssh_transport() != "down"

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        try:
            await self._connect()
            boot = self._boot()
            if self._latency:
                await asyncio.sleep(_FACTS_S)
                self._still(boot)
        except DriverError as error:
            if error.kind is Failure.AUTH:
                return Silent(self._clock.now(), UnknownReason.EXPIRED, error.detail)
            timed_out = error.kind is Failure.TIMEOUT
            reason = UnknownReason.TIMEOUT if timed_out else UnknownReason.UNREACHABLE
            return Silent(self._clock.now(), reason, error.detail)
        found = host_facts(self._machine, sysctls, services, self._clock.now())
        if self.texts:
            found = replace(found, raised=own_lines(self._machine, self.texts))
        return Answered(self._clock.now(), found)

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        await self._connect()
        boot = self._boot()
        ran = commands.run(self._machine, argv, stdin, self._tools)
        left = min(ran.seconds, timeout)
        while left > 0:
            await asyncio.sleep(min(left, _STEP_S))
            left -= _STEP_S
            if ran.seconds > _STEP_S:  # a quick command has answered before the system went down
                self._still(boot)
        took = ran.seconds
        while took <= timeout and ran.waits():
            await asyncio.sleep(_WAIT_S)
            took += _WAIT_S
            self._still(boot)
        return CommandResult(-1, "", "", timed_out=True) if took > timeout else ran.printed()

    def anew(self, *, renewal_of: str = "") -> MachineHost:
        other = MachineHost(self._machine, self._clock, self._tools, latency=self._latency, renewal_of=renewal_of)
        other.texts = self.texts
        return other

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _connect(self) -> None:
        if self._latency:
            await asyncio.sleep(LATENCY_S)
        match self._machine.ssh_transport():
            case "hang":
                await asyncio.sleep(CONNECT_TIMEOUT_S)
                raise DriverError(Failure.TIMEOUT, "the SSH server does not answer")
            case "refused":
                raise DriverError(Failure.UNREACHABLE, "connection refused")
            case "down":
                await asyncio.sleep(CONNECT_TIMEOUT_S)
                raise DriverError(Failure.UNREACHABLE, "no route to host")

        self._check_certificate()

    def _check_certificate(self) -> None:
        """Refuse a host key whose certificate is over, but for its renewal. A system without one is trusted."""
        files = self._machine.disk().files
        key, line = (" ".join(files.get(f"{HOST_KEY}{end}", "").split()[:2]) for end in (".pub", "-cert.pub"))
        if line and read_host_certificate(key, line).valid_before <= self._clock.now() and key != self._renewal_of:
            raise DriverError(Failure.AUTH, "the certificate of its host key has expired")

    def _boot(self) -> str:
        return self._machine.system().boot_id

    def _still(self, boot: str) -> None:
        if self._machine.ssh_transport() is not None or self._boot() != boot:
            raise DriverError(Failure.AMBIGUOUS, "the connection was lost while the command ran")
