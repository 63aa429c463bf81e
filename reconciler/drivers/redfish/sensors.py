"""Decode documents of chassis as sensors. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.drivers.redfish.fields import Document, absent, health, number, objects, state, text
from reconciler.model.observed import Sensor

_ABSOLUTE_ZERO = -273.15
_KINDS = {
    "Temperature": ("temperature", "C"),
    "Rotational": ("fan", "RPM"),
    "Power": ("power", "W"),
    "Voltage": ("voltage", "V"),
}
_TYPE = re.compile(r"[A-Z][A-Za-z]+")  # one of Redfish's
_FAN_UNITS = {"RPM": "RPM", "Percent": "%"}
_UNREADABLE = -524288.0  # what NVIDIA's boards show of a sensor that they can't read


def of_thermal(thermal: Document) -> Iterator[Sensor]:
    for item in objects(thermal, "Temperatures"):
        yield from _sensor(item, "temperature", "ReadingCelsius", "C")
    for item in objects(thermal, "Fans"):
        yield from _sensor(item, "fan", "Reading", _FAN_UNITS.get(text(item, "ReadingUnits") or "", ""))


def of_power(power: Document) -> Iterator[Sensor]:
    for item in objects(power, "PowerControl"):
        yield from _sensor(item, "power", "PowerConsumedWatts", "W", stateless="Status" not in item)
    for item in objects(power, "PowerSupplies"):
        reading = "PowerOutputWatts" if "PowerOutputWatts" in item else "LastPowerOutputWatts"
        yield from _sensor(item, "power", reading, "W")
    for item in objects(power, "Voltages"):
        yield from _sensor(item, "voltage", "ReadingVolts", "V")


def of_resource(document: Document) -> Iterator[Sensor]:
    """Decode a Sensor resource. A number without a ReadingType is no reading; many sensors have only a health."""
    word = text(document, "ReadingType") or ""
    if word == "Percent" and text(document, "PhysicalContext") == "Fan":
        kind, unit = "fan", "%"
    elif _TYPE.fullmatch(word):
        kind, unit = _KINDS.get(word) or (word.lower(), text(document, "ReadingUnits") or "")
    else:
        kind, unit = "unknown", ""
    yield from _sensor(document, kind, "Reading" if kind != "unknown" else "", unit)


def merged(chassis: str, older: Iterable[Sensor], newer: Iterable[Sensor]) -> tuple[Sensor, ...]:
    """Merge the sensors of one chassis. `older`: from Thermal and Power; `newer`: Sensor resources.

    Many BMCs list a sensor in both, under the same name. Duplicate names get a number.
    """
    rows = list(older)
    known = {(_folded(row.name), row.kind): at for at, row in enumerate(rows)}
    for row in newer:
        at = known.get((_folded(row.name), row.kind))
        if at is None:
            rows.append(row)
        elif rows[at].health is None:
            rows[at] = row
    used: dict[str, int] = {}
    found = []
    for row in rows:
        used[row.name] = used.get(row.name, 0) + 1
        name = row.name if used[row.name] == 1 else f"{row.name} #{used[row.name]}"
        found.append(replace(row, name=name, chassis=chassis))
    return tuple(found)


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _sensor(item: Document, kind: str, reading: str, unit: str, *, stateless: bool = False) -> Iterator[Sensor]:
    """Decode a sensor. A reading counts only while the sensor is enabled, unless it is `stateless` (no Status)."""
    name = text(item, "Name") or text(item, "FanName") or text(item, "MemberId") or text(item, "Id")
    if name is None or absent(item):
        return
    value = number(item, reading) if state(item) == "Enabled" or stateless else None
    yield Sensor(name, kind, None if value is None or _implausible(item, kind, value) else value, unit, health(item))


def _implausible(item: Document, kind: str, value: float) -> bool:
    """Say whether a value is outside of the sensor's own range, or physically impossible."""
    if value == _UNREADABLE:
        return True
    lows = [number(item, name) for name in ("ReadingRangeMin", "MinReadingRange", "MinReadingRangeTemp")]
    highs = [number(item, name) for name in ("ReadingRangeMax", "MaxReadingRange", "MaxReadingRangeTemp")]
    floor = _ABSOLUTE_ZERO if kind == "temperature" else (0.0 if kind == "fan" else float("-inf"))
    low = max([floor, *(bound for bound in lows if bound is not None)])
    high = min((bound for bound in highs if bound is not None), default=float("inf"))
    return not low <= value <= high if low < high else value < floor
