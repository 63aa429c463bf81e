"""Signals of the BMC: parts that it reports as critical, parts that are missing, and events in its log.

All but the roll-up come from the inventory, which is read less often: see `Observed.inventory.at`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconciler.health.table import Effect, HealthTable, table_of
from reconciler.health.xids import is_hardware
from reconciler.model.desired import Profile
from reconciler.model.observed import Answered, BmcEvent, Drive, Observed, RedfishInventory, Sensor, Silent, Xid
from reconciler.model.vocab import BootPhase, Health, Power

_FATAL = re.compile(r"\b(non-)?fatal\b", re.IGNORECASE)  # as the driver of NVSwitches says it
# A machine whose log nobody has read for longer is as one that is adopted: its old entries are not held against it.
LONGEST_AWAY = timedelta(days=14)
_NAMED = 4  # how many names a sentence lists

_OF_KIND: Mapping[str, str] = {
    "power_supply": "psu_failed",
    "fan": "fan_failed",
    "leak_detector": "leak",
    "dimm": "dimm_failed",
    "system": "subsystem_health",
    "chassis": "subsystem_health",
    "memory": "subsystem_health",
    "processor": "subsystem_health",
    "switch": "subsystem_health",
}
_IN_WORDS = {
    "psu_failed": "power supplies are critical",
    "fan_failed": "fans are critical",
    "leak": "leak detectors report a leak",
    "dimm_failed": "memory modules are critical",
    "subsystem_health": "boards, chassis, processors and switches are critical",
}
_COUNTS: Mapping[str, tuple[str, str, Callable[[RedfishInventory], int | None]]] = {
    "dimm_missing": ("dimms", "memory modules", lambda found: found.dimms),
    "drive_missing": ("drives", "drives", lambda found: None if found.drives is None else len(found.drives)),
    "nic_missing": ("nics", "network ports", lambda found: None if found.nics is None else len(found.nics)),
    "processor_missing": ("processors", "processors", lambda found: found.processors),
}

MISSING = frozenset(_COUNTS)  # signals of parts that are not there, and so have no serial number


def bmc_signals(profile: Profile, observed: Observed) -> Iterator[tuple[str, str]]:
    """Yield name and detail of each signal of the BMC, each name at most once. A silent BMC gives no signal."""
    hot = None if isinstance(observed.hot, Silent) else observed.hot.value
    if hot is not None and hot.health is Health.CRITICAL:
        yield "bmc_health", "the BMC rolls the health of the system up as critical"
    if isinstance(observed.inventory, Silent):
        return
    inventory = observed.inventory.value
    yield from _of_drives(inventory.drives or ())
    yield from _of_parts(inventory)
    yield from _of_sensors(inventory)
    yield from _of_events(inventory.events or (), table_of(profile))
    if _parts_are_visible(observed):
        yield from _missing(profile, inventory)


def unread_bmc_signals(observed: Observed, own_events: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the signals that this observation can neither confirm nor rule out.

    `own_events`: signals of the fleet's own, which are read from the log.
    """
    hot = None if isinstance(observed.hot, Silent) else observed.hot.value
    names = ["bmc_health"] if hot is None or hot.health is None else []
    if isinstance(observed.inventory, Silent):
        return (*names, *_OF_INVENTORY, *own_events)
    found = observed.inventory.value
    if found.drives is None:
        names += ["drive_failed", "drive_failing"]
    if found.sensors is None or "sensors" in found.unknown:
        names.append("sensor_critical")
    if found.events is None or "events" in found.unknown:
        names += ["dimm_ue", "bmc_event_critical", "board_xid", *own_events]
    if "events.boards" in found.unknown:
        names.append("board_xid")
    if found.dimms is None:
        names.append("dimm_failed")
    names += [name for kind, name in _OF_KIND.items() if found.parts is None or f"parts.{kind}" in found.unknown]
    there = _parts_are_visible(observed)
    names += [name for name, (_, _, count) in _COUNTS.items() if not there or count(found) is None]
    return tuple(dict.fromkeys(names))


_OF_INVENTORY = (
    *("drive_failed", "drive_failing", "sensor_critical", "dimm_ue", "bmc_event_critical", "board_xid"),
    *dict.fromkeys(_OF_KIND.values()),
    *_COUNTS,
)


def _parts_are_visible(observed: Observed) -> bool:
    """Return whether missing parts are evidence: many can't be seen while the machine is off or in POST (A10).

    Where the BMC shows no boot phase, a host that answers shows that the machine is past POST.
    """
    hot = None if isinstance(observed.hot, Silent) else observed.hot.value
    if hot is None or hot.power is not Power.ON:
        return False
    if hot.boot_phase is None:
        return isinstance(observed.host, Answered)
    return hot.boot_phase in (BootPhase.OS_BOOTING, BootPhase.OS_RUNNING)


def _of_drives(drives: Sequence[Drive]) -> Iterator[tuple[str, str]]:
    failed = [drive.id for drive in drives if drive.health is Health.CRITICAL]
    failing = [drive.id for drive in drives if drive.failing and drive.health is not Health.CRITICAL]
    if failed:
        yield "drive_failed", f"{len(failed)} of {len(drives)} drives are critical: {_listed(failed)}"
    if failing:
        yield "drive_failing", f"{len(failing)} of {len(drives)} drives predict their failure: {_listed(failing)}"


def _of_parts(inventory: RedfishInventory) -> Iterator[tuple[str, str]]:
    critical = [part for part in inventory.parts or () if part.health is Health.CRITICAL]
    if not critical:  # nearly always, and a fleet has millions of parts
        return
    for name, words in _IN_WORDS.items():
        ill = [part.id for part in critical if _OF_KIND.get(part.kind) == name]
        if ill:
            listed = sum(_OF_KIND.get(part.kind) == name for part in inventory.parts or ())
            yield name, f"{len(ill)} of {listed} {words}: {_listed(ill)}"


def _of_sensors(inventory: RedfishInventory) -> Iterator[tuple[str, str]]:
    """Yield a signal for critical sensors with a reading: BlueField shows Critical for a port without a reading.

    The sensor of a fan's speed has the name of the fan, and the fan's own signal reports it.
    """
    sensors = inventory.sensors or ()
    ill = [sensor for sensor in sensors if sensor.health is Health.CRITICAL and sensor.reading is not None]
    if not ill:
        return
    parts = {_folded(part.id) for part in inventory.parts or ()}
    ill = [sensor for sensor in ill if _folded(_place(sensor)) not in parts]
    if ill:
        shown = [f"{_place(sensor)} at {sensor.reading:g} {sensor.unit}".strip() for sensor in ill]
        yield "sensor_critical", f"{len(ill)} of {len(sensors)} sensors are critical: {_listed(shown)}"


def _place(sensor: Sensor) -> str:
    return f"{sensor.chassis}/{sensor.name}" if sensor.chassis else sensor.name


def _folded(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum() or letter == "/")


def late_events(observed: Observed, table: HealthTable, away_s: float) -> Iterator[tuple[str, str]]:
    """Yield name and detail of signals for entries of a BMC's log that nobody has read for so long."""
    if isinstance(observed.inventory, Answered):
        yield from _of_events(observed.inventory.value.events or (), table, away_s)


def _of_events(events: Iterable[BmcEvent], table: HealthTable, away_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Yield signals for events that are recent by the BMC's own clock, which may be wrong (pitfall B6).

    An inventory is no older than the least window (observation.inventoryMaxAge), so a reading sees each event while
    there is one at least in that time; and a log that nobody ever cleared does not condemn a node for an event of years
    ago. An uncorrectable error of unknown time is only reported, for a person to judge. `away_s`: for how long nobody
    has read the log.
    """
    open_ = [event for event in events if not event.settled]
    ue = [event for event in _recent(open_, "dimm_ue", table, least_s=away_s) if event.kind == "memory_ue"]
    critical = _recent(open_, "bmc_event_critical", table, least_s=away_s)
    reported = [
        event for event in critical if event.severity is Health.CRITICAL and event not in ue and _xid(event) is None
    ]
    reported += [event for event in open_ if event.age_s is None and event.kind == "memory_ue"]
    if ue:
        yield "dimm_ue", f"the BMC's log has {_events_text(ue, 'uncorrectable memory error')}"
    if reported:
        yield "bmc_event_critical", f"the BMC's log has {_events_text(reported, 'critical event')}"
    yield from _of_boards(_recent(open_, "board_xid", table, least_s=away_s))
    for name, text in table.own_events.items():
        if own := [event for event in _recent(open_, name, table, least_s=away_s) if text in event.message.casefold()]:
            yield name, f"the BMC's log has {_events_text(own, 'event')}"


def _of_boards(events: Iterable[BmcEvent]) -> Iterator[tuple[str, str]]:
    """Yield a signal for Xids and SXids in the log of a GPU baseboard that are evidence of broken hardware."""
    mine = [event for event in events if event.kind]  # a log that is flooded has hundreds of no kind
    found = [(event, xid) for event in mine if (xid := _xid(event)) is not None and is_hardware(xid)]
    if found:
        codes = sorted({xid.code for _, xid in found})
        kind = "SXid" if all(xid.switch for _, xid in found) else "Xid"
        many = f"{len(found)} {kind}s" if len(found) > 1 else f"an {kind}"
        yield "board_xid", f"the GPU baseboard's log has {many} ({', '.join(map(str, codes))}): {found[-1][0].message}"


def _xid(event: BmcEvent) -> Xid | None:
    """Return the Xid of a GPU, or the SXid of an NVSwitch, that an event tells of."""
    word, _, code = event.kind.partition("xid_")
    if word not in ("", "s") or not code.isdecimal():
        return None
    if not word:
        return Xid(int(code), "", 1)
    said = _FATAL.search(event.message)
    return Xid(int(code), "", 1, switch=True, fatal=None if said is None else not said[1])


@dataclass(frozen=True, slots=True)
class Logged:
    """The entries in the log of an event that was seen earlier. Both are False where it has none, or was not read."""

    is_open: bool = False
    is_settled: bool = False


def logged(signal: str, observed: Observed, table: HealthTable, since: datetime) -> Logged:
    """Return what has become of the entries of a signal that was seen at `since`, however old they are by now."""
    if isinstance(observed.inventory, Silent):
        return Logged()
    later_s = max(0.0, (observed.inventory.at - since).total_seconds())
    if table.effect_of(signal) is not Effect.REPORTS:
        later_s += LONGEST_AWAY.total_seconds()  # it may have been as old when it was first read
    found = _recent(observed.inventory.value.events or (), signal, table, later_s)
    mine = [event.settled for event in found if _is_of(event, signal, table)]
    return Logged(not all(mine), bool(mine) and all(mine))


def _is_of(event: BmcEvent, signal: str, table: HealthTable) -> bool:
    if signal in table.own_events:
        return table.own_events[signal] in event.message.casefold()
    if signal == "board_xid":
        return _xid(event) is not None
    return event.kind == "memory_ue" if signal == "dimm_ue" else event.severity is Health.CRITICAL


def _recent(
    events: Iterable[BmcEvent], signal: str, table: HealthTable, later_s: float = 0.0, least_s: float = 0.0
) -> list[BmcEvent]:
    """Return the events whose age is known and within the window of the signal, as of `later_s` ago.

    `least_s`: the least window.
    """
    window_s = max(table.window_s(signal), least_s) + later_s
    return [event for event in events if event.age_s is not None and event.age_s <= window_s]


def _events_text(events: Sequence[BmcEvent], what: str) -> str:
    last = events[-1]
    many = f"1 {what}" if len(events) == 1 else f"{len(events)} {what}s, the last"
    return f"{many}: {last.message or last.id} ({last.at or 'at an unknown time'})"


def _missing(profile: Profile, inventory: RedfishInventory) -> Iterator[tuple[str, str]]:
    for name, (field, words, count) in _COUNTS.items():
        wanted, found = getattr(profile.inventory, field), count(inventory)
        if wanted is not None and found is not None and found < wanted:
            yield name, f"{found} of {wanted} {words} are there"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
