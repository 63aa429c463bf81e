"""Set values in the text of a YAML file and keep the rest of the text to the byte.

ruamel.yaml's own round trip writes a file anew: it keeps comments, but changes indentation, blanks and line breaks of
lines that nobody edited. So its parser gives the position of each value, and only the values that change are replaced:
a diff shows the intended change and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.model.errors import Refused
from reconciler.strict_yaml.parse import Steps, UnreadableFile, parse_yaml

_Splice = tuple[int, int, str]

_NUMERIC: Final = re.compile(r"[-+]?[\d._]+([eE][-+]?\d+)?")
_ADDRESS: Final = re.compile(r"\d+(\.\d+){3}(:\d+)?")
_YAML_1_1: Final = {"y", "n", "yes", "no", "on", "off"}  # text in YAML 1.2, true or false in YAML 1.1


@dataclass(slots=True)
class _TextSpan:
    """The offsets of a value in the text. A block ends with its last value, not with the comments after it."""

    kind: str  # scalar | mapping | sequence | alias
    start: int
    end: int
    flow: bool = False
    style: str = ""
    children: list[tuple[str | int, _TextSpan | None, _TextSpan]] = field(default_factory=list)

    def child(self, step: str | int) -> _TextSpan | None:
        return next((value for name, _, value in self.children if name == step), None)

    def key(self, step: str | int) -> _TextSpan | None:
        return next((key for name, key, _ in self.children if name == step), None)


class YamlText:
    """The text of one YAML file. It is immutable: each edit returns a new text."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self._file = file
        self._lines = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]
        self._roots = list(self._documents())
        self._data = [document.data for document in parse_yaml(text, file)[0]]

    # --- reading -------------------------------------------------------------------------------------------------

    def resources(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the documents that are mappings, each with its number in the file."""
        return [(number, data) for number, data in enumerate(self._data) if isinstance(data, dict)]

    def value(self, document: int, steps: Steps) -> Any:
        value = self._data[document]
        for step in steps:
            value = value[step]
        return value

    def has(self, document: int, steps: Steps) -> bool:
        try:
            self.value(document, steps)
        except (KeyError, IndexError, TypeError):
            return False
        return True

    def _documents(self) -> Iterator[_TextSpan]:
        events = iter(YAML(typ="safe", pure=True).parse(self.text))
        for event in events:
            if isinstance(event, DocumentStartEvent):
                yield self._spot(next(events), events)

    def _offset(self, mark: Any) -> int:
        return int(self._lines[mark.line] + mark.column) if mark.line < len(self._lines) else len(self.text)

    def _spot(self, event: Any, events: Iterator[Any]) -> _TextSpan:
        start, end = self._offset(event.start_mark), self._offset(event.end_mark)
        if isinstance(event, AliasEvent):
            return _TextSpan("alias", start, end)
        if isinstance(event, ScalarEvent):
            # A block scalar ends where the next token begins.
            kept = len(self.text[start:end].rstrip()) if event.style in {"|", ">"} else end - start
            return _TextSpan("scalar", start, start + kept, style=event.style or "")
        mapping = isinstance(event, MappingStartEvent)
        assert mapping or isinstance(event, SequenceStartEvent)
        spot = _TextSpan("mapping" if mapping else "sequence", start, start, flow=bool(event.flow_style))
        while not isinstance(event := next(events), MappingEndEvent | SequenceEndEvent):
            key = self._spot(event, events) if mapping else None
            child = self._spot(next(events), events) if mapping else self._spot(event, events)
            step = str(event.value) if mapping else len(spot.children)
            spot.children.append((step, key, child))
        if spot.flow:
            spot.end = self._offset(event.end_mark)
        else:
            spot.end = max((value.end for _, _, value in spot.children), default=start)
        return spot

    # --- editing -------------------------------------------------------------------------------------------------

    def set(self, document: int, values: Mapping[Steps, Any], *, before: Collection[str] = ()) -> YamlText:
        """Return the text with these values set, by the steps to each.

        Missing mappings and lists on the way are added, ahead of the keys in `before`; a number beyond the end of a
        list adds an element. An alias on the way is written out, so that nothing changes at its anchor.
        """
        splices: list[_Splice] = []
        self._merge(self._roots[document], self._data[document], _nested(values), before, splices)
        return self._spliced(splices)

    def split(self, document: int, steps: Steps, elements: Mapping[int, Sequence[Mapping[str, str]]]) -> YamlText:
        """Return the text with some elements of the list at `steps` repeated.

        `elements` gives, by index, one mapping for each copy: the texts that the copy has at some of its keys.
        """
        splices = []
        owner = self._at(document, steps)
        for index, parts in elements.items():
            spot = owner.children[index][2]
            start = spot.start if owner.flow else self.text.rindex("-", 0, spot.start)
            end = spot.end if owner.flow else self._line_end(spot.end)
            between = ", " if owner.flow else "\n" + " " * self._column(start)
            pieces = [self._piece(spot, start, end, part) for part in parts]
            splices.append((start, end, between.join(pieces)))
        return self._spliced(splices)

    def _piece(self, spot: _TextSpan, start: int, end: int, part: Mapping[str, str]) -> str:
        """Return the text of a mapping with the texts at some keys replaced."""
        if spot.kind == "alias":
            raise Refused(f"{self._file}: an entry is an alias, and can't be split; write it out first")
        splices = []
        for key, text in part.items():
            child = spot.child(key)
            assert child is not None, key
            splices.append((child.start, child.end, scalar(text, flow=spot.flow, style=child.style)))
        piece = self.text[start:end]
        for at, to, text in sorted(splices, reverse=True):
            piece = piece[: at - start] + text + piece[to - start :]
        return piece

    def _at(self, document: int, steps: Steps) -> _TextSpan:
        spot = self._roots[document]
        for step in steps:
            child = spot.child(step)
            if child is None:
                raise KeyError(step)
            spot = child
        return spot

    def _spliced(self, splices: Sequence[_Splice]) -> YamlText:
        """Apply the splices. Of two insertions at one place, the first in the list comes first in the text."""
        text = self.text
        for _, (start, end, new) in sorted(enumerate(splices), key=lambda one: (one[1][0], one[0]), reverse=True):
            text = text[:start] + new + text[end:]
        return YamlText(text, self._file)

    def _merge(
        self, spot: _TextSpan, data: Any, tree: _NestedValues, before: Collection[str], splices: list[_Splice]
    ) -> None:
        new: dict[str | int, Any] = {}
        for step, value in tree.items():
            child = spot.child(step)
            if child is None:
                new[step] = _plain(value)
            elif child.kind == "alias":
                splices.append(self._replaced(child, _merged(data[step], value), spot.key(step), spot.flow))
            elif isinstance(value, _NestedValues) and child.kind != "scalar":
                self._merge(child, data[step], value, before, splices)
            elif not isinstance(value, _NestedValues) or data[step] is None:
                splices.append(self._replaced(child, _plain(value), spot.key(step), spot.flow))
            else:
                raise Refused(f"{self._file}: {step} is {data[step]!r}, which can't hold other values; edit it by hand")
        if new:
            splices.append(self._insertion(spot, new, before))

    def _replaced(self, spot: _TextSpan, value: Any, key: _TextSpan | None, flow: bool) -> _Splice:
        if spot.start == spot.end:  # nothing follows the colon
            return spot.start, spot.end, " " + inline(value, flow=flow)
        if spot.kind in {"mapping", "sequence"} and not spot.flow and key is not None:  # a block begins below its key
            return self.text.index(":", key.end) + 1, spot.end, " " + inline(value, flow=flow)
        return spot.start, spot.end, inline(value, flow=flow or spot.flow, style=spot.style)

    def _insertion(self, spot: _TextSpan, new: Mapping[str | int, Any], before: Collection[str]) -> _Splice:
        first = next((at for at, (name, _, _) in enumerate(spot.children) if name in before), len(spot.children))
        indent = 0 if not spot.children else self._column(self._key_start(spot, 0))
        entries = [_entry(step, value, flow=spot.flow, indent=indent) for step, value in new.items()]
        if not spot.children:
            opened, closed = "{}" if isinstance(next(iter(new)), str) else "[]"
            return spot.start, spot.end, opened + ", ".join(entries) + closed
        between = ", " if spot.flow else "\n" + " " * indent
        if first == 0:
            start = self._key_start(spot, 0)
            return start, start, between.join([*entries, ""])
        end = spot.children[first - 1][2].end
        end = end if spot.flow else self._line_end(end)
        return end, end, between.join(["", *entries])

    def _key_start(self, spot: _TextSpan, at: int) -> int:
        _, key, value = spot.children[at]
        if key is not None:
            return key.start
        return value.start if spot.flow else self.text.rindex("-", 0, value.start)

    def _line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end

    def _column(self, offset: int) -> int:
        return offset - (self.text.rfind("\n", 0, offset) + 1)


class _NestedValues(dict[str | int, Any]):
    """Values to set, nested by their steps. Whatever is not a _NestedValues is a value to set."""


def _nested(values: Mapping[Steps, Any]) -> _NestedValues:
    tree = _NestedValues()
    for steps, value in values.items():
        inner = tree
        for step in steps[:-1]:
            inner = inner.setdefault(step, _NestedValues())
        inner[steps[-1]] = value
    return tree


def _plain(value: Any) -> Any:
    """Return values as plain mappings and lists, to write where there is nothing yet."""
    if not isinstance(value, _NestedValues):
        return value
    if all(isinstance(step, int) for step in value):
        return [_plain(element) for element in value.values()]
    return {step: _plain(part) for step, part in value.items()}


def _merged(data: Any, value: Any) -> Any:
    """Return the data of an alias with the values set in it."""
    if not isinstance(value, _NestedValues):
        return value
    if isinstance(data, list):
        kept = [_merged(part, value[at]) if at in value else part for at, part in enumerate(data)]
        return [*kept, *(_plain(part) for at, part in value.items() if isinstance(at, int) and at >= len(data))]
    return {**(data or {}), **{step: _merged((data or {}).get(step), part) for step, part in value.items()}}


# --- values -> text ------------------------------------------------------------------------------------------------


def _entry(step: str | int, value: Any, *, flow: bool, indent: int) -> str:
    """Write an element of a list, or a key with its value; a list of mappings gets one line for each."""
    if isinstance(step, int):
        return inline(value, flow=flow) if flow else f"- {inline(value)}"
    if not flow and isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        lines = ("\n" + " " * (indent + 2) + f"- {inline(one)}" for one in value)
        return f"{scalar(step, flow=False)}:{''.join(lines)}"
    return f"{scalar(step, flow=flow)}: {inline(value, flow=flow)}"


def inline(value: Any, *, flow: bool = False, style: str = "") -> str:
    """Write a value on one line, as people do."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(k, flow=True)}: {inline(v, flow=True)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(element, flow=True) for element in value) + "]"
    return scalar(value, flow=flow, style=style)


def scalar(value: str | int | float | bool | None, *, flow: bool, style: str = "") -> str:
    """Write a scalar in quotes of this style, or without quotes where YAML reads it back as the same."""
    if not isinstance(value, str):
        return json.dumps(value)
    if not value.isprintable():  # values of machines may have any character
        return f'"{"".join(map(_escape, value))}"'
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    numeric = _NUMERIC.fullmatch(value) is not None and _ADDRESS.fullmatch(value) is None
    if style != '"' and not numeric and value.lower() not in _YAML_1_1 and _reads_as(value, flow=flow):
        return value
    return json.dumps(value, ensure_ascii=False)


def _escape(char: str) -> str:
    return json.dumps(char, ensure_ascii=False)[1:-1] if char.isprintable() else f"\\U{ord(char):08x}"


def _reads_as(text: str, *, flow: bool) -> bool:
    try:
        documents, problems = parse_yaml(f"{{k: {text}, l: 1}}" if flow else f"k: {text}\nl: 1", "")
    except UnreadableFile:
        return False
    return not problems and bool(documents[0].data == {"k": text, "l": 1})
