"""How BMCs, hosts, the cluster and the server of installers are reached, and what is trusted there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.model.measurements import BootMeasurements


@dataclass(frozen=True, slots=True)
class TlsPolicy:
    ca: str | None  # PEM text
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class HostKeyPolicy:
    """The trust in host keys. `authorities`: public keys of host CAs in OpenSSH format; certificates name the node."""

    authorities: tuple[str, ...]
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class SlurmAccess:
    """A Slurm, reached over SSH. `login`: host[:port] of a machine where its commands run. `user`: None = spec.ssh's.

    `programs`: folder of the commands; "" = PATH finds them. `names`: a node's name in the spec -> in slurm.conf, where
    they differ. `take_over`: how the reasons begin that health checks give, and of which the drains may be taken over.
    `reserve_s`: how long before their work in a window nodes are reserved; 0 = they are not.
    """

    login: str
    user: str | None = None
    programs: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    take_over: tuple[str, ...] = ()
    reserve_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """`slurm`: the Slurm that schedules the same nodes, alone or beside Kubernetes, as `kubernetes` says."""

    name: str
    kubeconfig: str | None  # secret name; None = kubectl's own default
    context: str | None = None
    kubernetes: bool = True
    slurm: SlurmAccess | None = None


@dataclass(frozen=True, slots=True)
class PinnedExtension:
    """A package of extensions that is named, with its exact version."""

    package: str
    version: str


@dataclass(frozen=True, slots=True)
class InstallerPolicy:
    """The server of install documents (DESIGN 7.5). `url`: its address as BMCs and installers reach it.

    `certificate`, `key` and `host_ca` are names from the secrets file; without a certificate it serves plain HTTP.
    """

    listen: str  # host:port; port 0 = any free one
    url: str | None  # None: that of `listen`
    iso: str  # URL or absolute path of the boot medium
    certificate: str | None = None
    key: str | None = None
    host_ca: str | None = None  # a secret, or a signer; None: no host key is certified
    host_certificate_s: float = 90 * 86400.0  # how long a certificate is valid
    measurements: BootMeasurements | None = None  # of that medium
    via: str = ""  # name of the installer of an extension, in place of the packaged one
    pxe: bool = False  # whether machines that boot over PXE get the medium by their MAC address


@dataclass(frozen=True, slots=True)
class EventListenerPolicy:
    """The server that BMCs post their events to. `url`: its address as BMCs reach it, None = that of `listen`.

    `certificate` and `key` are names from the secrets file; without a certificate it speaks plain HTTP.
    """

    listen: str  # host:port; port 0 = any free one
    url: str | None = None
    certificate: str | None = None
    key: str | None = None
