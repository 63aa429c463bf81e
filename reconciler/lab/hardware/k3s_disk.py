"""Read what of K3s is on a disk of the lab: options, taints, and where it has its state."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from reconciler.lab.hardware.k3s_site import option
from reconciler.model.k3s import BINARY, DATA, DATASTORE, ENDPOINT, JOIN, SECRETS, SERVER_TOKEN
from reconciler.model.k3s_datastore import DATABASE_LINE, SOURCES, SQLITE
from reconciler.model.observed import Taint

if TYPE_CHECKING:
    from reconciler.lab.hardware.state import DiskImage


def first_taints(disk: DiskImage) -> tuple[Taint, ...]:
    """Return the taints with which K3s registers a node, and which it never sets on one that is registered."""
    for line in disk.files.get(JOIN, "").splitlines():
        if line.startswith("node-taint: "):
            parts = (text.partition("=") for text in json.loads(line.partition(": ")[2]))
            return tuple(Taint(key, value.partition(":")[0], value.partition(":")[2]) for key, _, value in parts)
    return ()


def secret_options(disk: DiskImage) -> tuple[str, ...]:
    """Return the options that the file of secrets holds, in order."""
    lines = disk.files.get(SECRETS, "").splitlines()
    return tuple(sorted(line.partition(":")[0] for line in lines if ": " in line and line[0] != "#"))


def has_k3s(disk: DiskImage) -> bool:
    """Return whether the fact of K3s looks any further: the program is there, or a folder of its data."""
    return BINARY in disk.files or any(path.startswith(f"{DATA}/") for path in disk.files)


def state_lines(disk: DiskImage) -> list[str]:
    """Return the lines of STATE. No process has an environment of its own in the lab."""
    found = {"datastore": DATASTORE, "sqlite": SQLITE, "began": SERVER_TOKEN}
    lines = [word for word, path in found.items() if path in disk.files]
    for line in disk.files.get(SECRETS, "").splitlines():
        if line.startswith(DATABASE_LINE):
            lines.append(f"database {line.removeprefix(DATABASE_LINE)}")
    for path in (one for source in SOURCES for one in sorted(disk.files) if fnmatch(one, source)):
        set_there = [one.lower() for one in disk.files[path].splitlines() if not one.lstrip().startswith("#")]
        if any("datastore-endpoint" in one or "datastore_endpoint" in one for one in set_there):
            lines.append(f"endpoint {path}")
        folders = [one for one in set_there if "data-dir" in one or "data_dir" in one]
        if any(not one.rstrip(" \"'").endswith(DATA) for one in folders):
            lines.append(f"data-dir {path}")
    return lines


def same_place(disk: DiskImage, place: str) -> str:
    """Return what SAME says of a place."""
    named = any(line.startswith(f"{ENDPOINT}: ") for line in disk.files.get(SECRETS, "").splitlines())
    value = option(disk, ENDPOINT) if named else ""
    if DATASTORE in disk.files:
        return "other"
    if not value:
        return "none"
    head, found, tail = value.partition(place)
    within = bool(found) and bool(head) and not (head[-1].isalnum() or head[-1] in ".-")
    return "same" if within and (not tail or tail[0] in "?,") else "other"
