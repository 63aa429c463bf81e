"""Files -> documents with a position for every key and value. The only module that imports ruamel.yaml.

A spec is untrusted text from a pull request, so the parser is driven by events and builds plain values alone: no tags,
no merge keys, no code, and limits on what a file may expand to. Scalars follow the YAML 1.2 core schema: `no`, `on`
and 2027-06-30 are text.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
from reconciler.spec.characters import check_text

_MIB: Final = 1024 * 1024
MAX_YAML_BYTES: Final = _MIB
MAX_OTHER_BYTES: Final = 16 * _MIB
# Of all files that a spec is read from. The YAML of 60,000 nodes, one entry each, is 8 MiB, which takes minutes to
# parse; the CSV files of 200,000 nodes are 30 MiB.
MAX_YAML_BYTES_IN_ALL: Final = 8 * _MIB
MAX_BYTES_IN_ALL: Final = 64 * _MIB
MAX_ENTRIES: Final = (
    100_000  # files and folders that are looked at; the sources of Linux, a large repository, are 90,000
)
MAX_FOLDERS: Final = 32  # one below the other
MAX_DEPTH: Final = 40
MAX_VALUES: Final = 200_000  # per file, aliases expanded
MAX_VALUES_IN_ALL: Final = 1_000_000  # 100 MB of memory
_LONGEST_NUMBER: Final = 20  # longer ones are digests and serial numbers that lack their quotes
_LARGEST: Final = 2**63 - 1  # what databases, and Redfish's integers, hold

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


class Problem(Exception):
    """One thing that makes a file unreadable; becomes a Diagnostic."""

    def __init__(self, at: Position, problem: str, hint: str = "", path: str = "") -> None:
        super().__init__(problem)
        self.diagnostic = Diagnostic(at, path, problem, hint)


class TooMuch(Problem):
    """The spec as a whole is larger than a spec can be: what is left of it is not looked at."""


def show_path(steps: Steps) -> str:
    """`spec.nodes[2].bmc`"""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document as plain values. Positions are by the way to a value."""

    file: str
    data: Any
    values: Mapping[Steps, Position]
    keys: Mapping[Steps, Position]

    def at(self, steps: Steps = (), *, key: bool = False) -> Position:
        """Where the value (or its key) stands; where what encloses it stands, if it has no place of its own."""
        if key and steps in self.keys:
            return self.keys[steps]
        while steps not in self.values:
            steps = steps[:-1]
        return self.values[steps]


# --- the tree ------------------------------------------------------------------------------------------------------


class Tree:
    """The files of a spec: a directory, or their contents by relative path, as a git revision gives them."""

    def __init__(self, source: Path | Mapping[str, bytes], directory: str) -> None:
        self._source = source
        self._prefix = "" if directory in {"", "."} else directory.rstrip("/") + "/"
        self._counted: set[str] = set()  # names of the files read
        self._yaml_bytes, self._all_bytes = 0, 0

    def where(self, name: str, line: int = 0, column: int = 0) -> Position:
        shown = (self._prefix + name).rstrip("/") or "."
        return Position(shown.encode(errors="replace").decode(), line, column)  # names of files need not be UTF-8

    def yaml_names(self) -> list[str]:
        """YAML files, and links for `read` to refuse; nothing whose name, or folder's name, starts with a dot."""
        if isinstance(self._source, Path):
            entries = self.entries()
            return sorted(name for name, entry in entries if is_yaml(name) or entry.is_symlink())
        return sorted(name for name in self._source if is_yaml(name) and not re.search(r"(^|/)\.", name))

    def entries(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """What the directory holds, but folders, by path below it; no dotfiles. Problem as of `Walk`."""
        if not isinstance(self._source, Path):
            return
        try:
            yield from _entries(self._source, "", Walk(self), 0)
        except OSError as error:
            raise Problem(self.where(""), f"{error.filename}: {error.strerror}") from None

    def read(self, name: str) -> bytes:
        """Problem when it is no plain file of the tree, or too large."""
        limit = most_bytes(name)
        source = self._source
        data = self._read_file(source, name, limit) if isinstance(source, Path) else source.get(name)
        if data is None:
            raise Problem(self.where(name), "no such file in the spec directory")
        if len(data) > limit:
            raise too_large(self.where(name), limit)
        self._count(name, len(data))
        return data

    def text(self, name: str) -> str:
        data = self.read(name)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            column = error.start - data.rfind(b"\n", 0, error.start)
            raise Problem(self.where(name, line, column), "not UTF-8 text") from None

    def _count(self, name: str, size: int) -> None:
        if name in self._counted:
            return
        self._counted.add(name)
        self._all_bytes += size
        self._yaml_bytes += size * is_yaml(name)
        if self._yaml_bytes > MAX_YAML_BYTES_IN_ALL:
            problem = f"with this file the spec has more than {MAX_YAML_BYTES_IN_ALL // _MIB} MiB of YAML"
            raise TooMuch(self.where(name), problem, "list nodes in CSV files, and keep other YAML elsewhere")
        if self._all_bytes > MAX_BYTES_IN_ALL:
            problem = f"with this file the spec is larger than {MAX_BYTES_IN_ALL // _MIB} MiB"
            raise TooMuch(self.where(name), problem, "a fleet this large needs several specs")

    def _read_file(self, root: Path, name: str, limit: int) -> bytes | None:
        path = root
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise Problem(self.where(name), "a symbolic link", "a spec holds plain files only")
        try:
            # Opening a FIFO would wait for a writer; what a file is, is asked of what was opened.
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Problem(self.where(name), str(error.strerror)) from None
        with os.fdopen(opened, "rb", closefd=True) as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise Problem(self.where(name), "not a plain file", "a spec holds plain files only")
            try:
                return file.read(limit + 1)
            except OSError as error:
                raise Problem(self.where(name), str(error.strerror)) from None


class Walk:
    """Bounds a walk through the folders of a spec, wherever they stand: on a disk, or in a commit."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._visited = 0

    def visit(self, name: str, depth: int) -> None:
        """One more file or folder, below `depth` folders. TooMuch when it goes beyond what a spec can be."""
        self._visited += 1
        hint = "keep the spec in a folder of its own, and give that"
        if self._visited > MAX_ENTRIES:
            raise TooMuch(self.tree.where(name), f"there are more than {MAX_ENTRIES} files and folders", hint)
        if depth > MAX_FOLDERS:
            raise TooMuch(self.tree.where(name), f"below more than {MAX_FOLDERS} folders", hint)


def is_yaml(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def most_bytes(name: str) -> int:
    return MAX_YAML_BYTES if is_yaml(name) else MAX_OTHER_BYTES


def too_large(at: Position, limit: int) -> Problem:
    return Problem(at, f"larger than {limit // _MIB} MiB")


def _entries(folder: Path, prefix: str, walk: Walk, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            walk.visit(prefix + entry.name, depth)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(folder / entry.name, f"{prefix}{entry.name}/", walk, depth + 1)
            else:
                yield prefix + entry.name, entry


def load_documents(tree: Tree) -> tuple[list[Document], list[Diagnostic]]:
    """Every document of every YAML file, and what makes files unreadable."""
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    left = MAX_VALUES_IN_ALL
    try:
        for name in tree.yaml_names():
            parsed, found = _read_documents(tree, name)
            left = _take(left, parsed, tree.where(name))
            documents += parsed
            problems += found
    except Problem as problem:
        problems.append(problem.diagnostic)
    return documents, problems


def _read_documents(tree: Tree, name: str) -> tuple[list[Document], list[Diagnostic]]:
    try:
        return parse_yaml(tree.text(name), str(tree.where(name)))
    except TooMuch:
        raise
    except Problem as problem:
        return [], [problem.diagnostic]


def _take(left: int, documents: list[Document], at: Position) -> int:
    """How many values there may still be. TooMuch when there are none."""
    left -= sum(len(document.values) for document in documents)
    if left < 0:
        problem = f"with this file the spec has more than {MAX_VALUES_IN_ALL} values, aliases expanded"
        raise TooMuch(at, problem, "list nodes in CSV files, and share values in profiles")
    return left


# --- YAML ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A value with its place. `size` counts values, aliases expanded; an aliased node has several parents."""

    value: Any
    at: Position
    size: int = 1
    children: list[tuple[str | int, Position | None, _Node]] = field(default_factory=list)


def parse_yaml(text: str, file: str) -> tuple[list[Document], list[Diagnostic]]:
    """The documents of one file. Problem when the rest of the file can't be understood."""
    builder = _Builder(text, file)
    try:
        nodes = builder.documents()
    except ReaderError as error:
        before = text[: error.position]
        at = Position(file, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise Problem(at, f"character U+{ord(text[error.position]):04X} is not allowed in YAML") from None
    except MarkedYAMLError as error:
        raise _syntax_problem(error, file) from None
    if not nodes and not builder.problems:
        raise Problem(Position(file), "the file is empty", "it needs at least one document with apiVersion and kind")
    documents = []
    for node in nodes:
        values: dict[Steps, Position] = {}
        keys: dict[Steps, Position] = {}
        _place(node, (), values, keys)
        documents.append(Document(file, node.value, values, keys))
    return documents, builder.problems


def _syntax_problem(error: MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    at = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file)
    problem = str(error.problem or error.context or "not YAML")
    if "'\\t'" in problem:
        return Problem(at, "a tab where YAML wants spaces")
    return Problem(at, f"not YAML: {problem}", str(error.context or "") if error.problem else "")


def _place(node: _Node, steps: Steps, values: dict[Steps, Position], keys: dict[Steps, Position]) -> None:
    values[steps] = node.at
    for step, key, child in node.children:
        if key is not None:
            keys[(*steps, step)] = key
        _place(child, (*steps, step), values, keys)


class _Builder:
    """Turns the parser's events into nodes. What can be read past is collected in `problems`."""

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
                raise Problem(at, f"alias *{event.anchor} has no anchor before it")
        else:
            if event.tag is not None:
                self._note(event, f"tag {event.tag} is not allowed", "a spec holds plain values only")
            if depth > MAX_DEPTH:
                raise Problem(at, f"nested deeper than {MAX_DEPTH} levels")
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
            raise Problem(at, f"the file expands to more than {MAX_VALUES} values")
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
            return "".join(char for char in text[:64] if char.isprintable())  # which is told of once
        if event.style or event.tag is not None:  # quoted, a block, or of a kind that was refused
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
