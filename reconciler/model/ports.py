"""The Protocols that the async shell talks through. drivers/ implements them on the wire, lab/ in process.

The contract of every port:

- A read that can fail in the field returns `Answered` or `Silent` and never raises DriverError. A read with any other
  return type raises DriverError.
- A write raises DriverError when it failed, with the kind AMBIGUOUS when it may have happened all the same. Returning
  proves nothing: the caller reads back, and looks again before it repeats an ambiguous write.
- Every call ends within the deadline that its caller sets with `asyncio.timeout`, and is safe to cancel. A write that
  is cancelled may have happened.
- Durations are seconds of the fleet's time, which a lab scales, unless a docstring says wall-clock. Instants: UTC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from reconciler.model.adjustment_port import Adjustable
from reconciler.model.desired import Desired, Fleet
from reconciler.model.gate import CommandResult
from reconciler.model.install import AnyDocument, AttemptCredential, InstallDocument
from reconciler.model.install_progress import InstallProgress
from reconciler.model.ledger_ports import Ledger as Ledger
from reconciler.model.ledger_ports import Recollection as Recollection
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.metrics_port import Metrics as Metrics
from reconciler.model.observed import (
    Answered,
    AttributeValue,
    BmcEvent,
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
from reconciler.model.observer_port import Observer
from reconciler.model.password_port import PasswordPort
from reconciler.model.pdu_port import Pdu as Pdu
from reconciler.model.records import Mark
from reconciler.model.release_ports import ReleaseStore as ReleaseStore
from reconciler.model.reservations import ReservationStore as ReservationStore
from reconciler.model.vocab import NewsSource, SignalTo


class Clock(Protocol):
    """Real, scaled or virtual time. Nothing below cli/ reads another clock."""

    def now(self) -> datetime:
        """Return the time of day, in UTC. Anybody may set the clock: two such instants tell no elapsed time."""

    def monotonic(self) -> float:
        """Return seconds of the fleet's time since some start. They never go back: measure deadlines by them."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for seconds of the fleet's time. A scaled clock sleeps less."""

    def real_seconds(self, seconds: float) -> float:
        """Convert seconds of the fleet's time to wall-clock seconds, for the deadlines of I/O."""


class PowerAction(StrEnum):
    ON = "on"
    GRACEFUL_OFF = "graceful_off"  # asks the operating system
    FORCE_OFF = "force_off"  # cuts the power


@dataclass(frozen=True, slots=True)
class FirmwareFile:
    """A file to flash. `path`: our copy of it, whose digest was verified, of `size` bytes; None: the BMC fetches it."""

    url: str
    path: str | None = None
    size: int = 0


class FirmwareFiles(Protocol):
    """The files that firmware is flashed from."""

    async def fetch(self, url: str, sha256: str) -> FirmwareFile:
        """Return a copy of what the URL serves. Files that are here already are not fetched again for a while.

        Raise DriverError: REJECTED names both digests where the file's differs; UNREACHABLE, TIMEOUT: no file came.
        """


class Bmc(PasswordPort, Protocol):
    """One node's BMC. The driver lets at most one write run at a time (pitfall A12).

    Every write raises DriverError: UNREACHABLE, AUTH, TIMEOUT, MALFORMED, UNSUPPORTED (this BMC lacks the function),
    REJECTED (asking again changes nothing), BUSY (later may help; `retry_after` says when) or AMBIGUOUS.
    """

    async def hot(self) -> Answered[RedfishHot] | Silent:
        """Read the facts of each pass, in at most six GETs."""

    async def inventory(self) -> Answered[RedfishInventory] | Silent:
        """Read what changes rarely: BIOS attributes, firmware, parts, sensors, events. It takes dozens of GETs."""

    async def log_news(self, told: Sequence[BmcEvent]) -> Answered[bool] | Silent:
        """Say whether its log has a sign of illness that is not among `told`. It takes a GET each five minutes.

        Silent: the log could not be read. A log that has changed is read, every 15 minutes at most.
        """

    async def power(self, action: PowerAction) -> None:
        """Ask for a change of power. The BMC answers before the machine has obeyed: poll `hot`.

        Repeating an order is harmless. A restart is an OFF and then ON: not every BMC has an order for it.
        """

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Ask for these attributes at the next boot. Idempotent.

        REJECTED names the attributes that the BMC refuses (pitfall G1); none of them is staged then.
        """

    async def clear_bios(self) -> None:
        """Drop the pending attributes. UNSUPPORTED where the BMC can't. Idempotent."""

    async def set_secure_boot(self, enabled: bool) -> None:
        """Enable or disable secure boot from the next boot on. Idempotent."""

    async def set_boot_order(self, order: Sequence[str]) -> None:
        """Put these entries first in the persistent boot order, named as in a spec (diff/boot_order.py). Idempotent."""

    async def boot_once(self, device: str) -> None:
        """Boot from `device` at the next boot alone: "cd", "disk" or "pxe". Idempotent until that boot.

        The driver picks the BMC's word (pitfall D5). Some BMCs keep it until `clear_boot_override`, as Continuous.
        """

    async def clear_boot_override(self) -> None:
        """Boot by the boot order again. Idempotent."""

    async def media(self) -> str | None:
        """Return the URL of the inserted virtual medium, None when there is none. Raise DriverError."""

    async def insert_media(self, url: str) -> None:
        """Insert an ISO by its URL, which the BMC fetches. It replaces another that is inserted."""

    async def eject_media(self) -> None:
        """Eject the virtual medium. An empty drive is success."""

    async def boot_http(self, url: str) -> None:
        """Boot an ISO from this URL at the next boot alone, which the firmware fetches. Idempotent until that boot.

        UNSUPPORTED where the BMC takes no URL. `clear_boot_override` and Continuous are as for `boot_once`.
        """

    async def http_boot_uri(self) -> str | None:
        """Return the URL that a boot over HTTP would be from, None when there is none. Raise DriverError."""

    async def update_firmware(self, inventory_id: str, file: FirmwareFile) -> str:
        """Start an update of a component, by its FirmwareInventory Id, and return the URI of the task.

        The BMC fetches the file by its URL, or is sent our copy where it takes no URL. Not idempotent: each call
        flashes. After AMBIGUOUS look for the task in `tasks` before calling again.
        """

    async def task(self, uri: str) -> BmcTask | None:
        """Return a task, or None when the BMC has forgotten it: then the version tells (pitfall A5)."""

    async def tasks(self) -> Sequence[str]:
        """Return the URIs of all tasks that the BMC remembers, also of those that ended. Raise DriverError."""

    async def signed_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        """Let a component, by its Id in ComponentIntegrity, sign all its measurements under a nonce of 32 bytes.

        It takes seconds, and as long as the BMC's task does: the caller has the deadline. It changes nothing. Raise
        DriverError: REJECTED where the component is not listed or did not sign, UNSUPPORTED where none can be asked.
        """

    async def secure_erase(self, serial: str) -> str:
        """Start to destroy all data on the drive with exactly this serial number; return the URI of the task.

        REJECTED: no drive, or more than one, has it. UNSUPPORTED: the BMC can't erase it. Look for the task before
        calling again.
        """

    async def set_indicator(self, lit: bool) -> None:
        """Switch the locator LED on or off. UNSUPPORTED where the machine has none that can be switched. Idempotent."""

    async def unsubscribe(self, ledger: str) -> int:
        """Delete the event subscriptions of the fleet with this ledger; return how many there were.

        Raise DriverError when one is left.
        """

    async def reset(self) -> None:
        """Restart the BMC itself. It does not answer for minutes, and the machine goes on running."""

    async def close(self) -> None:
        """Delete the session, of which a BMC has few (pitfall B1). Never raises; a closed port opens another one."""


class Host(Protocol):
    """One node's operating system, over SSH."""

    @property
    def reached(self) -> bool:
        """Return whether the host accepted the latest connection, which may still wait for the login."""

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        """Read all facts in one connection with one program, each under a timeout of its own.

        `sysctls`, `services`: names of those to read. A fact that gave no answer is None, and `unknown` says why.
        """

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run one command without a shell and return how it ended, whatever its exit status.

        `timeout`: wall-clock seconds, after which the command is killed (`timed_out`). DriverError is raised only when
        the command could not be started, or with AMBIGUOUS when the connection was lost while it ran, as a reboot does.
        """

    def anew(self, *, renewal_of: str = "") -> Host:
        """Return the same host over a connection of its own, which the caller closes.

        `renewal_of`: the node's recorded host key. A certificate that has expired is accepted over this key, and for
        nothing but its renewal.
        """

    async def close(self) -> None:
        """Close the connection. Never raises."""


class Cluster(Adjustable, Protocol):
    """Places work on the nodes of a fleet: Kubernetes, Slurm, or both. A job of Slurm is a pod of its nodes.

    Every write raises DriverError, with CONFLICT when the object changed after it was read: read it and decide again.
    """

    async def state(self) -> Answered[ClusterState] | Silent:
        """Read all nodes and all their live pods in one bulk read."""

    async def member(self, node: str, *, cached: bool = False) -> Member | None:
        """Read one node with its pods from the API server. None: known to be absent. Raise DriverError.

        `cached`: from the server's memory, which may be a little behind, for whoever waits and asks again and again.
        """

    async def mark(self, member: Member, mark: Mark) -> None:
        """Set our taint and owner annotation, and cordon if `mark.cordoned`, in one patch under the resourceVersion."""

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        """Take our taint and annotation away in one patch under the resourceVersion. A node without them is success.

        `uncordon`: make it schedulable in the same patch, which is right only for a cordon of ours.
        """

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        """Set these labels and taints, and leave all others as they are. Idempotent."""

    async def remove(self, member: Member) -> None:
        """Delete this very node object, by its UID. One that is gone is success. Its kubelet may register it again."""

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        """Evict this very pod, by its UID (pitfall H6). A pod that is gone is success (pitfall H7).

        `grace_s`: wall-clock seconds that it gets to end; None: its own. BUSY: a PodDisruptionBudget forbids it now.
        """

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        """Delete this very pod without asking its PodDisruptionBudget. Otherwise as `evict`."""

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of this very pod, by its UID; None takes one away. A pod that is gone is success."""

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:
        """Send JSON to a pod over HTTP, through the API server. Each call asks anew. A pod that is gone is success.

        AMBIGUOUS: it may have arrived. Any other kind: the pod, or the API server, has refused it.
        """

    async def answers(self, pod: Pod, port: int, path: str) -> bool:
        """Return whether a pod answers a GET with a 2xx status. Whatever else happens is a no."""

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:
        """Send a signal to a job of Slurm, always anew. A job that is gone is success. UNSUPPORTED for other pods."""


class Watch(Protocol):
    """A hint where to look before the next pass. Nothing is decided by it (DESIGN section 8)."""

    def changes(self, tell: Callable[[str], None] = ...) -> AsyncGenerator[str]:
        """Yield names of nodes of which there is news. It never ends by itself: leave it with `aclosing`.

        It calls `tell` with the reason when no changes can be heard, once for each problem, and with "" when they can.
        """


class Installer(Protocol):
    """A server of one install document per attempt, under a URL of its own (DESIGN section 7.5)."""

    async def publish(
        self, token: str, document: AnyDocument, attempt: AttemptCredential | None, *, pxe: bool = False
    ) -> str:
        """Serve a document at .../<token>/install.json and return the URL of its boot medium, .../<token>/boot.iso.

        `attempt`: the network that the installer is to use, for the boot medium's placeholder; the server fills in the
        URL. None: DHCP. `pxe`: the attempt's MAC address alone finds the medium too, until the installer has its
        document. Publishing under the same token again keeps what the installer has reported. REJECTED: nothing
        can listen on the address that the spec gives, the boot medium has no placeholder, or the document asks for what
        this server can't do.
        """

    async def progress(self, token: str) -> InstallProgress:
        """Return what the installer of this attempt has reported. Nothing, for an attempt that is not served."""

    async def token(self, digest: str) -> str:
        """Return the token of an attempt by its digest, which is all that a journal has; "" if it was withdrawn."""

    async def withdraw(self, token: str) -> None:
        """Stop serving a document. One that is not served is success."""

    def in_place(self, document: InstallDocument, folder: str, unit: str) -> str:
        """Return what a node needs to write a document's image itself: JSON {folder, unit, files: {path: base64}}.

        Among the files are document.json, and program.pyz, which is started with the folder as its argument. REJECTED:
        no public key is known by the name that the document gives.
        """

    async def certify(self, document: InstallDocument, key: str) -> str:
        """Return a new certificate, as a line, of the host key that the installation by this document recorded.

        REJECTED: the spec names no host CA.
        """


class Fabric(Protocol):
    """The ports of the nodes: the same object for a node as long as it is reached in the same way."""

    def bmc(self, desired: Desired) -> Bmc | None:
        """Return the node's BMC, None when the spec gives it no address. No I/O."""

    def pdu(self, address: str) -> Pdu:
        """Return the service of rack PDUs at an address of the spec. No I/O."""

    def host(self, desired: Desired) -> Host | None:
        """Return the node's host, None when the spec gives it no address. No I/O."""

    def cluster(self) -> Cluster | None:
        """Return the cluster of the fleet, None when it has none."""

    def releases(self) -> ReleaseStore | None:
        """Return the Helm releases of that cluster, None when it has none or can't take any."""

    def reservations(self) -> ReservationStore | None:
        """Return the reservations of the queue of jobs on these nodes, None when there is none."""

    def observer(self) -> Observer | None:
        """Return what passes read nodes with in place of these ports, None when it is they."""

    def watches(self) -> Mapping[NewsSource, Watch]:
        """Return the watches that there are; none where a fleet has no such source."""

    async def refit(self, fleet: Fleet) -> None:
        """Reach nodes as this fleet says from now on. Ports that were reached in another way are closed."""

    def installer(self) -> Installer | None:
        """Return the server of install documents, None when the spec names no address for it."""

    def firmware_files(self) -> FirmwareFiles:
        """Return the files that firmware is flashed from."""

    def public_key(self, name: str) -> str | None:
        """Return a public key of images by name, from outside the spec. None: no key has this name."""

    def host_secret(self, name: str, desired: Desired, server: str | None) -> str:
        """Return a secret for a command on a node's host, which uses it at `server`; None: on the host alone.

        Raise UsageError where it can't be read, or may not be sent to both.
        """

    def insecure_logins(self) -> Sequence[str]:
        """Return a sentence for each login of its vendor that BMCs took from us. No I/O."""

    def conceal(self, text: str) -> str:
        """Return the text without the values of the secrets that this process has read. No I/O."""

    async def close(self) -> None:
        """Close all ports."""
