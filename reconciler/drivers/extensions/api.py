"""The values that a package of extensions gives, each under an entry point of its kind's group.

    [project.entry-points."reconciler.facts"]
    raid = "acme_fleet:RAID"

Each says for which version of this API it was written. A change that breaks one raises `API`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.drivers.ssh.facts.fact import Unreadable
from reconciler.gate.tools.extension import Measured, Program, Trial, UnreadableOutputError
from reconciler.model.access import InstallerPolicy
from reconciler.model.forge import Forge
from reconciler.model.gate import CommandResult
from reconciler.model.notices import Message
from reconciler.model.ports import Clock, Installer

__all__ = [
    "API",
    "Extension",
    "ForgeConnector",
    "GateTool",
    "HealthSignals",
    "HostFact",
    "InstallerServer",
    "Measured",
    "Notifier",
    "Trial",
    "Unreadable",
    "UnreadableOutputError",
]

API: Final = 1


@dataclass(frozen=True, slots=True)
class Extension:
    """The part that all kinds have. `api`: the version of this API that it was written for."""

    GROUP: ClassVar[str] = ""

    api: int


@dataclass(frozen=True, slots=True)
class HostFact(Extension):
    """A fact of hosts.

    `command`: POSIX shell, which only reads. `parse` returns the value as one line of text; it raises Unreadable for an
    answer without one, and the fact is unknown then.
    """

    GROUP: ClassVar[str] = "reconciler.facts"

    command: str
    parse: Callable[[CommandResult], str]
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class HealthSignals(Extension):
    """Signals that are judged from the facts of the same package.

    `names`: all that it may raise; the Fleet's `health` has a row for each, with `fact: host.raised`. `reads`: names of
    the facts that it needs. `judge` gets their values by name, and yields the name and the evidence of each signal.
    """

    GROUP: ClassVar[str] = "reconciler.signals"

    names: tuple[str, ...]
    reads: tuple[str, ...]
    judge: Callable[[Mapping[str, str]], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class GateTool(Extension):
    """A tool of the gate, which tests with `tool: extension` name in args.use.

    `command`: a line for the node's shell. `read` returns what the tool measured; it raises UnreadableOutputError for
    an output that proves nothing. `statuses`: with which the tool ends when it ran to its end; any other is an error.
    """

    GROUP: ClassVar[str] = "reconciler.gate_tools"

    command: Callable[[Trial], str]
    read: Callable[[Trial, CommandResult], Measured]
    statuses: tuple[int, ...] = (0,)

    @property
    def program(self) -> Program:
        return Program(self.command, self.read, self.statuses)


@dataclass(frozen=True, slots=True)
class Notifier(Extension):
    """A service that takes messages. `send` gets the secret that the channel's `url` names; it raises to refuse."""

    GROUP: ClassVar[str] = "reconciler.notifiers"

    send: Callable[[Secret, Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class InstallerServer(Extension):
    """A server of install documents, in place of the packaged one. `connect` does no I/O."""

    GROUP: ClassVar[str] = "reconciler.installers"

    connect: Callable[[InstallerPolicy, SecretStore], Installer]


@dataclass(frozen=True, slots=True)
class ForgeConnector(Extension):
    """A forge. `connect` gets the repository, a token, a clock, and the URL of its API, "" for the usual one."""

    GROUP: ClassVar[str] = "reconciler.forges"

    connect: Callable[[str, str, Clock, str], Forge]
