"""How one make of BMC differs from another. Values, so that a lab can mix makes and a test can try each one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

BURST_S, FROZEN_S = 0.2, 1.0


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
    slow_writes_s: float = 0.0  # A3: so late comes the answer to a write, in real time
    # A12: more than so many requests, or writes, within BURST_S of real time freeze it for FROZEN_S; 0 = any number
    most_requests: int = 0
    most_writes: int = 0
    # the system
    serial_in_sku: bool = False  # A13: SerialNumber is the board's
    power_conflict: int = 409  # A7: status when already in the target power state (iDRAC 409, iLO 400)
    boot_progress: bool = True  # G2: older BMCs do not report it
    boot_progress_stuck: str = ""  # G2: what it shows from the end of POST on
    post_state: bool = False  # G2: Oem.Hpe.PostState instead
    boot_mode: str = ""  # a PATCH of the override without its mode: D4 "required" refuses it, D3 "flips" it to Legacy
    manager_nic: bool = False  # A15: the host's link to its own BMC is one of its interfaces
    boot_in_settings: bool = False  # A15: the override is taken by the system's settings object alone (AMI)
    # virtual media
    media_target: str = "Cd"  # D5: the boot target that finds virtual media, "Cd" or "UsbCd"
    media_under_system: bool = False  # E4: under Systems instead of Managers
    media_slot: str = "Cd"
    media_dummy: str = ""  # E4: the first slot, which takes a disc that the machine then does not boot from
    media_bare_slot: bool = False  # E4: one more slot, which comes first and can't insert anything
    media_suffix: str = ""  # E3: what a medium's URL must end in, for instance ".iso"
    media_protocol_required: bool = False  # E3: TransferProtocolType must be given
    # BIOS settings and firmware
    settings_apply_time: bool = True  # G2: whether @Redfish.SettingsApplyTime is understood
    settings_complete: bool = False  # Bios/Settings shows all attributes, not just the pending ones
    settings_shown_early: bool = False  # A11: Bios shows pending values as if they were in force
    settings_clearable: bool = False  # G3: an OEM action drops what is pending
    bios_version_decorated: bool = False  # F12: BIOS Date: <date> Ver <version>
    task_late_s: float = 0.0  # A5: so long is a new task unknown, in the fleet's time
    task_words: Mapping[str, str] = field(default_factory=dict)  # A6: its own words for states of tasks
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
