"""The files of a spec, before and after edits."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.model.errors import Position
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.edit import YamlText
from reconciler.strict_yaml.parse import Steps, parse_yaml


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a value: its file, the number of its document, and the steps to it."""

    file: str
    document: int
    steps: Steps


class SpecFiles:
    """The files of a spec by path below its directory. `edited` has the texts of those that were changed."""

    def __init__(self, files: Mapping[str, bytes], directory: str) -> None:
        self.original = files
        self.directory = directory
        self.edited: dict[str, str] = {}
        self._tree = SpecTree(files, directory)
        self._names = {str(self._tree.where(name)): name for name in files}
        self._parsed: dict[str, YamlText] = {}

    def text(self, name: str) -> str:
        return self.edited[name] if name in self.edited else self._tree.text(name)

    def yaml(self, name: str) -> YamlText:
        if name not in self._parsed:
            self._parsed[name] = YamlText(self.text(name), name)
        return self._parsed[name]

    def write(self, name: str, text: str) -> None:
        self.original.get(name)  # read it before the edit, to tell later whether somebody else has changed the file
        self.edited[name] = text
        self._parsed.pop(name, None)

    def contents(self) -> Mapping[str, bytes]:
        edited = {name: text.encode() for name, text in self.edited.items()}
        return ChainMap(edited, self.original)  # type: ignore[arg-type]  # only the first map is ever written to

    def yaml_names(self) -> list[str]:
        return self._tree.yaml_names()

    def place(self, at: Position) -> Location:
        """Return the location of the value that has this position before any edit."""
        name = self._names[at.file]
        for number, document in enumerate(parse_yaml(self._tree.text(name), at.file)[0]):
            for steps, found in document.values.items():
                if found == at:
                    return Location(name, number, steps)
        raise KeyError(at)

    def kind(self, place: Location) -> str:
        """Return the kind of the resource that holds the location."""
        return str(self.yaml(place.file).value(place.document, ("kind",)))

    def pool(self, name: str) -> Location:
        """Return the location of a NodePool."""
        for file in self.yaml_names():
            for number, data in self.yaml(file).resources():
                if data.get("kind") == "NodePool" and data["metadata"]["name"] == name:
                    return Location(file, number, ())
        raise KeyError(name)

    def diff(self, prefix: str) -> Iterator[str]:
        """Yield the lines of a unified diff for `patch` or `git apply`. `prefix` begins its paths."""
        for name in sorted(self.edited):
            before, after = self._tree.text(name), self.edited[name]
            lines = difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                f"a/{prefix}{name}",
                f"b/{prefix}{name}",
            )
            for line in lines:
                yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
