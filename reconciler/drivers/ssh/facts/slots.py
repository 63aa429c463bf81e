"""Read which of two slots a system runs from. What was installed last may not have come up (boot counting)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.drivers.ssh.facts.system import image_of
from reconciler.model.gate import CommandResult
from reconciler.model.observed import ImageIdentity, Slot

# What installer/in_place.py starts on a node, beside what every system has.
PROGRAMS = ("zstd", "minisign", "sfdisk", "mcopy", "systemd-run")
_LACKS = "lacks "
_PARTS = ("esp", "root", "state", "data")
_COMMAND = f"""cat /proc/cmdline; PATH=$PATH:/usr/sbin:/sbin; found=
for slot in a b; do
  file=/etc/reconciler/slot-$slot.json; if [ -e $file ]; then cat $file || exit; found=1; fi
done
[ -n "$found" ] || exit 0
for program in {" ".join(PROGRAMS)}; do command -v $program >/dev/null || echo "{_LACKS}$program"; done
python3 -c 'import ssl' >/dev/null 2>&1 || echo "{_LACKS}python3"
"""


@dataclass(frozen=True, slots=True)
class Slots:
    """The records of slots, compared with the root that was booted. `running`: the image of that root."""

    noted: bool = False
    running: ImageIdentity | None = None


def parse_slots(answer: CommandResult) -> Parsed[Slots]:
    """Parse the kernel's command line, JSON objects, and lines that name programs."""
    arguments, _, rest = answer.stdout.partition("\n")
    records: list[Mapping[str, Any]] = []
    lacks: list[str] = []
    while rest := rest.lstrip():
        if rest.startswith(_LACKS):
            line, _, rest = rest.partition("\n")
            lacks += [name for name in (*PROGRAMS, "python3") if name == line.removeprefix(_LACKS).strip()]
            continue
        try:
            record, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            raise Unreadable(f"a record of a slot is no JSON: {excerpt(rest, 80)}") from None
        if not isinstance(record, dict):
            raise Unreadable("a record of a slot is no JSON object")
        records.append(record)
        rest = rest[end:]
    mine = (one for one in records if one.get("slot") in ("a", "b") and _boots(arguments.lower(), one.get("root")))
    running = next(mine, None)
    if running is None:
        return Parsed(Slots(bool(records)))
    slot = Slot(running["slot"], _sizes(running.get("layout")), None, tuple(lacks))
    return Parsed(Slots(True, replace(image_of(running), slot=slot)))


def _sizes(layout: object) -> Mapping[str, int]:
    table = layout if isinstance(layout, dict) else {}
    return {part: size for part in _PARTS if isinstance(size := table.get(part), int)}


def _boots(arguments: str, root: object) -> bool:
    """Return whether a kernel has this partition as its root (Discoverable Partitions Specification)."""
    if not isinstance(root, str) or len(root) != 36:
        return False
    root = root.lower()
    return f"partuuid={root}" in arguments or f"roothash={root.replace('-', '')}" in arguments


def running_image(last: ImageIdentity, slots: Slots | None) -> ImageIdentity:
    """Return the image that runs. `last`: the one that was installed last, by image.json."""
    if slots is None or not slots.noted:
        return last
    found = slots.running
    if found is None or found.slot is None:
        return ImageIdentity(None, None, None, None, None)
    newer = None if found.nonce == last.nonce or last.image is None else f"{last.image} {last.version}"
    return replace(found, slot=replace(found.slot, newer=newer))


SLOTS = Fact("slots", _COMMAND, parse_slots, ("image.slot",))
