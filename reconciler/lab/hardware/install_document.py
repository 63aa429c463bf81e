"""Judge the document that an installer fetched for one machine: the drive to write, and the image that it will have."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

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


def refuse_loss(document: InstallDocument, old: DiskImage | None, drive: str) -> None:
    """Raise InstallRefused where a partition that is to be kept would be lost. A blank disk has none to lose."""
    if not document.preserve or old is None or old.layout == layout_of(document):
        return
    here, there = _partitions(old.layout), _partitions(layout_of(document))
    odd = sorted(name for name in here | there if here.get(name) != there.get(name))
    raise InstallRefused(
        f"{drive} does not have the layout: it differs at {', '.join(odd)}; {' and '.join(document.preserve)} would be "
        "lost, so nothing was written",
        InstallCause.LAYOUT,
    )


def make_anew(document: InstallDocument, disk: DiskImage) -> None:
    """Take away what is on partitions beside the slots that the document does not keep."""
    for path in disk.on_partitions().keys() - disk.on_partitions(document.preserve).keys():
        del disk.files[path]


def _partitions(layout: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return where each partition of a layout begins, and its size. Those of a foreign disk have names of their own."""
    if not layout:
        return {}
    root, verity = layout["root"], layout["root"] // 10
    sizes = {"esp": layout["esp"], "root-a": root, "verity-a": verity, "root-b": root, "verity-b": verity}
    sizes["state"] = layout["state"]
    if layout.get("data"):
        sizes["data"] = 0  # the rest of the disk
    starts = accumulate(sizes.values(), initial=0)
    return {name: (start, size) for (name, size), start in zip(sizes.items(), starts, strict=False)}


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
