"""The YAML parser reads text from pull requests: what it accepts, what it refuses, and the positions it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.strict_yaml.parse import MAX_DEPTH, MAX_VALUES, Document, UnreadableFile, parse_yaml
from tests.spec.example import changed, told
from tests.work import calls


def read(text: str) -> Any:
    documents, problems = parse_yaml(text, "f.yaml")
    assert problems == []
    return [document.data for document in documents]


def refusals(text: str) -> list[str]:
    try:
        return [str(problem) for problem in parse_yaml(text, "f.yaml")[1]]
    except UnreadableFile as problem:
        return [str(problem.diagnostic)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no\nb: on\nc: yes", {"a": "no", "b": "on", "c": "yes"}),
        ("a: 2027-06-30", {"a": "2027-06-30"}),
        ("a: true\nb: False\nc: null\nd: ~\ne:", {"a": True, "b": False, "c": None, "d": None, "e": None}),
        ("a: 12\nb: -3\nc: 0x1F\nd: 0o17\ne: 010", {"a": 12, "b": -3, "c": 31, "d": 15, "e": 10}),
        ("a: 1.5\nb: 2.\nc: .5\nd: 1e3", {"a": 1.5, "b": 2.0, "c": 0.5, "d": 1000.0}),
        ("a: '12'\nb: \"true\"", {"a": "12", "b": "true"}),
        ("a: 1:30\nb: 12_000\nc: 1.2.3", {"a": "1:30", "b": "12_000", "c": "1.2.3"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("%YAML 1.1\n---\na: no", {"a": "no"}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    assert read(text) == [value]


def test_several_documents_in_one_file() -> None:
    assert read("a: 1\n---\nb: 2\n...\n---\nc: 3\n") == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml:4:3: key 'c' is set twice (first in line 3)"),
        ("a: !!python/object:os.system x", "f.yaml:1:4: tag tag:yaml.org,2002:python/object:os.system is not allowed"),
        ("a: !env HOME", "f.yaml:1:4: tag !env is not allowed (a spec holds plain values only)"),
        ("<<: {a: 1}", "f.yaml:1:1: merge keys are not part of YAML 1.2"),
        ("1: a", "f.yaml:1:1: a key that is not text (put it in quotes)"),
        ("? [a]\n: b", "f.yaml:1:3: a key that is not text (put it in quotes)"),
        ("a:\n\tb: 1", "f.yaml:2:1: a tab where YAML wants spaces"),
        ("a: b: c", "f.yaml:1:5: not YAML: mapping values are not allowed here"),
        ("a: [1, 2", "f.yaml:1:9: not YAML: expected ',' or ']'"),
        ("a: \x01", "f.yaml:1:4: character U+0001 is not allowed in YAML"),
        ("", "f.yaml: the file is empty"),
        ("# nothing\n", "f.yaml: the file is empty"),
        ("a: *b", "f.yaml:1:4: alias *b has no anchor before it"),
        ("a: &a [*a]", "f.yaml:1:8: alias *a has no anchor before it"),
        ("a: .inf", "f.yaml:1:4: .inf is not a finite number"),
        ("a: 1e999", "f.yaml:1:4: 1e999 is not a finite number"),
        ("a: " + "9" * 5000, "f.yaml:1:4: a number that is too long (put it in quotes if it is text)"),
        ("[" * 1000, f"f.yaml:1:{MAX_DEPTH + 2}: nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_what_is_refused(text: str, expected: str) -> None:
    (found,) = refusals(text)
    assert found.startswith(expected)


def test_an_alias_bomb_is_stopped_early() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (found,), work = calls(lambda: refusals("\n".join(lines)))
    assert found.endswith(f"the file expands to more than {MAX_VALUES} values")
    assert work < 20 * MAX_VALUES


def test_every_key_and_value_has_a_position() -> None:
    (document,), _ = parse_yaml("# c\na: 1\nb:\n  - x\n  - y: {z: no}\n", "f.yaml")
    assert {steps: (at.line, at.column) for steps, at in document.values.items()} == {
        (): (2, 1),
        ("a",): (2, 4),
        ("b",): (4, 3),
        ("b", 0): (4, 5),
        ("b", 1): (5, 5),
        ("b", 1, "y"): (5, 8),
        ("b", 1, "y", "z"): (5, 12),
    }
    assert (document.keys["b", 1, "y", "z"].line, document.keys["b", 1, "y", "z"].column) == (5, 9)
    assert document.at(("b", 1, "gone", "deeper")) == document.values["b", 1]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc", "Cf"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_yaml_and_all_of_it_has_a_position(value: Any) -> None:
    (document,), problems = parse_yaml(json.dumps(value, indent=1), "f.yaml")
    assert problems == []
    assert document.data == value
    assert sum(1 for _ in _walk(document)) == len(document.values)


def _walk(document: Document, value: Any = ..., steps: tuple[str | int, ...] = ()) -> Any:
    value = document.data if value is ... else value
    assert steps in document.values
    yield steps
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield from _walk(document, child, (*steps, step))


# --- the tree of files ---------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, data in changed().items():
        path = tmp_path / "spec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "spec"


def test_a_directory_reads_like_its_files(tree: Path) -> None:
    assert told(tree) == told(changed()) == []


def test_dotfiles_and_other_files_are_not_read(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git" / "x.yaml").write_text("a: [")
    (tree / ".hidden.yaml").write_text("a: [")
    (tree / "README.md").write_bytes(b"\xff")
    assert told(tree) == []


@pytest.mark.parametrize("name", ["link.yaml", "folder", "notes.txt"])
def test_symbolic_links_are_refused(tree: Path, name: str) -> None:
    (tree / name).symlink_to(tree.parent)
    assert told(tree) == [f"{name}: a symbolic link (a spec holds plain files only)"]


def test_a_link_is_refused_where_a_file_is_named(tree: Path) -> None:
    key = tree / "pki" / "bmc-ca.pem"
    key.rename(tree.parent / "outside.pem")
    key.symlink_to(tree.parent / "outside.pem")
    assert told(tree) == [
        "fleet.yaml:8:15 spec.redfish.tls.ca: 'pki/bmc-ca.pem': a symbolic link",
        "pki/bmc-ca.pem: a symbolic link (a spec holds plain files only)",
    ]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("big.yaml", b"a: " + b"x" * 1024 * 1024, "big.yaml: larger than 1 MiB"),
        ("latin.yaml", b"a: 1\nb: x\xe4\n", "latin.yaml:2:5: not UTF-8 text"),
        ("nul.yaml", b"a: 1\n\x00", "nul.yaml:2:1: character U+0000 is not allowed in YAML"),
        ("empty.yaml", b"", "empty.yaml: the file is empty (it needs at least one document with apiVersion and kind)"),
        (
            "blank.yml",
            b"---\n",
            "blank.yml:2:1: this document is empty (a resource has apiVersion, kind, metadata and spec)",
        ),
        (
            "list.yaml",
            b"- a\n",
            "list.yaml:1:1: must be a mapping, not a list (a resource has apiVersion, kind, metadata and spec)",
        ),
    ],
)
def test_unreadable_files(name: str, data: bytes, expected: str) -> None:
    assert told({**changed(), name: data}) == [expected]


def test_a_csv_file_that_is_too_large_or_not_text() -> None:
    at = "pool.yaml:28:14 spec.inventory: 'nodes.csv'"
    assert told({**changed(), "nodes.csv": b"x" * (16 * 1024 * 1024 + 1)}) == [f"{at}: larger than 16 MiB"]
    assert told({**changed(), "nodes.csv": b"name\n\xff"}) == [f"{at}: not UTF-8 text"]


def test_no_spec_at_all(tmp_path: Path) -> None:
    assert told({}) == [".: the spec is empty (it needs *.yaml files with a Fleet in one)"]
    assert told(tmp_path) == [".: the spec is empty (it needs *.yaml files with a Fleet in one)"]
    assert told(tmp_path / "nothing") == [".: no such directory"]


def test_a_spec_without_a_fleet_or_without_nodes() -> None:
    files = changed()
    without = {name: data for name, data in files.items() if name != "fleet.yaml"}
    assert told(without) == [".: there is no Fleet (a spec has exactly one)"]
    alone = {name: data for name, data in files.items() if name not in {"pool.yaml", "nodes.csv"}}
    alone["fleet.yaml"] = alone["fleet.yaml"].replace(b", {scope: rack, nodes: 2}", b"")
    assert told(alone) == ["fleet.yaml:5:3 spec: the spec names no node (an empty fleet would forget every node)"]
