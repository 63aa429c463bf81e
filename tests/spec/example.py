"""A spec of every kind that uses nearly every field which this version enforces; tests change one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reconciler.model.desired import Fleet
from reconciler.spec import check_spec, load_spec

DIRECTORY = Path(__file__).parent / "example"
FILES: Mapping[str, str] = {
    path.relative_to(DIRECTORY).as_posix(): path.read_text() for path in sorted(DIRECTORY.rglob("*")) if path.is_file()
}

Edit = tuple[str, str, str]  # file, old text, new text


def changed(*edits: Edit) -> dict[str, bytes]:
    """The files after the edits; each old text must occur exactly once. A new file has the old text ""."""
    files = dict(FILES)
    for name, old, new in edits:
        text = files.get(name, "")
        assert not old or text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
        files[name] = text.replace(old, new) if old else text + new
    return {name: text.encode() for name, text in files.items()}


def told(files: Mapping[str, bytes] | Path) -> list[str]:
    """Every diagnostic as it is printed; warnings are marked."""
    _, found = check_spec(files, directory="")
    return [f"warning: {one}" if one.severity == "warning" else str(one) for one in found]


def messages(*edits: Edit) -> list[str]:
    return told(changed(*edits))


def load(*edits: Edit) -> Fleet:
    return load_spec(changed(*edits), directory="")
