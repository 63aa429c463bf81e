"""Differences between makes of BMC, as data, so that a lab can mix makes and a test can try each one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

BURST_S, FROZEN_S = 0.2, 1.0


class EtagStyle(StrEnum):
    """The ways in which BMCs handle ETags (pitfall A1)."""

    STRONG = "strong"
    WEAK = "weak"  # served as W/"...", but If-Match compares strongly: only the quoted part matches
    MISSING = "missing"
    EMPTY = "empty"  # the header is present but empty
    REFUSED = "refused"  # served, but every If-Match is answered with 412


class Silence(StrEnum):
    """The way in which a BMC does not answer. HANG costs the client its whole read timeout (A2)."""

    CLOSE = "close"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Quirks:
    # the protocol
    etags: EtagStyle = EtagStyle.STRONG
    compress: bool = False  # A1: gzip for clients that accept it, which makes ETags weak
    expand: bool = True  # $expand on collections
    error_info_as_list: bool = True  # A10: some send one object
    max_sessions: int = 8  # B1; 0 = it has no sessions, and takes Basic alone
    session_timeout_s: float = 1800.0  # of the fleet's time
    unreachable: Silence = Silence.CLOSE  # how the fault `bmc_unreachable` and a restart look
    unavailable_in_restart: bool = False  # 503 while the BMC restarts, instead of silence
    swallows_writes: bool = False  # A3: carries out writes and never answers, so that a write is ambiguous
    slow_writes_s: float = 0.0  # A3: delay of the answer to a write, in real time
    # A12: more requests, or writes, than this within BURST_S of real time freeze it for FROZEN_S; 0 = no limit
    most_requests: int = 0
    most_writes: int = 0
    # where it streams events, "" = nowhere, and to how many clients at once
    event_stream: str = "/redfish/v1/EventService/SSE"  # bmcweb and AMI
    most_event_streams: int = 10  # bmcweb, maxNoOfSSESubscriptions
    # accounts: NVIDIA/infra-controller-core sets the first two so on NVIDIA's trays, whose newer firmware refuses none
    locks_after: int = 4  # refused logins in a row; 0 = never
    locked_s: float = 600.0
    shortest_password: int = 8
    longest_password: int = 20  # IPMI's
    refuses_used_passwords: bool = False  # the present one and those before, as pam_pwhistory does
    password_refusal: str = ""  # the message that refuses each new password: InsufficientPrivilege, OperationNotAllowed
    # events that it posts: what its EventService lists to choose from ("types": EventTypes, "prefixes": registries, "":
    # nothing; "none": it posts none), how many subscriptions it keeps, and what becomes of one that it can't deliver
    event_posts: str = "prefixes"
    most_subscriptions: int = 20  # bmcweb, maxNoOfSubscriptions, and Dell's guide of Redfish for iDRAC
    undelivered: str = "terminates"  # or "suspends", after three tries
    # the system
    serial_in_sku: bool = False  # A13: SerialNumber is the board's serial, SKU the system's
    power_conflict: int = 409  # A7: status when already in the target power state (iDRAC 409, iLO 400)
    boot_progress: bool = True  # G2: older BMCs do not report it
    boot_progress_stuck: str = ""  # G2: the value shown from the end of POST on
    post_state: bool = False  # G2: Oem.Hpe.PostState instead
    boot_mode: str = ""  # a PATCH of the override without its mode: D4 "required" refuses it, D3 "flips" it to Legacy
    boot_aliases: bool = True  # most makes leave the Alias of boot options null (NVIDIA/libredfish, tests/mockups)
    boot_in_settings: bool = False  # A15: only the system's settings object takes the override (AMI)
    http_boot: str = ""  # HttpBootUri: "" it has none, "taken", or shown and "ignored" (D11)
    http_attribute: str = ""  # the BIOS attribute that holds the URI instead: HttpDev1Uri (Dell), UrlBootFile (HPE)
    indicator: str = "both"  # how the locator LED is shown: both, led (IndicatorLED alone), lit_at_rest, or no_blink
    # virtual media
    virtual_media: bool = True
    media_target: str = "Cd"  # D5: the boot target that finds virtual media, "Cd" or "UsbCd"
    media_under_system: bool = False  # E4: under Systems instead of Managers
    media_slot: str = "Cd"
    media_dummy: str = ""  # E4: the first slot, which accepts a disc that the machine then does not boot
    media_bare_slot: bool = False  # E4: one more slot, which comes first and can't insert anything
    media_suffix: str = ""  # E3: the required ending of a medium's URL, for instance ".iso"
    media_protocol_required: bool = False  # E3: TransferProtocolType must be given
    # BIOS settings and firmware
    settings_apply_time: bool = True  # G2: whether @Redfish.SettingsApplyTime is understood
    settings_complete: bool = False  # Bios/Settings shows all attributes, not just the pending ones
    settings_shown_early: bool = False  # A11: Bios shows pending values as if they were in force
    settings_clearable: bool = False  # G3: an OEM action drops pending values
    bios_version_decorated: bool = False  # F12: BIOS Date: <date> Ver <version>
    task_late_s: float = 0.0  # A5: how long a new task stays unknown, in fleet time
    task_words: Mapping[str, str] = field(default_factory=dict)  # A6: its own names of task states
    firmware_sent: bool = False  # no SimpleUpdate: the file is sent to MultipartHttpPushUri, as to OpenBMC of NVIDIA
    firmware_ids_carry_versions: bool = False  # F12: Installed-<n>-<version>__<id>, also for the rollback image


STANDARD = Quirks()
_MAKES = {
    "supermicro": Quirks(boot_aliases=False, settings_complete=True),
    "dell": Quirks(
        event_stream="/redfish/v1/SSE",
        event_posts="types",
        undelivered="suspends",  # dell/iDRAC-Redfish-Scripting#370
        most_event_streams=2,  # Dell, "Receiving telemetry reports": at most 2 SSE connections at one time
        indicator="lit_at_rest",
        boot_aliases=False,
        etags=EtagStyle.MISSING,
        serial_in_sku=True,
        settings_shown_early=True,
        settings_clearable=True,
        firmware_ids_carry_versions=True,
    ),
    "hpe": Quirks(
        event_posts="types",  # HPE, "iLO 5 Event service": by EventTypes, not by RegistryPrefixes
        indicator="no_blink",
        boot_aliases=False,
        etags=EtagStyle.WEAK,
        power_conflict=400,
    ),
    "nvidia": Quirks(boot_in_settings=True, settings_complete=True),
}


def quirks_of_make(manufacturer: str) -> Quirks:
    words = manufacturer.casefold().replace(".", " ").split()
    return next((quirks for make, quirks in _MAKES.items() if make in words), STANDARD)
