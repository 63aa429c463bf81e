"""How one make of BMC differs from another. Values, so that a lab can mix makes and a test can try each one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EtagStyle(StrEnum):
    """The ways in which BMCs handle ETags (pitfall A1)."""

    STRONG = "strong"
    WEAK = "weak"  # served as W/"...", but If-Match compares strongly: only what is between the quotes matches
    MISSING = "missing"
    EMPTY = "empty"  # the header is there, with nothing in it
    REFUSED = "refused"  # served, but any If-Match at all is answered with 412


class Silence(StrEnum):
    """What a client sees of a BMC that does not answer. HANG costs it its whole read timeout (A2)."""

    CLOSE = "close"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Quirks:
    # the protocol
    etags: EtagStyle = EtagStyle.STRONG
    compress: bool = False  # A1: gzip for those who accept it, which makes ETags weak
    expand: bool = True  # $expand on collections
    error_info_as_list: bool = True  # A10: some send one object
    max_sessions: int = 8  # B1
    session_timeout_s: float = 1800.0  # of the fleet's time
    unreachable: Silence = Silence.CLOSE  # how the fault `bmc_unreachable` and a restart look
    unavailable_in_restart: bool = False  # 503 while the BMC restarts, instead of silence
    swallows_writes: bool = False  # A3: does as told and never says so: a write is ambiguous
    # the system
    serial_in_sku: bool = False  # A13: SerialNumber is the board's
    power_conflict: int = 409  # A7: status when already in the target power state (iDRAC 409, iLO 400)
    boot_progress: bool = True  # G2: older BMCs do not report it
    boot_in_settings: bool = False  # A15: the override is taken by the system's settings object alone (AMI)
    # virtual media
    media_target: str = "Cd"  # D5: the boot target that finds virtual media, "Cd" or "UsbCd"
    media_under_system: bool = False  # E4: under Systems instead of Managers
    media_bare_slot: bool = False  # E4: one more slot, which comes first and can't insert anything
    media_suffix: str = ""  # E3: what a medium's URL must end in, for instance ".iso"
    media_protocol_required: bool = False  # E3: TransferProtocolType must be given
    # BIOS settings and firmware
    settings_apply_time: bool = True  # G2: whether @Redfish.SettingsApplyTime is understood
    settings_complete: bool = False  # Bios/Settings shows all attributes, not just the pending ones
    settings_shown_early: bool = False  # A11: Bios shows pending values as if they were in force
    settings_clearable: bool = False  # G3: an OEM action drops what is pending
    firmware_ids_carry_versions: bool = False  # F12: Installed-<n>-<version>__<id>, and the same of the rollback image


STANDARD = Quirks()
_MAKES = {
    "supermicro": Quirks(settings_complete=True),
    "dell": Quirks(
        etags=EtagStyle.MISSING,
        serial_in_sku=True,
        settings_shown_early=True,
        settings_clearable=True,
        firmware_ids_carry_versions=True,
    ),
    "hpe": Quirks(etags=EtagStyle.WEAK, power_conflict=400),
    "nvidia": Quirks(boot_in_settings=True, settings_complete=True),
}


def quirks_of_make(manufacturer: str) -> Quirks:
    words = manufacturer.casefold().replace(".", " ").split()
    return next((quirks for make, quirks in _MAKES.items() if make in words), STANDARD)
