"""Get the files that firmware is flashed from, with their digests verified before a node leaves service for them."""

from __future__ import annotations

from reconciler.model.desired import Desired, DesiredFirmware
from reconciler.model.errors import DriverError
from reconciler.model.plan import NodePlan
from reconciler.model.ports import FirmwareFile, FirmwareFiles
from reconciler.model.vocab import VerifiedBy
from reconciler.planner.node.actions import spec_of


async def firmware_file(files: FirmwareFiles, item: DesiredFirmware) -> FirmwareFile:
    """Return the file of a component that has a URL. Raise DriverError if it is not the one that the spec means."""
    assert item.url is not None
    if item.verified_by is VerifiedBy.BMC or item.sha256 is None:
        return FirmwareFile(item.url)
    return await files.fetch(item.url, item.sha256)


async def unfit_firmware(files: FirmwareFiles, desired: Desired, plan: NodePlan) -> str:
    """Return why a file that this plan flashes can't be flashed; "" if all can."""
    flashed = {action.target for action in plan.actions if spec_of(action.name).flashes}
    for item in desired.profile.firmware:
        if item.component in flashed and item.url is not None:
            try:
                await firmware_file(files, item)
            except DriverError as error:
                return f"firmware of {item.component}: {error}"
    return ""
