"""Install K3s on the machines of a lab exactly as the spec says, or take it away."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from reconciler.lab.hardware.k3s_site import ADMIN, LEAF, Database, K3sSite, location, option
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage
from reconciler.model.desired import Desired, Fleet
from reconciler.model.k3s import (
    BINARY,
    DATASTORE,
    ENDPOINT,
    IMAGES,
    JOIN,
    KUBECONFIG,
    PASSWORD,
    SECRETS,
    SERVER_TOKEN,
    TOKEN,
    K3sRole,
)
from reconciler.model.k3s_datastore import DATABASE_LINE

_SECRET = "00" * 16


def install(desired: Desired, disk: DiskImage | None) -> None:
    """Put K3s on a disk as it is after the node has joined."""
    k3s = desired.profile.k3s
    if k3s is None or disk is None:
        return
    disk.services.pop("kubelet", None)
    disk.services[k3s.role.unit] = True
    disk.files |= {path: text for path, text in k3s.files.items() if text}
    disk.files |= {BINARY: k3s.binary.url, JOIN: f'node-name: "{desired.node}"\n', LEAF: "0.0"}
    disk.files[PASSWORD] = f"{desired.node}\n"
    if k3s.images is not None:
        disk.files[f"{IMAGES}/{k3s.image_file}"] = k3s.images.url
    if k3s.role is K3sRole.SERVER:
        disk.files |= {DATASTORE: "K3s"} if not k3s.external else {SERVER_TOKEN: f"K10::server:{_SECRET}\n"}
        disk.files[KUBECONFIG] = ADMIN
    if k3s.secrets:
        values = {option: f"secret {one.name} of {one.server}" for option, one in k3s.secrets.items()}
        head = f"{DATABASE_LINE}{k3s.database}\n" if k3s.external else ""
        disk.files[SECRETS] = head + "".join(f'{option}: "{value}"\n' for option, value in values.items())
    if k3s.token is not None:
        disk.files[TOKEN] = f"secret {k3s.token.name} of {k3s.token.server}\n"
        disk.files[JOIN] += f'token-file: "{TOKEN}"\n'


def remove(disk: DiskImage) -> None:
    """Take K3s from a disk that has it, as if it had never been there."""
    for path in [path for path in disk.files if "rancher" in path or path == BINARY or "/k3s" in path]:
        del disk.files[path]
    for role in K3sRole:
        disk.services.pop(role.unit, None)


def k3s_site(fleet: Fleet, machines: Mapping[str, Machine], clock: Callable[[], float], seed: int) -> K3sSite | None:
    """Return what the machines of a K3s cluster share; None for another cluster. Servers with a datastore are in it."""
    wanted = {name: node.profile.k3s for name, node in fleet.nodes.items() if node.profile.k3s is not None}
    if not wanted:
        return None
    site = K3sSite(machines, clock, random.Random(f"{seed} k3s"))  # noqa: S311  secrets of a lab
    for name in sorted(wanted):
        machine = machines[name]
        machine.k3s = site
        files = {path: text for disk in machine.state.disks.values() for path, text in disk.files.items()}
        if DATASTORE in files or SERVER_TOKEN in files:
            site.members.append(name)
        if PASSWORD in files:
            site.passwords[name] = files[PASSWORD]
    if site.members:
        site.begun = 1
    for name in site.members:
        for disk in machines[name].state.disks.values():
            if SERVER_TOKEN in disk.files:
                site.databases[location(option(disk, ENDPOINT))] = Database(disk.files[TOKEN])
            elif DATASTORE in disk.files:
                disk.files[SERVER_TOKEN] = f"K10{site.authority}::server:{_SECRET}\n"
    return site
