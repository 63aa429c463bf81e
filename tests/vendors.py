"""Play trees of real BMCs, and write docs/reference/vendors.md: what the driver reads from each, and could write.

    make vendor-table TREES="NVIDIA/libredfish=~/libredfish/tests/mockups"

An argument is SOURCE=FOLDER. A tree is a folder of documents: index.json in a folder for each URI, as DMTF's Redfish
Mockup Creator leaves them, or files whose names have __ for the slashes. A FOLDER holds a tree, or trees.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reconciler.diff.boot_order import words
from reconciler.drivers.redfish import RedfishBmc
from reconciler.model.abilities import Abilities, Ability
from reconciler.model.observed import Answered, RedfishHot, RedfishInventory, Silent
from tests.drivers.redfish.bench import Bench, play
from tests.drivers.redfish.test_samples import as_bmc

PAGE: Final = Path(__file__).parents[1] / "docs/reference/vendors.md"


@dataclass(frozen=True, slots=True)
class Played:
    """One tree, as the driver read it."""

    name: str
    source: str
    hot: Answered[RedfishHot] | Silent
    inventory: Answered[RedfishInventory] | Silent

    @property
    def model(self) -> str:
        found = self.hot.value if isinstance(self.hot, Answered) else None
        maker = found.manufacturer or "" if found else ""
        return " ".join(filter(None, (maker.removeprefix("https://www."), found.model or "" if found else "")))

    @property
    def title(self) -> str:
        return f"{self.model} ({self.name})" if self.model else self.name


@dataclass(slots=True)
class Notes:
    """The reasons of blank cells, numbered."""

    reasons: dict[str, int] = field(default_factory=dict)

    def mark(self, why: str) -> str:
        return f"[{self.reasons.setdefault(why, len(self.reasons) + 1)}]"

    def lines(self) -> Iterator[str]:
        for why, number in self.reasons.items():
            yield f"{number}. {why}"


_WORDS = {"True": "on", "False": "off"}
Read = Callable[[RedfishHot, RedfishInventory], object]
# Each with the names under which `unknown` says why there is none.
READS: Mapping[str, tuple[tuple[str, ...], Read]] = {
    "serial": (("serial",), lambda hot, _: hot.serial and "yes"),
    "UUID": (("uuid",), lambda hot, _: hot.uuid and "yes"),
    "boot phase": (("boot_phase",), lambda hot, _: hot.boot_phase and hot.boot_phase.value),
    "override": (("boot_override",), lambda hot, _: hot.boot_override and hot.boot_override.enabled),
    "staged BIOS": (("pending_bios",), lambda hot, _: None if hot.pending_bios is None else "yes"),
    "BIOS": (("bios",), lambda _, inv: _count(inv.bios)),
    "secure boot": (
        ("secure_boot",),
        lambda _, inv: inv.secure_boot,
    ),
    "boot order": (("boot_order",), lambda _, inv: _kinds(inv)),
    "firmware": (("firmware",), lambda _, inv: _count(inv.firmware)),
    "log": (("events",), lambda _, inv: _count(inv.events)),
    "sensors": (("sensors",), lambda _, inv: _count(inv.sensors)),
    "DIMMs": (("dimms",), lambda _, inv: inv.dimms),
    "NICs": (("nics",), lambda _, inv: _count(inv.nics)),
    "drives": (("drives",), lambda _, inv: _count(inv.drives)),
    "parts": (("parts",), lambda _, inv: _count(inv.parts)),
    "components that sign": (("integrity",), lambda _, inv: _count(inv.integrity)),
}


def _count(found: Sequence[Any] | Mapping[Any, Any] | None) -> str | None:
    return None if found is None else str(len(found))


def _kinds(found: RedfishInventory) -> str | None:
    if found.boot_options is None:
        return None
    kinds = list(dict.fromkeys(words(found.boot_options)))
    return f"{len(found.boot_options)}: {', '.join(kinds)}"


# --- trees ---------------------------------------------------------------------------------------------------------


def trees(folder: Path) -> Iterator[Path]:
    """Yield the trees in a folder: itself, or its subfolders."""
    for place in (folder, *sorted(folder.iterdir())):
        if place.is_dir() and ((place / "redfish/v1").is_dir() or any(place.glob("*.json"))):
            yield place


async def _both(_: Bench, bmc: RedfishBmc) -> tuple[Any, Any]:
    return await bmc.hot(), await bmc.inventory()


def read_all(sources: Sequence[tuple[str, Path]]) -> list[Played]:
    """Read every tree of every source. A machine that comes twice, as in a sample of a tree, is read once."""
    found: list[Played] = []
    seen: set[object] = set()
    for source, folder in sources:
        for tree in trees(folder):
            hot, inventory = play(as_bmc(tree), _both, read_timeout=30)
            one = Played(tree.name, source, hot, inventory)
            key = (one.model, hot.value.serial or hot.value.uuid) if isinstance(hot, Answered) else tree.name
            if key not in seen:
                found.append(one)
            seen.add(key)
    return found


# --- the page ------------------------------------------------------------------------------------------------------


def page(found: Sequence[Played]) -> str:
    read = [one for one in found if isinstance(one.hot, Answered) and isinstance(one.inventory, Answered)]
    unread = [one for one in found if one not in read]
    reads, writes = Notes(), Notes()
    parts = [
        HEAD,
        "## What the driver reads\n",
        _table(["model", *READS], [[one.title, *_reads(one, reads)] for one in read]),
        *reads.lines(),
        "\n## What it could write\n",
        WRITES_HEAD,
        _table(
            ["model", *(ability.value.replace("_", " ") for ability in Ability), "override targets", "firmware by"],
            [[one.title, *_writes(one, writes)] for one in read],
        ),
        *writes.lines(),
        "\n## Sources\n",
        _table(["tree", "source"], [[one.name, one.source] for one in found]),
        *(f"- {one.name} answers nothing that can be used: {_plain(_why(one))}" for one in unread),
    ]
    return "\n".join(parts) + "\n"


HEAD = """# Vendors

Made from public trees of real BMCs: each is played, and read by the driver as in a pass. A tree is what one machine
with one firmware answered; another may differ, and `reconciler doctor` says what yours can do. To make the page again:

```console
$ make vendor-table TREES="NVIDIA/libredfish=libredfish/tests/mockups SOURCE=FOLDER"
```

A number in brackets says below the table why a cell is blank. "404" is about the tree: the BMC may have the document.
"""
WRITES_HEAD = """What the BMC says that it can write, which decides in `plan` before a node is drained: "yes", or why
not. "?" was not read, which rules nothing out. No write was sent to a machine for this.
"""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _reads(one: Played, notes: Notes) -> Iterator[str]:
    assert isinstance(one.hot, Answered)
    assert isinstance(one.inventory, Answered)
    unknown = {**one.inventory.value.unknown, **one.hot.value.unknown}
    for names, read in READS.values():
        value = read(one.hot.value, one.inventory.value)
        why = next((unknown[name] for name in names if name in unknown), "not given")
        yield notes.mark(_plain(why)) if value is None else _WORDS.get(str(value), str(value))


def _writes(one: Played, notes: Notes) -> Iterator[str]:
    assert isinstance(one.inventory, Answered)
    found = one.inventory.value.abilities or Abilities()
    for ability in Ability:
        why = found.lacks.get(ability.value)
        yield "?" if why is None else notes.mark(_plain(why)) if why else "yes"
    yield ", ".join(found.boot_targets or ()) or "any"
    yield ", ".join(found.firmware_ways or ()) or "-"


def _plain(why: str) -> str:
    if "HTTP 404" in why:
        return "404: the tree lacks the document"
    return " ".join(why.replace("|", "\\|").split())


def _why(one: Played) -> str:
    silent = next(reading for reading in (one.hot, one.inventory) if isinstance(reading, Silent))
    return silent.reason.value


def main(arguments: Sequence[str]) -> None:
    sources = []
    for argument in arguments:
        source, _, folder = argument.rpartition("=")
        sources.append((source or folder, Path(folder).expanduser()))
    if not sources:
        raise SystemExit(__doc__)
    PAGE.write_text(page(read_all(sources)))


if __name__ == "__main__":
    main(sys.argv[1:])
