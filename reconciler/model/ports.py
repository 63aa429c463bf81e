"""The Protocols that the async shell talks through. drivers/ implements them on the wire, lab/ in process.

Contract of every port: a *read* that can fail in the field returns `Answered | Silent` and never raises
DriverError; a *write* raises DriverError, kind AMBIGUOUS where it may have happened all the same. Returning from a
write proves nothing: the caller reads back. Every call ends within the deadline that its caller set with
`asyncio.timeout`, and is safe to cancel.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from reconciler.model.desired import Desired, Fleet
from reconciler.model.forge import Check, Pull, Remark
from reconciler.model.gate import CommandResult
from reconciler.model.ledger_ports import Ledger as Ledger
from reconciler.model.ledger_ports import Recollection as Recollection
from reconciler.model.observed import (
    Answered,
    AttributeValue,
    BmcTask,
    ClusterState,
    HostFacts,
    Member,
    Pod,
    RedfishHot,
    RedfishInventory,
    Silent,
    Taint,
)
from reconciler.model.records import Mark
from reconciler.model.spec_feed import Pulled
from reconciler.model.status import FleetStatus, LoopStatus


class Clock(Protocol):
    """Real, scaled or virtual time. Nothing below cli/ reads another clock."""

    def now(self) -> datetime:
        """Aware, UTC. For what is written down, and for what the spec says in times of day.

        Anybody may set the machine's clock, so the difference of two of these is no elapsed time.
        """

    def monotonic(self) -> float:
        """Seconds of the fleet's time since some start. It never goes back: by it deadlines and ages are judged."""

    async def sleep(self, seconds: float) -> None:
        """`seconds` of the fleet's time: a scaled clock sleeps less."""

    def real_seconds(self, seconds: float) -> float:
        """`seconds` of the fleet's time as wall-clock seconds, for deadlines of I/O."""


class PowerAction(StrEnum):
    ON = "on"
    GRACEFUL_OFF = "graceful_off"
    FORCE_OFF = "force_off"
    GRACEFUL_RESTART = "graceful_restart"


class Bmc(Protocol):
    """One node's BMC. At most one write at a time (pitfall A12); the driver sees to it."""

    async def hot(self) -> Answered[RedfishHot] | Silent: ...

    async def inventory(self) -> Answered[RedfishInventory] | Silent: ...

    async def power(self, action: PowerAction) -> None: ...

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Ask for these attributes at the next boot. DriverError REJECTED names those that the BMC refuses (G1)."""

    async def clear_bios(self) -> None:
        """Drop pending attributes, where the BMC can; UNSUPPORTED otherwise."""

    async def set_secure_boot(self, enabled: bool) -> None:
        """Takes effect at the next boot."""

    async def set_boot_order(self, order: Sequence[str]) -> None: ...

    async def boot_once(self, device: str) -> None:
        """`device`: "cd" | "disk" | "pxe"; the driver picks the word from AllowableValues (pitfall D5)."""

    async def media(self) -> str | None:
        """URL of the inserted virtual medium, None when empty."""

    async def insert_media(self, url: str) -> None: ...

    async def eject_media(self) -> None: ...

    async def update_firmware(self, inventory_id: str, url: str) -> str:
        """Start an update; the task's URI."""

    async def task(self, uri: str) -> BmcTask | None:
        """None: the BMC does not know it any more (pitfall A5): judge by the version."""

    async def tasks(self) -> Sequence[str]:
        """URIs of all the tasks that the BMC remembers, ended ones too."""

    async def reset(self) -> None:
        """Restart the BMC itself."""

    async def close(self) -> None:
        """Delete the session (pitfall B1)."""


class Host(Protocol):
    """One node's operating system, over SSH."""

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        """One connection, one program; each fact under its own timeout. The names say which to read."""

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run one command. `timeout` in wall-clock seconds; a command that outlives it is killed (`timed_out`).

        DriverError only where the command could not be started, or (AMBIGUOUS) the connection was lost meanwhile.
        """

    async def close(self) -> None: ...


class Cluster(Protocol):
    async def state(self) -> Answered[ClusterState] | Silent:
        """One bulk read of nodes and pods."""

    async def member(self, node: str) -> Member | None:
        """A fresh read of one node with its pods. None: known to be absent."""

    async def mark(self, member: Member, mark: Mark) -> None:
        """Cordon, taint and owner annotation in one patch under the member's resourceVersion; CONFLICT if it moved."""

    async def unmark(self, member: Member, *, uncordon: bool) -> None: ...

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        """Set these labels and taints; others stay."""

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        """By UID (pitfall H6). BUSY: a PodDisruptionBudget says not now. A pod that is gone is success (H7)."""

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None: ...


class Watch(Protocol):
    """What says where to look before the next pass. Nothing is decided by it (DESIGN section 8)."""

    def changes(self, tell: Callable[[str], None] = ...) -> AsyncGenerator[str]:
        """Names of nodes that changed in their cluster. It never ends by itself: leave it with `aclosing`.

        `tell`: why there is nothing to be heard, once per problem, and "" when there is again.
        """


class SpecFeed(Protocol):
    """Where a spec that changes comes from."""

    @property
    def fleet(self) -> Fleet | None:
        """The spec in force; None until there is a good one."""

    async def pull(self) -> Pulled:
        """Look for a newer one. Never raises for what others did; whatever happens, the last good one stays."""


class Metrics(Protocol):
    """Where a long-running reconciler leaves what others measure it by. Never fails, never waits."""

    def loop_status(self, status: LoopStatus) -> None:
        """Set the status of the loop."""

    def passed(self, fleet: FleetStatus) -> None:
        """What a pass found; what the one before found is over."""

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        """An action ended. `action`: its catalogue name, without a target; `seconds`: of the fleet's time."""


class Installer(Protocol):
    """Serves one install document per attempt, under a URL of its own (DESIGN 7.5)."""

    async def publish(self, token: str, document: Mapping[str, Any]) -> str:
        """URL of this attempt's boot medium, .../<token>/boot.iso; its document is at .../<token>/install.json."""

    async def withdraw(self, token: str) -> None: ...


class Forge(Protocol):
    """Where pull requests of the spec are, for one repository: GitHub and its like.

    Reads are over all pages, and of what our own account wrote alone: nobody else can make us edit their words, or
    take theirs for ours. A write that fails is AMBIGUOUS where it may have happened: look again, and only then repeat.
    """

    async def pull(self, number: int) -> Pull: ...

    async def open_pulls(self) -> Sequence[Pull]: ...

    async def pulls_of(self, commit: str) -> Sequence[Pull]:
        """Those that brought it to the branch it is on."""

    async def files(self, pull: int) -> Sequence[str]:
        """Paths that it changes; of what is renamed, both."""

    async def remarks(self, pull: int) -> Sequence[Remark]: ...

    async def add_remark(self, pull: int, text: str) -> Remark: ...

    async def edit_remark(self, remark: int, text: str) -> None: ...

    async def hide_remark(self, remark: Remark) -> None:
        """Fold it away as outdated: it can still be read."""

    async def open_issues(self) -> Sequence[Remark]: ...

    async def add_issue(self, title: str, text: str) -> Remark: ...

    async def edit_issue(self, issue: int, title: str, text: str, *, close: bool) -> None: ...

    async def set_check(self, commit: str, name: str, verdict: Check, title: str, text: str, url: str) -> None:
        """The verdict on a commit, with its report where the forge has a place for one. The latest of a name counts."""

    async def close(self) -> None: ...


class Fabric(Protocol):
    """Hands out the ports of nodes; one object per node for as long as it is reached in the same way."""

    def bmc(self, desired: Desired) -> Bmc | None: ...

    def host(self, desired: Desired) -> Host | None: ...

    def cluster(self) -> Cluster | None: ...

    def watch(self) -> Watch | None:
        """None: nobody says where to look before the next pass."""

    async def refit(self, fleet: Fleet) -> None:
        """Reach nodes as this fleet says from now on. Ports to what it reaches in another way are closed."""

    def installer(self) -> Installer | None: ...

    def public_key(self, name: str) -> str | None:
        """A minisign public key by name, from outside the spec. None: unknown name."""

    async def close(self) -> None: ...
