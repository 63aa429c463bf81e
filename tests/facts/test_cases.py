"""Facts as data: what a tool printed, and what it must mean (cases/*.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.ssh.facts import FACTS, host_facts, requests
from reconciler.model.gate import CommandResult

CASES: list[Any] = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in YAML(typ="safe").load(path)
]


def result(answer: Mapping[str, Any]) -> CommandResult:
    return CommandResult(
        answer.get("exit_status", 0), answer.get("output", ""), answer.get("stderr", ""), answer.get("timed_out", False)
    )


def holds(expected: Any, found: Any) -> bool:
    """Mappings as a subset, by their keys; everything else exactly."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return all(key in found and holds(value, found[key]) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(holds, expected, found))
    return bool(expected == found)


@pytest.mark.parametrize("case", CASES)
def test_case(case: Mapping[str, Any]) -> None:
    answers = {name: result(answer) for name, answer in case.get("answers", {case.get("fact"): case}).items()}
    sysctls, services = case.get("sysctls", []), case.get("services", [])
    assert set(answers) <= {ask.name for ask in requests(sysctls, services)}

    facts = host_facts(answers, sysctls, services)

    found = asdict(facts)
    assert holds(case["expect"], found), {key: found[key] for key in case["expect"]}
    reasons = {name: why for name, why in facts.unknown.items() if not about_others(why, answers)}
    assert set(reasons) == set(case["unknown"]), reasons
    for name, part in case["unknown"].items():
        assert part in reasons[name]


def about_others(reason: str, answers: Mapping[str, CommandResult]) -> bool:
    """The facts that a case leaves out are unknown for that. The GPU list is missed only where it is needed."""
    left_out = {fact.name for fact in FACTS} - {"gpu_list"} - set(answers)
    return any(f"no answer for {name}" in reason for name in left_out)


def test_every_fact_has_a_case() -> None:
    covered = {
        name for case in (param.values[0] for param in CASES) for name in case.get("answers", [case.get("fact")])
    }
    assert covered == {ask.name for ask in requests(["k"], ["s"])}
