"""Plan an install: the one disk that it writes, and the document that tells the installer (contract v1)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from reconciler.converge.actions.context import ActionContext, Stop
from reconciler.diff import normalise
from reconciler.gate.attestation.expected import is_measured
from reconciler.model.desired import DesiredImage, DiskLayout, RootDisk
from reconciler.model.install import (
    AttemptCredential,
    InstallDocument,
    InstallImage,
    Layout,
    MachineIdentity,
    SshTrust,
    dump_contract,
    install_network,
    load_contract,
)
from reconciler.model.install import RootDisk as DiskToWrite
from reconciler.model.install_progress import digest_of
from reconciler.model.network import attempt_network
from reconciler.model.observed import Drive, HostFacts, ImageIdentity, RedfishHot
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.ports import Installer
from reconciler.model.vocab import BootWay
from reconciler.planner.node.disks import matching_drives


@dataclass(frozen=True, slots=True)
class Install:
    """One attempt at writing an image."""

    token: str
    document: InstallDocument
    way: BootWay = BootWay.VIRTUAL_MEDIA

    @property
    def by_pxe(self) -> bool:
        return self.way is BootWay.PXE

    @property
    def nonce(self) -> str:
        return self.document.nonce

    def journaled(self) -> Mapping[str, Any]:
        """Return what another run needs to go on with it. The token opens the attempt, and is in no journal."""
        return {
            "attempt": digest_of(self.token),
            "nonce": self.nonce,
            "document": json.loads(dump_contract(self.document)),
            "way": self.way.value,
        }

    def is_still_meant(self, fresh: InstallDocument) -> bool:
        """Return whether this attempt installs what a fresh one would."""
        return self.document.model_copy(update={"nonce": ""}) == fresh.model_copy(update={"nonce": ""})


async def journaled_install(intent: Mapping[str, Any], installer: Installer) -> Install | None:
    """Return the attempt in an intent, of whatever run; None if there is none that can be gone on with.

    One that was withdrawn has no token: what it wrote can be judged, and it can't be served again.
    """
    try:
        document = load_contract(InstallDocument, json.dumps(intent["document"]))
        way = BootWay(intent.get("way", BootWay.VIRTUAL_MEDIA))
        return Install(await installer.token(str(intent["attempt"])), document, way)
    except (KeyError, ValueError):
        return None


@asynccontextmanager
async def withdrawn_after(ctx: ActionContext, token: str) -> AsyncIterator[None]:
    """Withdraw a document when the work with it has ended, well or not."""
    try:
        yield
    except Exception:  # not a cancellation: a run that is cut off leaves the document to the next one
        await ctx.installer.withdraw(token)
        raise
    await ctx.installer.withdraw(token)


def root_disk_rule(ctx: ActionContext) -> RootDisk | None:
    image = ctx.desired.profile.image
    return ctx.desired.root_disk or (image.root_disk if image is not None else None)


def target_drive(rule: RootDisk, drives: tuple[Drive, ...] | None) -> Drive:
    """Return the one drive that the rule matches. Raise Stop if none or several match, or it has no serial number."""
    if drives is None:
        raise Stop(Transient("the BMC does not list the drives"))
    found = matching_drives(rule, drives)
    if len(found) != 1:
        listed = ", ".join(f"{drive.id} ({drive.model}, {drive.serial})" for drive in found or drives)
        problem = f"{len(found)} drives match" if found else "no drive matches"
        raise Stop(Declined("root_disk", f"{problem} the root disk rule: {listed or 'the BMC lists none'}"))
    if found[0].serial is None:
        raise Stop(Declined("root_disk", f"drive {found[0].id} matches, but the BMC does not give its serial number"))
    return found[0]


def install_document(
    ctx: ActionContext, image: DesiredImage, drive: Drive, system: RedfishHot, nonce: str
) -> InstallDocument:
    """Return the document of one attempt. The machine is the one that the BMC shows now."""
    return InstallDocument(
        node=ctx.node,
        hostname=ctx.desired.hostname or ctx.node,
        nonce=nonce,
        machine=MachineIdentity(serial=system.serial or ctx.record.serial, uuid=system.uuid or ctx.record.uuid),
        image=InstallImage(
            name=image.name,
            version=image.version,
            url=image.url,
            sha256=image.sha256,
            format=image.format,
            size=image.size,
            signature=image.signature,
            key=image.key,
        ),
        root_disk=DiskToWrite(serial=drive.serial, wwn=drive.wwn),
        layout=_layout(image.layout),
        preserve=tuple(point.strip("/") for point in image.preserve),
        network=install_network(ctx.desired.network),
        ssh=SshTrust(user_ca=ctx.desired.profile.host.user_ca),
        kernel_arguments=image.kernel_arguments,
        attest=is_measured(ctx.desired.profile),
    )


def boot_credential(ctx: ActionContext) -> AttemptCredential | None:
    """Return how the installer reaches our server, which adds the URL. None: it asks DHCP."""
    if ctx.desired.network is None:
        return None
    return AttemptCredential(url="", **asdict(attempt_network(ctx.desired.network)))


def _layout(layout: DiskLayout | None) -> Layout | None:
    return None if layout is None else Layout(esp=layout.esp, root=layout.root, state=layout.state, data=layout.data)


def untold(facts: HostFacts) -> str:
    """Return why a host does not tell all of its image, as while it is busy after its boot; "" if it does."""
    return next((why for name, why in facts.unknown.items() if name.partition(".")[0] == "image"), "")


def fell_back(found: ImageIdentity | None, install: Install) -> str:
    """Return that the image was installed and the boot loader went back to the other slot; "" if that is not so."""
    image = install.document.image
    slot = None if found is None else found.slot
    if found is None or slot is None or slot.newer != f"{image.name} {image.version}":
        return ""
    return found.fallback


def judge_install(found: ImageIdentity, install: Install) -> Outcome:
    """Compare what a system with our nonce reports with the image and the drive that were meant."""
    image, drive = install.document.image, install.document.root_disk.serial
    wanted = {
        "image": (found.image, image.name),
        "version": (found.version, image.version),
        "sha256": (found.sha256, image.sha256),
        "root disk": (found.root_disk, drive),
        "booted disk": (found.booted_disk, drive),
    }
    wrong = [
        f"{name} is {value!r}, not {right!r}"
        for name, (value, right) in wanted.items()
        if value is None or right is None or normalise.text(value) != normalise.text(right)
    ]
    if wrong:
        return Permanent("installed, but " + "; ".join(wrong))
    return Done(f"{image.name} {image.version} on {drive}")
