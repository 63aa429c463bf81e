"""Read a lab's endpoints.json: the loopback target that replaces each address of the spec, and what to trust there.

With this overlay secrets are the lab's own and are sent to loopback only: a spec can't redirect real credentials, and
a lab's credentials never leave the machine. Paths in the file are relative to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import KeySource, SecretsFile, SecretSource
from reconciler.model.addresses import HTTPS_PORT, SSH_PORT, split_authority
from reconciler.model.confined import Confined
from reconciler.model.desired import Settings
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.strict_yaml.parse import UnreadableFile, parse_yaml

T = TypeVar("T")

MAJOR: Final = 1
_HOST_CA: Final = "lab-host-ca"
_LOOPBACK: Final = ("127.0.0.0/8", "::1", "localhost")


class EndpointsError(UsageError):
    """Raised when endpoints.json is unusable, or has no target for an address."""


class _Part(BaseModel):
    """A part of the file. Unknown keys, of later minor versions, are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", defer_build=True)


def _bmc_target(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https"):
        raise ValueError(f"{text!r} is not the URL of a BMC; it starts with https://")
    split_authority(rest.partition("/")[0], HTTPS_PORT)
    return text


def _ssh_target(text: str) -> str:
    split_authority(text, SSH_PORT)
    return text


class _Bmc(_Part):
    target: Annotated[str, AfterValidator(_bmc_target)]
    ca: str


class _Ssh(_Part):
    target: Annotated[str, AfterValidator(_ssh_target)]
    authority: str


class _Cluster(_Part):
    kubeconfig: str


class _Installer(_Part):
    listen: str
    iso: str
    host_ca: str | None = None  # the private half of the lab's SSH host CA


class _Firmware(_Part):
    target: str
    sha256: str


class _Programs(_Part):
    """The programs of a secret that each node has its own of, as in the secrets file."""

    exec: tuple[str, ...] = Field(min_length=1)
    write: tuple[str, ...] = Field(min_length=1)


class _File(_Part):
    time_scale: float = Field(gt=0, le=1_000_000)
    epoch: datetime | None = Field(default=None, strict=False)  # when the lab's time began; scaled time counts from it
    bmc: Mapping[str, _Bmc]
    pdu: Mapping[str, _Bmc] = {}
    ssh: Mapping[str, _Ssh]
    clusters: Mapping[str, _Cluster]
    secrets: Mapping[str, str]
    secret_programs: Mapping[str, _Programs] = {}  # in place of their files, where passwords of BMCs are changed
    keys: Mapping[str, str]
    installer: _Installer | None = None
    firmware: Mapping[str, _Firmware] = {}  # URL in the spec -> a stand-in for its file


@dataclass(frozen=True, slots=True)
class BmcTarget:
    url: str
    ca: str  # PEM text


@dataclass(frozen=True, slots=True)
class SshTarget:
    host: str
    port: int
    authorities: tuple[str, ...]  # OpenSSH public keys


@dataclass(frozen=True, slots=True)
class InstallerTarget:
    """`host_ca`: name of the secret that signs host keys, None when the lab brings none."""

    listen: str
    iso: str
    host_ca: str | None = None


class Overlay(Confined):
    """The targets of a lab, by the addresses of `Desired.endpoints`; EndpointsError for others.

    `digest`: of the file's text, to which approvals are bound.
    """

    def __init__(self, contents: _File, path: Path, digest: str) -> None:
        self._contents = contents
        self.digest = digest
        self._path = path
        self.time_scale = contents.time_scale
        self.epoch = contents.epoch
        secrets = {name: SecretSource(file=file, allow=_LOOPBACK) for name, file in contents.secrets.items()}
        if contents.installer is not None and contents.installer.host_ca is not None:
            secrets[_HOST_CA] = SecretSource(file=contents.installer.host_ca)  # it is sent nowhere
        keys = {name: KeySource(file=file) for name, file in contents.keys.items()}
        self.secrets = SecretStore(SecretsFile(secrets=secrets, keys=keys), path)
        replaced = {
            name: SecretSource(exec=found.exec, write=found.write, allow=_LOOPBACK)
            for name, found in contents.secret_programs.items()
        }
        self._rotating = SecretStore(SecretsFile(secrets=secrets | replaced, keys=keys), path)

    def secrets_of(self, settings: Settings) -> SecretStore:
        """Return the secrets for a spec: its BMCs share a login in a file, unless their passwords are changed."""
        return self.secrets if settings.rotate_after_s is None else self._rotating

    def bmc(self, address: str) -> BmcTarget:
        found = self._find(self._contents.bmc, address, "bmc")
        return BmcTarget(found.target, self._text(found.ca))

    def pdu(self, address: str) -> BmcTarget:
        found = self._find(self._contents.pdu, address, "pdu")
        return BmcTarget(found.target, self._text(found.ca))

    def ssh(self, address: str) -> SshTarget:
        found = self._find(self._contents.ssh, address, "ssh")
        host, port = split_authority(found.target, SSH_PORT)
        lines = (line.strip() for line in self._text(found.authority).splitlines())
        return SshTarget(host, port, tuple(line for line in lines if line and not line.startswith("#")))

    def kubeconfig(self, cluster: str) -> Path:
        return self._path.parent / self._find(self._contents.clusters, cluster, "clusters").kubeconfig

    @property
    def installer(self) -> InstallerTarget | None:
        found = self._contents.installer
        return InstallerTarget(found.listen, found.iso, found.host_ca and _HOST_CA) if found else None

    def firmware(self, url: str, _sha256: str) -> tuple[str, str]:
        """Return the address and the digest of the stand-in for the file at `url`. Raise DriverError."""
        found = self._contents.firmware.get(url)
        if found is None:
            raise DriverError(Failure.REJECTED, f"{self._path}: the lab was started for a spec without {url}")
        return found.target, found.sha256

    def _find(self, table: Mapping[str, T], key: str, name: str) -> T:
        if key not in table:
            raise EndpointsError(
                f"{self._path}: {name} has no {key}; the lab was started for another spec. Without --endpoints and "
                "RECONCILER_ENDPOINTS (unset it) the addresses of the spec are used"
            )
        return table[key]

    def _text(self, name: str) -> str:
        return _read(self._path.parent / name)

    def check_targets(self) -> None:
        """Raise EndpointsError unless every target is on loopback."""
        contents = self._contents
        for name, bmc in contents.bmc.items():
            self._check_loopback(f"bmc.{name}", _authority(bmc.target))
        for name, pdu in contents.pdu.items():
            self._check_loopback(f"pdu.{name}", _authority(pdu.target))
        for name, ssh in contents.ssh.items():
            self._check_loopback(f"ssh.{name}", ssh.target)
        if contents.installer is not None:
            self._check_loopback("installer.listen", contents.installer.listen)
            if "://" in contents.installer.iso:
                self._check_loopback("installer.iso", _authority(contents.installer.iso))
        for url, file in contents.firmware.items():
            self._check_loopback(f"firmware.{url}", _authority(file.target))
        for name in contents.clusters:
            for server in _servers(self.kubeconfig(name)):
                self._check_loopback(f"clusters.{name}", _authority(server))

    def _check_loopback(self, what: str, authority: str) -> None:
        try:
            host, _ = split_authority(authority.removesuffix(":0"), 1)  # 0: any free port
            inside = host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            inside = False
        if not inside:
            raise EndpointsError(f"{self._path}: {what} leads to {authority}, which is not on loopback")


def load_endpoints(path: Path) -> Overlay:
    """Load a lab's overlay, and check its targets. Secrets are read when they are needed."""
    text = _read(path)
    try:
        head = from_json(text)
    except ValueError as error:
        raise EndpointsError(f"{path}: not JSON: {error}") from None
    version = str(head.get("format_version", "")) if isinstance(head, dict) else ""
    if version.partition(".")[0] != str(MAJOR):
        raise EndpointsError(f"{path}: format_version {version or 'is missing'}; this version reads {MAJOR}.x")
    try:
        contents = _File.model_validate_json(text)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        words = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3])
        raise EndpointsError(f"{path}: {words}") from None
    overlay = Overlay(contents, path, hashlib.sha256(text.encode()).hexdigest())
    overlay.check_targets()
    return overlay


def _authority(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _servers(kubeconfig: Path) -> list[str]:
    try:
        documents, _ = parse_yaml(_read(kubeconfig), str(kubeconfig))
    except UnreadableFile as problem:
        raise EndpointsError(str(problem.diagnostic)) from None
    data = documents[0].data if documents else None
    clusters = data.get("clusters") if isinstance(data, dict) else None
    found = [cluster.get("cluster", {}).get("server") for cluster in clusters or () if isinstance(cluster, dict)]
    if not found:
        raise EndpointsError(f"{kubeconfig}: names no cluster")
    return [str(server) for server in found]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise EndpointsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EndpointsError(f"{path}: not UTF-8 text") from None
