"""Decode documents as parts with their health. Pure. An absent part is left out, whatever health it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from reconciler.drivers.redfish.fields import HEALTH, Document, absent, health, stated, text
from reconciler.model.observed import Part
from reconciler.model.vocab import Health

_EXCHANGED = frozenset({"dimm", "power_supply", "fan"})  # a person swaps them, and their serial numbers tell


def parts(
    kind: str, where: str, documents: Iterable[Document], judge: Callable[[Document], Health | None] = health
) -> list[Part]:
    """Return parts with unique names. `where`: the system or chassis that holds them; "" for systems and chassis."""
    found: list[Part] = []
    used: dict[str, int] = {}
    for document in documents:
        if absent(document):
            continue
        # Entries of the old Power and Thermal have a MemberId that counts, and names that may all be the same (HPE).
        name = text(document, "Id") or text(document, "Name") or text(document, "FanName") or text(document, "MemberId")
        name = f"{where}/{name or '?'}" if where else name or "?"
        used[name] = used.get(name, 0) + 1
        name = name if used[name] == 1 else f"{name} #{used[name]}"
        serial = stated(document, "SerialNumber") if kind in _EXCHANGED else None
        found.append(Part(kind, name, judge(document), serial))
    return found


def leak(detector: Document) -> Health | None:
    """Return a leak detector's health, the worse of its reading (DetectorState) and its own Status."""
    found = [HEALTH.get((text(detector, "DetectorState") or "").casefold()), health(detector)]
    return max((item for item in found if item is not None), key=list(Health).index, default=None)


def better(one: Sequence[Part], other: Sequence[Part]) -> Sequence[Part]:
    """Return the one of two lists of the same parts that has more criticals, then more health, then more parts.

    DGX lists its power supplies without any Status in PowerSubsystem; many list them in Power, too.
    """

    def rank(listed: Sequence[Part]) -> tuple[int, int, int]:
        judged = [part.health for part in listed if part.health is not None]
        return judged.count(Health.CRITICAL), len(judged), len(listed)

    return max(one, other, key=rank)
