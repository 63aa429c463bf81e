"""One YAML file as text whose values can be set.

ruamel.yaml's own round trip writes a file anew: it keeps comments, and changes indentation, blanks and line breaks of
what nobody touched. So its parser tells where each value stands, and only what changes is replaced: a diff shows what
was meant and nothing else.
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
_YAML_1_1: Final = {"y", "n", "yes", "no", "on", "off"}  # text to us, and true or false to other readers


@dataclass(slots=True)
class _TextSpan:
    """A value and where it stands. `end` of a block ends with its last value, not with the comments behind it."""

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
    """Each edit gives a new text; positions are those of the text that it is made from."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self._file = file
        self._lines = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]
        self._roots = list(self._documents())
        self._data = [document.data for document in parse_yaml(text, file)[0]]

    # --- reading -------------------------------------------------------------------------------------------------

    def resources(self) -> list[tuple[int, dict[str, Any]]]:
        """Documents that are mappings, with their numbers."""
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
        """With these values. What leads to them is made where it is missing, before these keys; so are new elements of
        lists, whose number is that of the list or more. An alias on the way is written out, so that nothing changes
        where its anchor is.
        """
        splices: list[_Splice] = []
        self._merge(self._roots[document], self._data[document], _nested(values), before, splices)
        return self._spliced(splices)

    def split(self, document: int, steps: Steps, elements: Mapping[int, Sequence[Mapping[str, str]]]) -> YamlText:
        """With these elements of the list at `steps`, each a mapping, once for each of their parts: texts by key."""
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
        """The text of a mapping, with other texts at some keys."""
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
        """Of two insertions at one place, the first comes first."""
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
                raise Refused(f"{self._file}: {step} is {data[step]!r}, and not what values can be set in")
        if new:
            splices.append(self._insertion(spot, new, before))

    def _replaced(self, spot: _TextSpan, value: Any, key: _TextSpan | None, flow: bool) -> _Splice:
        if spot.start == spot.end:  # nothing stands behind the colon
            return spot.start, spot.end, " " + inline(value, flow=flow)
        if spot.kind in {"mapping", "sequence"} and not spot.flow and key is not None:  # a block stands below its key
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
    """Values by the way to them; what is none is a value."""


def _nested(values: Mapping[Steps, Any]) -> _NestedValues:
    tree = _NestedValues()
    for steps, value in values.items():
        inner = tree
        for step in steps[:-1]:
            inner = inner.setdefault(step, _NestedValues())
        inner[steps[-1]] = value
    return tree


def _plain(value: Any) -> Any:
    """As it is written where nothing stands yet."""
    if not isinstance(value, _NestedValues):
        return value
    if all(isinstance(step, int) for step in value):
        return [_plain(element) for element in value.values()]
    return {step: _plain(part) for step, part in value.items()}


def _merged(data: Any, value: Any) -> Any:
    """`data`, of an alias, with the values set in it."""
    if not isinstance(value, _NestedValues):
        return value
    if isinstance(data, list):
        kept = [_merged(part, value[at]) if at in value else part for at, part in enumerate(data)]
        return [*kept, *(_plain(part) for at, part in value.items() if isinstance(at, int) and at >= len(data))]
    return {**(data or {}), **{step: _merged((data or {}).get(step), part) for step, part in value.items()}}


# --- values -> text ------------------------------------------------------------------------------------------------


def _entry(step: str | int, value: Any, *, flow: bool, indent: int) -> str:
    """An element of a list, or a key with its value: on a line of its own each, where it is a list of mappings."""
    if isinstance(step, int):
        return inline(value, flow=flow) if flow else f"- {inline(value)}"
    if not flow and isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        lines = ("\n" + " " * (indent + 2) + f"- {inline(one)}" for one in value)
        return f"{scalar(step, flow=False)}:{''.join(lines)}"
    return f"{scalar(step, flow=flow)}: {inline(value, flow=flow)}"


def inline(value: Any, *, flow: bool = False, style: str = "") -> str:
    """A value on one line, as people write it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(k, flow=True)}: {inline(v, flow=True)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(element, flow=True) for element in value) + "]"
    return scalar(value, flow=flow, style=style)


def scalar(value: str | int | float | bool | None, *, flow: bool, style: str = "") -> str:
    """In quotes of this style, or without where that is read back as the same."""
    if not isinstance(value, str):
        return json.dumps(value)
    if not value.isprintable():  # machines have a say in it
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
