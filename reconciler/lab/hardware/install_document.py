"""Judge the document that an installer fetched for one machine: the drive to write, and the image that it will have."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.lab.hardware.software import DRIVER, KERNEL, installed
from reconciler.lab.hardware.state import DiskImage, MachineState
from reconciler.model.install import InstallCause, InstallDocument, MachineIdentity, Network, dump_contract

FRESH_SERVICES = {"ssh": True, "containerd": True, "nvidia-fabricmanager": True, "nvidia-persistenced": True}
NOT_YET_JOINED = {"kubelet": False}  # a new image has no cluster credentials until the host joins


class InstallRefused(Exception):
    """The installer ends without an image. The text and the cause are what it reports."""

    def __init__(self, why: str, cause: InstallCause | None = None) -> None:
        super().__init__(why)
        self.cause = cause


def target_drive(document: InstallDocument, state: MachineState) -> str:
    """Return the serial of the one drive to write. Raise InstallRefused, also for another machine's document."""
    rule = document.root_disk
    check_machine(document.machine, state)
    found = [
        drive.serial
        for drive in state.drives
        if (rule.serial in (None, drive.serial)) and (rule.wwn in (None, drive.wwn))
    ]
    if len(found) != 1:
        what = "no disk matches" if not found else f"{len(found)} disks match"
        raise InstallRefused(
            f"{what} serial {rule.serial}, wwn {rule.wwn}: nothing was written", InstallCause.ROOT_DISK
        )
    return found[0]


def check_machine(machine: MachineIdentity, state: MachineState) -> None:
    for kind, meant, own in (("serial", machine.serial, state.serial), ("UUID", machine.uuid, state.uuid)):
        if meant is not None and meant.casefold() != own.casefold():
            raise InstallRefused(
                f"the document is for {kind} {meant}, this machine has {own}: nothing was written", InstallCause.MACHINE
            )


def is_done(document: InstallDocument, state: MachineState) -> bool:
    """Return whether a disk has the image of this very attempt."""
    return any(disk.nonce == document.nonce for disk in (*state.disks.values(), *state.idle_slots.values()))


def layout_of(document: InstallDocument) -> dict[str, int]:
    """Return the sizes of the partitions; {} for an image that is written over the whole disk."""
    return {} if document.layout is None else {name: int(size) for name, size in document.layout}


def installed_links(network: Network | None) -> list[str]:
    return [] if network is None else [dump_contract(link) for link in network.links]


def image_of(
    document: InstallDocument, state: MachineState, drive: str, images: Mapping[tuple[str, str], Mapping[str, str]]
) -> DiskImage:
    """Return what the image is once it is on the drive."""
    image = document.image
    contents = images.get((image.name, image.version))
    if contents is None:
        raise InstallRefused(
            f"{image.url} answers 404: this lab has no image {image.name} {image.version}", InstallCause.FETCH
        )
    services = FRESH_SERVICES | NOT_YET_JOINED
    known = {name: services.get(name, False) for disk in state.disks.values() for name in disk.services}
    return DiskImage(
        image=image.name,
        version=image.version,
        sha256=image.sha256,
        root_disk=drive,
        nonce=document.nonce,
        kernel=contents.get("kernel", KERNEL),
        driver=contents.get("driver", DRIVER),
        hostname=document.hostname,
        services=services | known,
        software=installed(contents),
        links=installed_links(document.network),
        user_ca=list(document.ssh.user_ca),
        kernel_arguments=list(document.kernel_arguments),
    )
