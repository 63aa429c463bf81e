"""The files that say who the installed system is: its name, network, SSH keys, and the record of its image."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from reconciler.installer.documents import Document, Link
from reconciler.installer.kept_key import KeptKey
from reconciler.installer.machine import Failed, Machine

RECORD = "reconciler/image.json"  # below /etc: what was installed last
AUTHORITIES = "reconciler/ca.pem"  # of the boot medium: by them a system fetches its next image itself
SLOT_RECORD = "reconciler/slot-{}.json"  # what is in a slot: a boot loader that falls back runs the other one
HOST_KEY = "ssh/ssh_host_ed25519_key"
_OURS = "# Written by the reconciler's installer from the fleet's spec.\n"
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9.-]{1,253}(?<!-)")
_LINK_NAME = re.compile(r"[A-Za-z0-9._-]{1,15}")


def read_record(etc: Path, name: str = RECORD) -> dict[str, Any]:
    """Return the record of the image that is there, empty when there is none that can be read."""
    try:
        record = json.loads((etc / name).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def host_key(machine: Machine, etc: Path, node: str, keep: bool, kept: KeptKey) -> str:
    """Make the SSH host key, or keep the one that this machine made before. Return its public line.

    One that came with the image is nobody's: all machines with this image would have it. One that an earlier boot of
    this attempt made may have been sent already, and a new one is kept before it is.
    """
    path = etc / HOST_KEY
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = kept.read()
    if earlier is not None:
        _write(path, earlier)
    public = _public_key(machine, path) if keep or earlier is not None else None
    if public is None:
        for old in path.parent.glob("ssh_host_*"):
            old.unlink()
        machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node, "-f", str(path))
        public = path.with_suffix(".pub").read_text()
        kept.keep(path.read_text())
    line = f"{' '.join(public.split()[:2])} {node}"
    path.with_suffix(".pub").write_text(f"{line}\n")
    return line


def _public_key(machine: Machine, path: Path) -> str | None:
    """Return the public half of a key, None when there is no key that can be read."""
    if not path.is_file():
        return None
    path.chmod(0o600)
    try:
        return machine.run("ssh-keygen", "-y", "-P", "", "-f", str(path)).decode()
    except Failed:
        return None


def write_facts(etc: Path, document: Document, certificate: str | None, slot: str | None) -> None:
    """Write all files of the document into a folder that is /etc of the installed system.

    `certificate`: of the host key; None keeps the one that is there.
    """
    if certificate is not None and not certificate.startswith("ssh-ed25519-cert-v01@openssh.com "):
        raise Failed("the server's answer to the host key is no certificate of one")
    networks = etc / "systemd/network"
    for old in networks.glob("*-reconciler-*"):  # of an earlier install, on a partition that is kept
        old.unlink()
    if _ours(etc / "resolv.conf"):
        (etc / "resolv.conf").unlink()
    files = {
        "hostname": f"{_checked(_HOST_NAME, document.hostname, 'hostname')}\n",
        **({} if certificate is None else {f"{HOST_KEY}-cert.pub": f"{certificate.strip()}\n"}),
        **ssh_files(document.ssh.user_ca),
        **network_files(document),
        **resolver_file(document),
    }
    for name, text in files.items():
        _write(etc / name, text)
    write_record(etc, RECORD, record(document, slot))


def keep_authorities(etc: Path, machine: Machine) -> None:
    """Keep the certificates of the CAs that this medium trusts."""
    _write(etc / AUTHORITIES, (machine.trust / "ca.pem").read_text())


def write_record(etc: Path, name: str, values: dict[str, Any]) -> None:
    _write(etc / name, json.dumps(values, indent=2) + "\n")


def record(document: Document, slot: str | None) -> dict[str, Any]:
    """Return what image.json says: what was installed, and the nonce that says for which document."""
    return {
        "image": document.image.name,
        "version": document.image.version,
        "sha256": document.image.sha256,
        "root_disk": document.root_disk.serial or document.root_disk.wwn,
        "nonce": document.nonce,
        **({"slot": slot} if slot else {}),
    }


def ssh_files(user_ca: tuple[str, ...]) -> dict[str, str]:
    """Return sshd's configuration: its key, the key's certificate, and whose certificates let users in."""
    lines = [f"HostKey /etc/{HOST_KEY}", f"HostCertificate /etc/{HOST_KEY}-cert.pub"]
    files = {}
    if user_ca:
        if any("\n" in key for key in user_ca):
            raise Failed("ssh.user_ca: a key is more than one line", "document")
        files["ssh/reconciler_user_ca.pub"] = "".join(f"{key}\n" for key in user_ca)
        lines.append("TrustedUserCAKeys /etc/ssh/reconciler_user_ca.pub")
    files["ssh/sshd_config.d/10-reconciler.conf"] = "".join(f"{line}\n" for line in lines)
    return files


def network_files(document: Document) -> dict[str, str]:
    """Return files of systemd-networkd: a .link that names each port by its MAC, a .netdev for what is not a port."""
    if document.network is None:
        return {}
    files = {}
    links = document.network.links
    dns = tuple(map(_name_server, document.network.dns))
    for link in links:
        _checked(_LINK_NAME, link.name, "network.links.name")
        where = f"systemd/network/10-reconciler-{link.name}"
        if link.kind == "ethernet" and link.mac is not None:
            files[f"{where}.link"] = _section("Match", PermanentMACAddress=link.mac) + _section(
                "Link", Name=link.name, MTUBytes=link.mtu
            )
        elif link.kind != "ethernet":
            files[f"{where}.netdev"] = _netdev(link)
        files[f"{where}.network"] = _network(link, links, dns)
    return files


def resolver_file(document: Document) -> dict[str, str]:
    """Return resolv.conf for declared name servers. systemd-resolved, where an image has it, reads it as well.

    Without it, an image that has no resolver of its own would know the servers in systemd-networkd alone.
    """
    if document.network is None or not document.network.dns:
        return {}
    return {"resolv.conf": _OURS + "".join(f"nameserver {_name_server(one)}\n" for one in document.network.dns)}


def _name_server(address: str) -> str:
    return _checked(re.compile(r"[0-9A-Fa-f.:]+"), address, "network.dns")


def _ours(path: Path) -> bool:
    """Return whether an earlier install wrote this file, on a partition that is kept."""
    return path.is_file() and not path.is_symlink() and path.read_bytes().startswith(_OURS.encode())


def _netdev(link: Link) -> str:
    text = _section("NetDev", Name=link.name, Kind=link.kind, MTUBytes=link.mtu)
    if link.kind == "bond":
        return text + _section("Bond", Mode=link.mode, MIIMonitorSec="100ms")
    if link.kind == "vlan":
        return text + _section("VLAN", Id=link.vlan)
    raise Failed(f"network.links: {link.name} is a {link.kind}, which this installer does not know", "document")


def _network(link: Link, links: tuple[Link, ...], dns: tuple[str, ...]) -> str:
    bond = next((other.name for other in links if link.name in other.members), None)
    vlans = [other.name for other in links if other.parent == link.name]
    settings: list[tuple[str, object]] = [("Bond", bond), *(("VLAN", name) for name in vlans)]
    settings += [("Address", address) for address in link.addresses]
    settings += [("Gateway", link.gateway)]
    settings += [("DNS", address) for address in dns if link.gateway is not None]
    if bond is None:
        settings += [("LinkLocalAddressing", "ipv6" if link.addresses else "no"), ("IPv6AcceptRA", "no")]
    return _section("Match", Name=link.name) + _section("Link", MTUBytes=link.mtu) + _lines("Network", settings)


def _section(title: str, **settings: object) -> str:
    return _lines(title, list(settings.items()))


def _lines(title: str, settings: list[tuple[str, object]]) -> str:
    """Return a section of an ini file; settings without a value are left out, and a section without settings too."""
    given = [(name, str(value)) for name, value in settings if value is not None]
    if any(not value.isprintable() for _, value in given):
        raise Failed("network.links: a value has characters that no file may have", "document")
    return f"[{title}]\n" + "".join(f"{name}={value}\n" for name, value in given) + "\n" if given else ""


def _checked(pattern: re.Pattern[str], value: str, what: str) -> str:
    if pattern.fullmatch(value) is None:
        raise Failed(f"{what}: {value!r} is none", "document")
    return value


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    with staged.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
