"""Parse YAML into plain values that have a position for every key and every value.

A spec is untrusted text from a pull request, so the parser is driven by events and builds plain values alone: no tags,
no merge keys, no code, and limits on what a file may expand to. Scalars follow the YAML 1.2 core schema: `no`, `on`
and 2027-06-30 are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from reconciler.model.errors import Diagnostic, Position
from reconciler.strict_yaml.characters import check_text

MAX_DEPTH: Final = 40
MAX_VALUES: Final = 200_000  # per file, aliases expanded
_LONGEST_NUMBER: Final = 20  # longer ones are digests and serial numbers that lack their quotes
_LARGEST: Final = 2**63 - 1  # what databases, and Redfish's integers, hold

_OURS: Final = "<<<<<<< "  # how git begins and ends a conflict
_THEIRS: Final = ">>>>>>> "
_LEFT: Final = re.compile(r"^(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|) |^=======$", re.MULTILINE)

Steps = tuple[str | int, ...]  # from the top of a document to a value: ("spec", "nodes", 2, "bmc")

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def show_path(steps: Steps) -> str:
    """Write the steps to a value as people do: `spec.nodes[2].bmc`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


class UnreadableFile(Exception):
    """A problem that keeps a file from being read. `diagnostic` names its place."""

    def __init__(self, at: Position, problem: str, hint: str = "", path: str = "") -> None:
        super().__init__(problem)
        self.diagnostic = Diagnostic(at, path, problem, hint)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document as plain values. `values` and `keys` give positions by the steps to a value."""

    file: str
    data: Any
    values: Mapping[Steps, Position]
    keys: Mapping[Steps, Position]

    def at(self, steps: Steps = (), *, key: bool = False) -> Position:
        """Return the position of a value, or of its key; for a missing value, the position of what would hold it."""
        if key and steps in self.keys:
            return self.keys[steps]
        while steps not in self.values:
            steps = steps[:-1]
        return self.values[steps]


@dataclass(slots=True)
class _Node:
    """A value with its position. `size` counts values with aliases expanded; an aliased node has several parents."""

    value: Any
    at: Position
    size: int = 1
    children: list[tuple[str | int, Position | None, _Node]] = field(default_factory=list)


def parse_yaml(text: str, file: str) -> tuple[list[Document], list[Diagnostic]]:
    """Return the documents of a file, and the problems that parsing could skip. `file` names the file in positions.

    Raise UnreadableFile when the rest of the file can't be understood.
    """
    _refuse_conflict(text, file)
    builder = _Builder(text, file)
    try:
        nodes = builder.documents()
    except ReaderError as error:
        before = text[: error.position]
        at = Position(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise UnreadableFile(at, f"character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except MarkedYAMLError as error:
        raise _left_marker(text, file) or _syntax_problem(error, file) from None
    if not nodes and not builder.problems:
        raise UnreadableFile(
            Position(file), "the file is empty", "it needs at least one document with apiVersion and kind"
        )
    documents = []
    for node in nodes:
        values: dict[Steps, Position] = {}
        keys: dict[Steps, Position] = {}
        _place(node, (), values, keys)
        documents.append(Document(file, node.value, values, keys))
    return documents, builder.problems


def _refuse_conflict(text: str, file: str) -> None:
    """Raise UnreadableFile for a merge conflict of git that nobody has resolved: no YAML has both markers."""
    if _OURS not in text or _THEIRS not in text:
        return
    first = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(_OURS):
            first = first or number
        elif first and line.startswith(_THEIRS):
            hint = "keep one side, and delete the lines that begin with <<<<<<<, ======= and >>>>>>>"
            raise UnreadableFile(Position(file, first, 1), f"an unresolved merge conflict, to line {number}", hint)


def _left_marker(text: str, file: str) -> UnreadableFile | None:
    """Return the problem of a file that is no YAML and has one line of a merge conflict left: that line is why."""
    if (found := _LEFT.search(text)) is None:
        return None
    at = Position(file, text.count("\n", 0, found.start()) + 1, 1)
    return UnreadableFile(at, f"a line of a merge conflict is left: {found[0].strip()}", "delete that line")


def _syntax_problem(error: MarkedYAMLError, file: str) -> UnreadableFile:
    mark = error.problem_mark or error.context_mark
    at = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file)
    problem = str(error.problem or error.context or "not YAML")
    if "'\\t'" in problem:
        return UnreadableFile(at, "a tab where YAML wants spaces")
    return UnreadableFile(at, f"not YAML: {problem}", str(error.context or "") if error.problem else "")


def _place(node: _Node, steps: Steps, values: dict[Steps, Position], keys: dict[Steps, Position]) -> None:
    values[steps] = node.at
    for step, key, child in node.children:
        if key is not None:
            keys[(*steps, step)] = key
        _place(child, (*steps, step), values, keys)


class _Builder:
    """Turns the parser's events into nodes. `problems` collects what is wrong with values that parsing could skip."""

    def __init__(self, text: str, file: str) -> None:
        self._events: Iterator[Any] = iter(YAML(typ="safe", pure=True).parse(text))
        self._file = file
        self._anchors: dict[str, _Node] = {}
        self._size = 0
        self.problems: list[Diagnostic] = []

    def documents(self) -> list[_Node]:
        found = []
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._anchors = {}
                found.append(self._value(next(self._events), 0))
        return found

    def _at(self, mark: StreamMark) -> Position:
        return Position(self._file, mark.line + 1, mark.column + 1)

    def _note(self, event: Any, problem: str, hint: str = "") -> None:
        self.problems.append(Diagnostic(self._at(event.start_mark), "", problem, hint))

    def _value(self, event: Any, depth: int) -> _Node:
        at = self._at(event.start_mark)
        if isinstance(event, AliasEvent):
            node = self._anchors.get(event.anchor)
            if node is None:
                raise UnreadableFile(at, f"alias *{event.anchor} has no anchor before it")
        else:
            if event.tag is not None:
                self._note(event, f"tag {event.tag} is not allowed", "a spec holds plain values only")
            if depth > MAX_DEPTH:
                raise UnreadableFile(at, f"nested deeper than {MAX_DEPTH} levels")
            node = _Node(None, at)
            if isinstance(event, ScalarEvent):
                node.value = self._scalar(event)
            elif isinstance(event, MappingStartEvent):
                self._mapping(node, depth)
            elif isinstance(event, SequenceStartEvent):
                self._sequence(node, depth)
            if event.anchor is not None:
                self._anchors[event.anchor] = node
        self._size += node.size if isinstance(event, AliasEvent) else 1
        if self._size > MAX_VALUES:
            raise UnreadableFile(at, f"the file expands to more than {MAX_VALUES} values")
        return node

    def _sequence(self, node: _Node, depth: int) -> None:
        node.value = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            child = self._value(event, depth + 1)
            node.children.append((len(node.value), None, child))
            node.value.append(child.value)
            node.size += child.size

    def _mapping(self, node: _Node, depth: int) -> None:
        node.value = {}
        seen: dict[str, Position] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._value(event, depth + 1)
            child = self._value(next(self._events), depth + 1)
            node.size += 1 + child.size
            if key.value == "<<":
                self._note(event, "merge keys are not part of YAML 1.2", "share values through profiles and defaults")
            elif not isinstance(key.value, str):
                self._note(event, "a key that is not text", "put it in quotes")
            elif "\n" in key.value or "\t" in key.value:
                self._note(event, "a key of several lines, or with a tab")
            elif key.value in seen:
                self._note(event, f"key {key.value!r} is set twice", f"first in line {seen[key.value].line}")
            else:
                seen[key.value] = key.at
                node.value[key.value] = child.value
                node.children.append((key.value, key.at, child))

    def _scalar(self, event: ScalarEvent) -> str | int | float | bool | None:
        text: str = event.value
        try:
            check_text(text)
        except ValueError as error:
            self._note(event, str(error))
            return "".join(char for char in text[:64] if char.isprintable())  # so that it is reported once
        if event.style or event.tag is not None:  # quoted, a block, or of a tag that is refused already
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not (_INT.fullmatch(text) or _BASED.fullmatch(text) or _FLOAT.fullmatch(text) or _SPECIAL.fullmatch(text)):
            return text
        if len(text) > _LONGEST_NUMBER:
            self._note(event, "a number that is too long", "put it in quotes if it is text")
            return text
        if _INT.fullmatch(text) or _BASED.fullmatch(text):
            whole = int(text, 0 if _BASED.fullmatch(text) else 10)
            if abs(whole) > _LARGEST:
                self._note(event, f"{text} is too large a number", "put it in quotes if it is text")
            return whole if abs(whole) <= _LARGEST else 0
        number = float(text) if _FLOAT.fullmatch(text) else math.inf
        if math.isinf(number):
            self._note(event, f"{text} is not a finite number")
            return 0
        if abs(number) > _LARGEST:
            self._note(event, f"{text} is too large a number")
            return 0
        return number
