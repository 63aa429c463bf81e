"""Every problem that a spec can have, one edit at a time: where it is told, and in which words.

problems.txt is the contract with users and with the reports of pull requests. A case names the file, the text taken
out (-) and put in (+), and all that is told then (>): so it also shows that a problem is told once, and that its
consequences are not told.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.main import run
from reconciler.spec import check_spec
from reconciler.strict_yaml.parse import parse_yaml
from tests.spec.example import FILES, changed, messages


def cases() -> list[tuple[str, str, str, list[str]]]:
    found = []
    for block in (Path(__file__).parent / "problems.txt").read_text().strip().split("\n\n"):
        lines = block.split("\n")
        old, new, told = ([line[2:] for line in lines if line.startswith(mark)] for mark in ("- ", "+ ", "> "))
        found.append((lines[0].removeprefix("# "), "\n".join(old), "\n".join(new), told))
    return found


@pytest.mark.parametrize(("file", "old", "new", "expected"), cases())
def test_problem(file: str, old: str, new: str, expected: list[str]) -> None:
    """Conventions C11, Y11: a place, what is wrong, and a hint; words outside of a closed list, values without unit."""
    assert expected
    assert messages((file, old, new)) == expected


@pytest.mark.parametrize(("file", "old", "new", "expected"), cases())
def test_problem_ends_validate_with_3(
    file: str, old: str, new: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error ends with exit code 3 and its message on stdout; a warning alone leaves the spec valid."""
    for name, content in changed((file, old, new)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    code = run(["validate", str(tmp_path)])
    printed = capsys.readouterr().out.replace(f"{tmp_path}/", "")
    severities = {line.partition(": ")[0] for line in printed.splitlines() if line.partition(": ")[2] in expected}
    assert severities <= {"error", "warning"}
    assert code == (3 if "error" in severities else 0), printed
    for message in expected:
        assert message in printed


def test_one_error_of_syntax_is_one_message() -> None:
    """Though the file declares what others refer to. A name that is nearly that of another is told, as it is wrong."""
    broken = ("persona.yaml", "provider: kubernetes, timeout", "provider: kubernetes timeout")
    syntax = "persona.yaml:9:39: not YAML: expected ',' or '}', but got ':' (while parsing a flow mapping)"
    assert messages(broken) == [syntax]
    misspelt = "pool.yaml:7:13 spec.hardware: there is no HardwareProfile 'hgx-h10' (did you mean 'hgx-h100'?)"
    assert messages(broken, ("pool.yaml", "hardware: hgx-h100", "hardware: hgx-h10")) == [syntax, misspelt]


def test_a_merge_conflict_is_named() -> None:
    both = "<<<<<<< HEAD\nmetadata: {name: training}\n=======\nmetadata: {name: learning}\n>>>>>>> feature"
    hint = "keep one side, and delete the lines that begin with <<<<<<<, ======= and >>>>>>>"
    told = f"persona.yaml:3:1: an unresolved merge conflict, to line 7 ({hint})"
    assert messages(("persona.yaml", "metadata: {name: training}", both)) == [told]


@pytest.mark.parametrize("line", ["<<<<<<< HEAD", "=======", ">>>>>>> feature", "||||||| 1d2c3b4"])
def test_a_line_that_is_left_of_a_merge_conflict_is_named(line: str) -> None:
    """Somebody chose a side, and overlooked a marker: the parser would complain of the line after it."""
    told = f"persona.yaml:3:1: a line of a merge conflict is left: {line.split()[0]} (delete that line)"
    text = "metadata: {name: training}"
    assert messages(("persona.yaml", text, f"{line}\n{text}")) == [told]


def test_all_problems_of_a_spec_are_told_at_once() -> None:
    told = messages(
        ("fleet.yaml", "mode: correct", "mode: corect"),
        ("fleet.yaml", "ca: pki/bmc-ca.pem", "ca: pki/nope.pem"),
        ("persona.yaml", "tool: dcgmi-diag", "tool: dcgm"),
        ("pool.yaml", "persona: training", "persona: trianing"),
        ("pool.yaml", "gpu-a[001-008]", "gpu-a[008-001]"),
        ("nodes.csv", "https://10.20.0.20", "10.20.0.20"),
        ("broken.yaml", "", "a: [\n"),
    )
    assert [line.split()[0] for line in told] == [
        "broken.yaml:2:1:",
        "fleet.yaml:8:15",
        "fleet.yaml:16:17",
        "nodes.csv:2:10:",
        "persona.yaml:28:26",
        "pool.yaml:8:12",
        "pool.yaml:15:12",
    ]


def test_the_example_has_no_problem() -> None:
    assert messages() == []


def test_overlapping_ranges_are_one_problem() -> None:
    """Conventions C11: told once for many nodes."""
    overlap = '  - {name: "gpu-a[005-008]", bmc: "https://10.20.9.[1-4]", domains: {rack: r1}}\n  - name: gpu-a009'
    assert messages(("pool.yaml", "  - name: gpu-a009", overlap)) == [
        "pool.yaml:16:12: node 'gpu-a005' (and 3 more) is declared twice (the other is at pool.yaml:15:12)",
    ]


def test_a_field_of_a_later_version_is_refused_and_not_ignored() -> None:
    told = messages(("pool.yaml", "    state: quarantined", "    image: null\n    hostKey: ssh-ed25519 AAAA"))
    assert [line for line in told if "not enforced by this version" in line], told


NONSENSE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "[1-2]", "*", [], [None], {}, {"x": None}, {"name": {}}]
)


@given(data=st.data())
def test_no_nonsense_crashes_the_loader(data: st.DataObject) -> None:
    """Any value anywhere in a valid spec: it is told, or it is fine; it is never a traceback."""
    name = data.draw(st.sampled_from([name for name in FILES if name.endswith(".yaml")]))
    documents = [copy.deepcopy(document.data) for document in parse_yaml(FILES[name], name)[0]]
    for _ in range(data.draw(st.integers(1, 3))):
        parent: Any = documents
        while True:
            steps = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            step = data.draw(st.sampled_from(steps))
            if not isinstance(parent[step], dict | list) or not parent[step] or data.draw(st.booleans()):
                break
            parent = parent[step]
        parent[step] = copy.deepcopy(data.draw(NONSENSE))
    text = "---\n".join(json.dumps(document) + "\n" for document in documents)
    fleet, found = check_spec({**changed(), name: text.encode()}, directory="")
    assert (fleet is None) == any(one.severity == "error" for one in found)


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.text("{}[]:,-&*!|>'\"#% ?\n\ta1", max_size=40))
def test_no_text_crashes_the_loader(text: str) -> None:
    check_spec({**changed(), "extra.yaml": text.encode(), "nodes.csv": text.encode()}, directory="")
