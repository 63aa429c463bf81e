"""Every problem that a spec can have, one edit at a time: where it is told, and in which words.

problems.txt is the contract with users and with the reports of pull requests. A case names the file, the text taken
out (-) and put in (+), and all that is told then (>): so it also shows that a problem is told once, and that its
consequences are not told.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.example import messages


def cases() -> list[tuple[str, str, str, list[str]]]:
    found = []
    for block in (Path(__file__).parent / "problems.txt").read_text().strip().split("\n\n"):
        lines = block.split("\n")
        old, new, told = ([line[2:] for line in lines if line.startswith(mark)] for mark in ("- ", "+ ", "> "))
        found.append((lines[0].removeprefix("# "), "\n".join(old), "\n".join(new), told))
    return found


@pytest.mark.parametrize(("file", "old", "new", "expected"), cases())
def test_problem(file: str, old: str, new: str, expected: list[str]) -> None:
    assert expected
    assert messages((file, old, new)) == expected


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
    overlap = '  - {name: "gpu-a[005-008]", bmc: "https://10.20.9.[1-4]", domains: {rack: r1}}\n  - name: gpu-a009'
    assert messages(("pool.yaml", "  - name: gpu-a009", overlap)) == [
        "pool.yaml:16:12: node 'gpu-a005' (and 3 more) is declared twice (the other is at pool.yaml:15:12)",
    ]


def test_a_field_of_a_later_version_is_refused_and_not_ignored() -> None:
    told = messages(
        ("persona.yaml", "  gpu: {mig: {3g.40gb: 2}}", "  gpu: {mig: {3g.40gb: 2}}\n  preserve: [/var/lib/models]"),
        ("fleet.yaml", "spec: {type: kubernetes,", "spec: {type: kubernetes, operators: [gpu-operator],"),
        ("image.yaml", "      key: release", "      key: release\n      cosign: bundle"),
    )
    assert [line.split(": ", 1)[1] for line in told] == ["not enforced by this version (remove it)"] * 3
