"""Access of `init` to the nodes: the secrets file that it writes, and the host key that a node presents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

from reconciler.app.runtime import run_async
from reconciler.drivers.secrets import Secret, SecretError, SecretStore, default_path
from reconciler.drivers.secrets_file import SecretsFile, SecretSource
from reconciler.drivers.ssh.host_key_scan import presented
from reconciler.model.addresses import SSH_PORT, split_authority
from reconciler.model.errors import UsageError
from reconciler.render.draft.kinds import Row
from reconciler.render.draft.text import Access
from reconciler.spec.access import check_certificates, check_public_keys
from reconciler.strict_yaml.edit import inline

# Option -> what the text of its file is checked for before it goes into the spec: no secret may be taken for a CA.
CA_CHECKS: Final[Mapping[str, Callable[[str], None]]] = {"--bmc-ca": check_certificates, "--host-ca": check_public_keys}


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """The host key of one node. `text`: a sentence about it. `authority`: the CA that signed it; "" for none."""

    text: str
    authority: str = ""


def presented_host_key(rows: Mapping[str, Row]) -> PresentedKey | None:
    """Ask the first node that has an SSH address for its host key, which proves nothing until somebody compares it."""
    row = next((row for row in rows.values() if row.host), None)
    if row is None or row.host is None:
        return None
    found = run_async(presented(*split_authority(row.host, SSH_PORT)))
    if found is None:
        return PresentedKey(f"{row.name} shows no SSH host key")
    if not found.authority:
        return PresentedKey(f"{row.name} shows the host key {found.fingerprint}, which no CA has signed")
    return PresentedKey(f"{row.name} shows a host key signed by the CA {found.fingerprint}", found.authority)


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """Files that the user named. None: the user named none."""

    bmc_credentials: Path | None
    ssh_key: Path | None
    kubeconfig: Path | None


@dataclass(frozen=True, slots=True)
class SecretPrompts:
    """Questions for what was not named: user and password of the BMCs, and the private key for SSH."""

    bmc_login: Callable[[], tuple[str, str]]
    ssh_key: Callable[[], Path]


@dataclass(frozen=True, slots=True)
class NewSecrets:
    """A secrets file that is not written yet.

    `sources`: name -> entry of the file. `bmc_login`: credentials that were typed, as JSON, for a file of their own.
    """

    path: Path
    sources: Mapping[str, Mapping[str, Any]]
    bmc_login: Secret | None

    def store(self) -> SecretStore:
        contents = SecretsFile(secrets={name: SecretSource(**source) for name, source in self.sources.items()})
        return SecretStore(contents, self.path, {} if self.bmc_login is None else {"bmc": self.bmc_login})

    def write(self) -> list[Path]:
        """Write the files, which only their owner can read. Raise UsageError when one exists."""
        written = []
        if self.bmc_login is not None:
            written.append(_write_private(Path(self.sources["bmc"]["file"]), self.bmc_login.reveal()))
        lines = [
            "# What the names in the spec stand for, and where it may be sent. Keep this file out of the repository.",
            "secrets:",
            *(f"  {name}: {inline(source)}" for name, source in self.sources.items()),
            "# Public keys that images are signed with: `release: RWQ...`, as in minisign.pub",
            "keys: {}",
        ]
        return [*written, _write_private(self.path, "\n".join(lines) + "\n")]


def prepare_secrets(
    rows: Mapping[str, Row], access: Access, files: SecretFiles, prompts: SecretPrompts
) -> NewSecrets | None:
    """Return the secrets file to write; None when there is one that has what is needed.

    Raise UsageError when the existing file lacks a secret, or contradicts `files`.
    """
    path = default_path()
    bmcs = [row.bmc for row in rows.values() if row.bmc]
    hosts = [row.host for row in rows.values() if row.host]
    if path.exists():
        _check_existing(path, access, files, bmcs, hosts)
        return None
    sources: dict[str, dict[str, Any]] = {}
    login = None
    if access.bmc:
        file = files.bmc_credentials or path.parent / "bmc.json"
        if files.bmc_credentials is None:
            login = _typed_login(file, prompts)
        sources["bmc"] = {"file": str(file.resolve()), "allow": tuple(_networks(bmcs))}
    if access.ssh:
        key = files.ssh_key or prompts.ssh_key()
        sources["ssh"] = {"file": str(key.expanduser().resolve()), "allow": tuple(_networks(hosts))}
    if files.kubeconfig is not None and access.cluster:
        sources["kubeconfig"] = {"file": str(files.kubeconfig.resolve())}
    return NewSecrets(path, sources, login)


def _check_existing(path: Path, access: Access, files: SecretFiles, bmcs: Sequence[str], hosts: Sequence[str]) -> None:
    """Raise UsageError unless the file at `path` has what is needed, and agrees with `files`.

    Otherwise `init` would read another fleet's cluster, and certify the nodes of that.
    """
    store = SecretStore.load(path)
    try:
        for name, needed, flag, file in (
            ("bmc", access.bmc, "--bmc-credentials", files.bmc_credentials),
            ("ssh", access.ssh, "--ssh-key", files.ssh_key),
            ("kubeconfig", access.cluster, "--kubeconfig", files.kubeconfig),
        ):
            place = store.place(name) if needed and file is not None else None
            if needed and file is not None and (place is None or place.resolve() != file.resolve()):
                raise UsageError(
                    f"{flag} {file} is not what {path} says of {name!r} ({place or 'no file'}): leave {flag} out to "
                    "use that, or let RECONCILER_SECRETS name a file that is not there yet, for this fleet alone"
                )
        if access.bmc:
            store.credentials("bmc", bmcs[0])
        if access.ssh:
            store.resolve("ssh", hosts[0])
        if access.cluster:
            store.file("kubeconfig")
    except SecretError as error:
        raise UsageError(f"{error}; {path} is there already, and init does not change it") from None


def _typed_login(path: Path, prompts: SecretPrompts) -> Secret:
    """Return the credentials to write to `path`."""
    if path.exists():
        raise UsageError(
            f"{path} is there already, and init overwrites nothing: give --bmc-credentials {path}, or another file"
        )
    user, password = prompts.bmc_login()
    return Secret(json.dumps({"username": user, "password": password}) + "\n")


def _write_private(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and init overwrites nothing") from None
    return path


def _networks(addresses: Sequence[str]) -> Iterator[str]:
    """Yield what an `allow` list names, so that a secret may be sent to these addresses and to few others."""
    found: dict[str, None] = {}
    for address in addresses:
        host, _ = split_authority(address.partition("://")[2] or address, 1)
        try:
            ip = ip_address(host)
        except ValueError:
            found[host] = None
        else:
            found[str(ip_network(f"{ip}/{24 if ip.version == 4 else 64}", strict=False))] = None
    yield from found
