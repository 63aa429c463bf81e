"""Wheels of packages that are installed here, so that pip installs them elsewhere without a network."""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(*requirements: str) -> Iterator[importlib.metadata.Distribution]:
    """What pip would install for them on this machine, each once."""
    todo, seen = [Requirement(one) for one in requirements], set[tuple[str, str]]()
    while todo:
        wanted = todo.pop()
        for extra in ("", *wanted.extras):
            if (key := (canonicalize_name(wanted.name), extra)) in seen:
                continue
            seen.add(key)
            found = importlib.metadata.distribution(wanted.name)
            listed = [Requirement(one) for one in found.requires or ()]
            todo += [one for one in listed if one.marker is None or one.marker.evaluate({"extra": extra})]
            if not extra:
                yield found


def write_wheel(found: importlib.metadata.Distribution, folder: Path) -> None:
    """Pack it again: its files but those that pip made, such as the programs beside the interpreter."""
    said = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2].split("-") for line in said if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = f"{found.name.replace('-', '_').replace('.', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for file in found.files or ():
            made_here = file.parts[0] == ".." or file.suffix == ".pyc" or file.name in ("INSTALLER", "REQUESTED")
            place = Path(str(found.locate_file(file)))
            if not made_here and place.is_file():
                wheel.write(place, str(file))


def without_network(folder: Path) -> dict[str, str]:
    """The variables by which pip looks into this folder alone."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
