"""How BMCs, hosts, the cluster and the server of installers are reached, and what is trusted there."""

from __future__ import annotations

from dataclasses import dataclass

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
class ClusterAccess:
    name: str
    kubeconfig: str | None  # secret name; None = kubectl's own default
    context: str | None = None


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
    pxe: bool = False  # whether machines that boot over PXE get the medium by their MAC address
