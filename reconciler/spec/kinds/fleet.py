"""Fleet: the settings of the whole fleet, and of the reconciler itself. A spec has exactly one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field, model_validator

from reconciler.model.units import parse_duration
from reconciler.spec.kinds.base import NodeShare, PositiveDuration, Resource, TreePath, WebUrl
from reconciler.spec.kinds.drift import Drift
from reconciler.spec.kinds.extensions import EntryName, Extension
from reconciler.spec.kinds.health import Health
from reconciler.spec.kinds.inventory import InventorySource
from reconciler.spec.kinds.limits import Brake, BreakGlass, Budget, Guards, PoolsWindow
from reconciler.spec.kinds.measurements import InstallerMeasurements
from reconciler.spec.kinds.notifications import Notification
from reconciler.spec.kinds.settings import SharedSettings
from reconciler.spec.kinds.tickets import Tickets
from reconciler.strict_yaml.models import Checked, Matching, Model, Name, Text

Iso = Annotated[
    str,
    Matching(
        r"https?://[^\s/@?#]+/[^\s?=#]*\.iso|/[^\x00-\x1f]*\.iso",
        "a URL or an absolute path of a boot medium; it ends in .iso, and a URL has no '?', '=' or '#'",  # pitfall E3
    ),
]
_PORT = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
Listen = Annotated[
    str, Matching(rf"([A-Za-z0-9.-]{{1,253}}|\[[0-9a-fA-F:.]{{2,45}}\]):{_PORT}", "an address like 0.0.0.0:8089")
]


def _day(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a day; write it like 2027-06-30") from None


Day = Annotated[str, Checked(_day, format="date")]


class Tls(Model):
    """How certificates of BMCs are verified: exactly one of `ca` and `insecure`."""

    ca: TreePath | None = Field(
        default=None, description="PEM file of CA certificates, relative to the spec directory."
    )
    insecure: Literal[True] | None = Field(default=None, description="true: do not verify. Every report says so.")

    @model_validator(mode="after")
    def _one_of(self) -> Tls:
        if (self.ca is None) == (self.insecure is None):
            raise ValueError("ca and insecure exclude each other, and one of them must be given")
        return self


class HostKeys(Model):
    """How the keys of SSH hosts are verified: exactly one of `authorities` and `insecure`."""

    authorities: tuple[TreePath, ...] | None = Field(
        default=None,
        min_length=1,
        description="Files of OpenSSH public keys of the CAs that sign host keys, relative to the spec directory.",
    )
    insecure: Literal[True] | None = Field(default=None, description="true: accept any key. Every report says so.")

    @model_validator(mode="after")
    def _one_of(self) -> HostKeys:
        if (self.authorities is None) == (self.insecure is None):
            raise ValueError("authorities and insecure exclude each other, and one of them must be given")
        return self


_SHORTEST_S = 7 * 86400.0  # of the life of a password


class Events(Model):
    """Where BMCs post their events that stream none."""

    listen: Listen = Field(description="Address to take events on; port 0 is any free one.")
    url: WebUrl | None = Field(
        default=None, description="That address as BMCs reach it, the same whichever reconciler leads."
    )
    certificate: Name | None = Field(
        default=None,
        description="Name of a secret that holds the server's certificate chain in PEM. Required unless everything is "
        "on loopback.",
    )
    key: Name | None = Field(
        default=None,
        description="Name of a secret that holds its private key in PEM. Absent: it is with `certificate`.",
    )

    @model_validator(mode="after")
    def _is_encrypted(self) -> Events:
        if self.url is None and self.listen.startswith(("0.0.0.0:", "[::]:")):
            raise ValueError(f"url is missing: BMCs can't reach {self.listen}")
        if self.key is not None and self.certificate is None:
            raise ValueError("certificate is missing: a key alone encrypts nothing")
        if self.certificate is None and not _on_loopback(self.listen):
            raise ValueError(f"certificate is missing: on {self.listen} others could read the tokens of events")
        if self.url is not None and (self.certificate is None) is not self.url.lower().startswith("http://"):
            scheme = "http" if self.certificate is None else "https"
            raise ValueError(f"url does not begin with {scheme}://, as {self.listen} speaks")
        return self


class RedfishAccess(Model):
    """How BMCs are reached."""

    credentials: Name = Field(description="Name of a secret, which is defined outside the spec.")
    pdu_credentials: Name | None = Field(
        default=None, description="Name of the secret for rack PDUs. Absent: that of BMCs."
    )
    tls: Tls = Field(description="How certificates of BMCs and rack PDUs are verified.")
    rotate_after: PositiveDuration | None = Field(
        default=None,
        description="Age from which the password of a BMC is changed, at least 7d; one of each pool at a time. The "
        "secret needs a writer. Absent: passwords are not changed.",
    )

    @model_validator(mode="after")
    def _lasts(self) -> RedfishAccess:
        if self.rotate_after is not None and parse_duration(self.rotate_after) < _SHORTEST_S:
            raise ValueError("rotateAfter is less than 7d: the passwords of a pool are changed one after the other")
        return self

    events: Events | None = Field(
        default=None,
        description="Where BMCs post their events that stream none. Absent: `run` reads those in its passes alone.",
    )


class SshAccess(Model):
    """How hosts are reached."""

    user: Text = Field(default="root", description="User to log in as.")
    credentials: Name = Field(description="Name of a secret that holds a private key.")
    host_keys: HostKeys = Field(description="How host keys are verified.")
    user_ca: TreePath | None = Field(
        default=None,
        description="File of OpenSSH public keys of the CAs that certify users, relative to the spec directory. "
        "Installed hosts let in whom they certify.",
    )


class Installer(Model):
    """Where install documents are served, and the boot medium that fetches them."""

    listen: Listen = Field(description="Address to serve install documents on; port 0 is any free one.")
    url: WebUrl | None = Field(
        default=None,
        description="That address as BMCs and installers reach it, the same whichever reconciler leads.",
    )
    iso: Iso = Field(
        description="Boot medium that BMCs insert: a file of `reconciler installer build`, on this machine or at a URL "
        "that the reconciler fetches it from."
    )
    certificate: Name | None = Field(
        default=None,
        description="Name of a secret that holds the server's certificate chain in PEM. Required unless everything is "
        "on loopback.",
    )
    key: Name | None = Field(
        default=None,
        description="Name of a secret that holds its private key in PEM. Absent: it is with `certificate`.",
    )
    host_ca: Name | None = Field(
        default=None,
        description="Name of a secret that holds the private half of the SSH host CA, or name of a signer. Required "
        "unless everything is on loopback.",
    )
    host_certificate: PositiveDuration = Field(
        default="90d", description="How long a certificate of a host key is valid."
    )
    measurements: InstallerMeasurements | None = Field(
        default=None,
        description="What a machine measures that boots this medium. Images that declare measurements need it.",
    )

    pxe: bool = Field(
        default=False,
        description="Whether machines may boot the installer over PXE, the last of the ways: DHCP points them to "
        "/boot/<mac>/ at `url`. Whoever is on that network can ask for it in a machine's stead.",
    )

    via: EntryName | None = Field(
        default=None, description="Name of an installer of an extension, which serves in place of the packaged one."
    )

    @model_validator(mode="after")
    def _can_be_reached(self) -> Installer:
        if self.url is None and self.listen.startswith(("0.0.0.0:", "[::]:")):
            raise ValueError(f"url is missing: BMCs and installers can't reach {self.listen}")
        return self

    @model_validator(mode="after")
    def _is_encrypted(self) -> Installer:
        if self.key is not None and self.certificate is None:
            raise ValueError("certificate is missing: a key alone encrypts nothing")
        if self.certificate is None and not _on_loopback(self.listen):
            raise ValueError(f"certificate is missing: on {self.listen} others could read and change what is installed")
        if self.certificate is not None and self.host_ca is None:
            raise ValueError("hostCa is missing: an installer fails where no CA certifies the host key of its system")
        plain = self.url is not None and self.url.lower().startswith("http://")
        if plain and self.certificate is not None:
            raise ValueError("url begins with http://, and there is a certificate: write https://")
        if plain and not _on_loopback((self.url or "").partition("://")[2].partition("/")[0]):
            raise ValueError("url begins with http://, which is for loopback alone: write https://")
        return self


def _on_loopback(authority: str) -> bool:
    host = authority.rpartition(":")[0] if re.search(r":[0-9]+$", authority) else authority
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Deadlines(Model):
    """How long one reading may take."""

    redfish: PositiveDuration = Field(default="30s", description="Time for the facts of one BMC.")
    ssh: PositiveDuration = Field(default="30s", description="Time for the facts of one host.")
    kubernetes: PositiveDuration = Field(default="30s", description="Time for the bulk read of the cluster.")


class ObservationPolicy(Model):
    """How nodes are observed."""

    concurrency: int = Field(default=64, ge=1, le=4096, description="Nodes observed at the same time.")
    tolerate: NodeShare = Field(
        default="0", description="Nodes (a count or a share) that may stay unobserved without exit code 4."
    )
    deadlines: Deadlines = Field(default=Deadlines(), description="How long one reading may take.")
    inventory_max_age: PositiveDuration = Field(
        default="1d",
        description="Age from which slowly changing Redfish facts are read again. At most the shortest window of "
        "signals that are read from a BMC's log: 2d, unless a row of `health` says less.",
    )


class Ignore(Model):
    """Drift that is counted but not acted upon, the same in drift, plan and apply."""

    path: Text = Field(description="Value path such as bios.BootTimeout; a trailing * matches the rest.")
    reason: Text = Field(description="Reason for the rule; shown in reports.")
    owner: Text | None = Field(default=None, description="Who is responsible for this rule.")
    expires: Day | None = Field(default=None, description="Day (YYYY-MM-DD) from which the rule no longer ignores.")
    pools: tuple[Name, ...] = Field(default=(), description="Pools that the rule is limited to. Absent: all.")
    nodes: tuple[Name, ...] = Field(default=(), description="Nodes that the rule is limited to. Absent: all.")


class FleetSpec(Model):
    """The settings of the whole fleet."""

    cluster: Name | None = Field(default=None, description="Name of a Cluster. Absent: no Kubernetes.")
    redfish: RedfishAccess | None = Field(
        default=None, description="How BMCs are reached. Required once a node has one."
    )
    ssh: SshAccess | None = Field(default=None, description="How hosts are reached. Required once a node has one.")
    installer: Installer | None = Field(
        default=None, description="How images are installed. Absent: images are compared, but never installed."
    )
    observation: ObservationPolicy = Field(default=ObservationPolicy(), description="How nodes are observed.")
    budgets: tuple[Budget, ...] = Field(
        default=(Budget(scope="fleet", nodes="1"),),
        min_length=1,
        description="How many nodes may be out of service at once. Absent: one node of the fleet.",
    )
    floor: Mapping[Name, NodeShare] = Field(
        default={},
        description="By Persona, how many of its active nodes must stay in service: a count, or a share rounded up.",
    )
    spares: Mapping[Name, NodeShare] = Field(
        default={},
        description="By Persona, how many of its active nodes are kept as spares, certified and out of the work: a "
        "count, or a share rounded up. One takes the place of each node that fails. It needs a cluster.",
    )
    drift: Drift = Field(default=Drift(), description="What `run` does about drift.")
    inventory: InventorySource | None = Field(
        default=None,
        description="An inventory elsewhere that the nodes of this spec are kept in step with, by pull requests. "
        "Absent: the spec alone says which nodes there are.",
    )
    ignore: tuple[Ignore, ...] = Field(default=(), description="Drift that is counted but not acted upon.")
    health: Health = Field(default=Health(), description="Rows of the table of signals that this fleet has otherwise.")
    windows: tuple[PoolsWindow, ...] = Field(
        default=(), description="When nodes may be taken out of service, and firmware updates begin. Absent: always."
    )
    break_glass: BreakGlass | None = Field(default=None, description="Lifts all windows for an emergency.")
    guards: Guards = Field(default=Guards(), description="Limits beyond which a plan is refused as a whole.")
    brake: Brake = Field(
        default=Brake(), description="How many nodes may go bad at once before no further disruption begins."
    )
    notifications: tuple[Notification, ...] = Field(
        default=(), description="Channels through which `run` tells people what happens. Absent: it tells nobody."
    )
    tickets: tuple[Tickets, ...] = Field(
        default=(),
        description="Trackers in which `run` keeps a ticket for each part that a person must exchange. Absent: none.",
    )
    extensions: tuple[Extension, ...] = Field(
        default=(),
        description="Packages of extensions that this fleet uses. No other package that is installed changes anything.",
    )
    defaults: SharedSettings = Field(default=SharedSettings(), description="Settings that pools and nodes inherit.")

    @model_validator(mode="after")
    def _listens_apart(self) -> FleetSpec:
        events = self.redfish.events if self.redfish is not None else None
        shared = events is not None and self.installer is not None and events.listen == self.installer.listen
        if events is not None and shared and not events.listen.endswith(":0"):
            raise ValueError(f"redfish.events.listen is {events.listen}, where the installer's documents are served")
        return self


class Fleet(Resource):
    """The fleet: access, observation, budgets, drift policy, defaults. A spec has exactly one."""

    kind: Literal["Fleet"] = Field(description="Fleet.")
    spec: FleetSpec = Field(description="Settings of the whole fleet.")
