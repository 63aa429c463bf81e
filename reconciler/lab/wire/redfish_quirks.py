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
    etags: EtagStyle = EtagStyle.STRONG
    compress: bool = False  # A1: gzip for those who accept it, which makes ETags weak
    max_sessions: int = 8  # B1
    session_timeout_s: float = 1800.0  # of the fleet's time
    unreachable: Silence = Silence.CLOSE  # how the fault `bmc_unreachable` and a restart look
    unavailable_in_restart: bool = False  # 503 while the BMC restarts, instead of silence
    swallows_writes: bool = False  # A3: does as told and never says so: a write is ambiguous
    media_target: str = "Cd"  # D5: the boot target that finds virtual media, "Cd" or "UsbCd"
    media_under_system: bool = False  # E4: virtual media under Systems instead of Managers
    media_bare_slot: bool = False  # E4: one more slot, which comes first and can't insert anything
    media_suffix: str = ""  # E3: what a medium's URL must end in, for instance ".iso"
    media_protocol_required: bool = False  # E3: TransferProtocolType must be given
    power_conflict: int = 409  # A7: status when already in the target power state (iDRAC 409, iLO 400)
    error_info_as_list: bool = True  # A10: some send one object
    boot_progress: bool = True  # G2: older BMCs do not report it
    settings_apply_time: bool = True  # G2: whether @Redfish.SettingsApplyTime is understood
    settings_complete: bool = False  # Bios/Settings shows all attributes, not just the pending ones
    expand: bool = True  # $expand on collections
