"""The files of K3s on a real node, as the lab's disks have files: what the lab plays of K3s reads and writes them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reconciler.lab.hardware.k3s_site import LEAF
from reconciler.model.k3s import BINARY, DATA, DATASTORE, KUBECONFIG, UNIT_FILES, K3sRole
from tests.k3s.nodes import Node

FOLDERS: Final = ("/etc/rancher", "/var/lib/rancher")
UNITS: Final = tuple(f"{UNIT_FILES}/{role.unit}.service" for role in K3sRole)
SINGLE: Final = (BINARY, "/etc/default/k3s", *UNITS)
_READ: Final = 65536  # a program names its release at its beginning
_MEMBER: Final = f"{DATASTORE}/member/lab"


def of_k3s(path: str) -> bool:
    return path in SINGLE or any(path == one or path.startswith(f"{one}/") for one in FOLDERS)


def leaf() -> str:
    """Return a certificate that is valid for a year, as K3s issues it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "k3s")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=365))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class RootFiles(MutableMapping[str, str]):
    """Paths of K3s are files of the node; all others are in `kept`, as the lab has them.

    The datastore is a folder there, and the leaf certificate a real one, with the lab's number above it.
    """

    def __init__(self, node: Node, kept: Mapping[str, str], kubeconfig: str, certificate: str) -> None:
        self._node, self._kept = node, dict(kept)
        self._kubeconfig, self._certificate = kubeconfig, certificate

    def _real(self, path: str) -> Path:
        return self._node.root(_MEMBER if path == DATASTORE else path)

    def __getitem__(self, path: str) -> str:
        if not of_k3s(path):
            return self._kept[path]
        try:
            with self._real(path).open("rb") as file:
                text = file.read(_READ).decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(path) from None
        return text.partition("\n")[0] if path == LEAF else text

    def __setitem__(self, path: str, text: str) -> None:
        if not of_k3s(path):
            self._kept[path] = text
            return
        if path == LEAF:
            text = f"{text}\n{self._certificate}"
        elif path == KUBECONFIG:
            text = self._kubeconfig
        real = self._real(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)

    def __delitem__(self, path: str) -> None:
        if not of_k3s(path):
            del self._kept[path]
            return
        self[path]  # KeyError where it is not there
        self._real(path).unlink()
        if path == DATASTORE:
            for folder in (self._real(path).parent, self._node.root(DATASTORE)):
                folder.rmdir()

    def __iter__(self) -> Iterator[str]:
        yield from list(self._kept)
        yield from [path for path in SINGLE if self._node.root(path).is_file()]
        top = len(str(self._node.root("")))
        for folder in FOLDERS:
            for found in [one for one in self._node.root(folder).rglob("*") if one.is_file()]:
                path = str(found)[top:]
                yield DATASTORE if path == _MEMBER else path

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __ior__(self, more: Mapping[str, str]) -> RootFiles:
        self.update(more)
        return self


def left_of_k3s(node: Node, kept: str) -> list[str]:
    """Return what a node still has of K3s, but for what is below `kept`: a partition of its own."""
    places = (*SINGLE, *FOLDERS, DATA, "/var/lib/kubelet", "/var/lib/cni", "/run/k3s", "/run/flannel")
    found: list[str] = []
    for path in (node.root(one) for one in places):
        found += [str(one) for one in [path, *path.rglob("*")] if one.is_file()] if path.exists() else []
    top = len(str(node.root("")))
    return sorted({one[top:] for one in found if not kept or not one[top:].startswith(f"{kept}/")})
