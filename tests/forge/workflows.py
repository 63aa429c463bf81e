"""The workflow files as data, and their commands carried out as a runner would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.conftest import ROOT

FOLDER = ROOT / ".github" / "workflows"
ACTION = ROOT / "action.yml"
FLEET = ("plan", "review", "commands", "apply", "drift")  # those that users take over
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def read(path: Path) -> Any:
    """`on` is a word here, and not true as in YAML 1.1."""
    return YAML(typ="safe", pure=True).load(path.read_text())


WORKFLOWS: Mapping[str, Any] = {path.stem: read(path) for path in sorted(FOLDER.glob("*.yml"))}


@dataclass(frozen=True)
class Step:
    workflow: str
    job: str
    said: Mapping[str, Any]
    env: Mapping[str, str]  # of its job and its own

    @property
    def name(self) -> str:
        return str(self.said.get("name", self.said.get("uses", "")))

    @property
    def run(self) -> str:
        return str(self.said.get("run", ""))


def steps(*names: str) -> Iterator[Step]:
    for name in names or WORKFLOWS:
        for job, said in WORKFLOWS[name]["jobs"].items():
            for step in said["steps"]:
                yield Step(name, job, step, {**said.get("env", {}), **step.get("env", {})})


def step(workflow: str, job: str, name: str) -> Step:
    [found] = [one for one in steps(workflow) if (one.job, one.name) == (job, name)]
    return found


def evaluated(text: str, context: Mapping[str, str]) -> str:
    """With what GitHub would put in place of each expression; what nobody set is empty."""
    return EXPRESSION.sub(lambda match: context.get(match[1], ""), str(text))
