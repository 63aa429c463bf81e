"""How makes of BMC differ, where the standard leaves it open or they leave the standard. One table.

Each entry names the pitfall that it answers. What can be probed (AllowableValues, the actions that are there,
SupportedApplyTimes, $expand) is probed and has no entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.drivers.redfish.fields import Document, member, text
from reconciler.model.vocab import BootPhase


@dataclass(frozen=True, slots=True)
class Quirks:
    serial: str = "SerialNumber"  # A13: the property that equals the serial of DMI
    pending_is_delta: bool = False  # A11, G3: Bios/Settings holds modified attributes only, and Bios shows them early
    restate_boot_mode: bool = False  # D3, D4: without BootSourceOverrideMode it flips, or the PATCH is refused
    clear_pending: str = ""  # G3: the OEM action of the settings object that drops what is pending
    firmware_id: re.Pattern[str] | None = None  # F12: Id of a running component; group 1 outlives its updates
    firmware_version: re.Pattern[str] | None = None  # F12: group 1 is what the vendor's download page says
    ignored_nics: frozenset[str] = frozenset()  # A15: the host's link to its own BMC
    stuck_at: frozenset[str] = frozenset()  # G2: a BootProgress that it also shows while the OS runs
    post_state: Mapping[str, BootPhase] = field(default_factory=dict)  # G2: Oem.<vendor>.PostState instead


_TABLE: Mapping[str, Quirks] = {
    "dell": Quirks(
        serial="SKU",  # SerialNumber is the board's
        pending_is_delta=True,
        clear_pending="#DellManager.ClearPending",
        firmware_id=re.compile(r"(?:Installed|Current)-[^-]+-.*?__(.+)"),  # Previous-... is the rollback image
    ),
    "hpe": Quirks(
        post_state={
            "PowerOff": BootPhase.OFF,
            "InPost": BootPhase.POST,
            "InPostDiscoveryComplete": BootPhase.POST,
        },  # FinishedPost says nothing about the OS
    ),
    "supermicro": Quirks(
        restate_boot_mode=True,
        firmware_version=re.compile(r"BIOS Date: \S+ Ver (\S+)"),
        ignored_nics=frozenset({"ToManager"}),
        stuck_at=frozenset({"SystemHardwareInitializationComplete"}),
    ),
    "asrockrack": Quirks(restate_boot_mode=True),
    "ami": Quirks(restate_boot_mode=True),
}
_STANDARD = Quirks()


def quirks_of(system: Document, root: Document) -> Quirks | None:
    """By the manufacturer, the root's Vendor or the Oem sections. None: nothing says who made it."""
    claims = [claim for claim in (text(system, "Manufacturer"), text(root, "Vendor")) if claim is not None]
    claims += [*member(system, "Oem"), *member(root, "Oem")]
    for claim in claims:
        words = re.split(r"[^a-z0-9]+", claim.casefold())
        for name, quirks in _TABLE.items():
            if name in words or name == "".join(words):
                return quirks
    return _STANDARD if claims else None
