"""Scenarios: how machines differ from their spec when a lab starts. Built-in ones and files share this format.

description: what this plays
seed: 7                                       # optional; `lab up --seed` wins
nodes:
  gpu-a*:                                     # shell patterns; all that match a node apply, in this order
    drift: [old_image, {bios_off: {count: 2}}]    # see lab/drifts.py
    pick: {of: [...], least: 0, most: 3}          # a random number of these, drawn per node
    faults: {xid_79: {gpu: 3, persistent: true}}  # see lab/hardware/faults.py
    expect: isolated                              # the expected end; default converged
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from reconciler.lab.drifts import DRIFTS, parse_drift
from reconciler.lab.hardware.faults import FaultValue, parse_fault
from reconciler.model.errors import UsageError


class End(StrEnum):
    """The state that a node must have when the reconciler has finished."""

    CONVERGED = "converged"
    ISOLATED = "isolated"  # out of service and reported
    LEFT_ALONE = "left_alone"  # not changed, and reported
    CORDONED = "cordoned"  # as specified, except for a cordon that is not the reconciler's


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


Parameters = dict[str, FaultValue]


def _as_drift(given: Any) -> Any:
    """Return {name: parameters}; a bare name has no parameters."""
    return {given: {}} if isinstance(given, str) else given


class Drift(_Model):
    kind: str
    parameters: Parameters = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        given = _as_drift(given)
        if not isinstance(given, dict) or len(given) != 1:
            raise ValueError("a drift is a name or one {name: {parameter: value}}")
        [(kind, parameters)] = given.items()
        return {"kind": kind, "parameters": parse_drift(str(kind), parameters or {})}


class Pick(_Model):
    """A random choice of `least` to `most` of these drifts, drawn for each node, among those that apply to it."""

    of: tuple[Drift, ...] = Field(min_length=1)
    least: int = Field(default=0, ge=0)
    most: int = Field(ge=0)

    @model_validator(mode="after")
    def _in_order(self) -> Pick:
        if self.least > self.most:
            raise ValueError("least is more than most")
        return self


class NodeRule(_Model):
    """The drifts and faults for the nodes of one pattern, and their expected end."""

    drift: tuple[Drift, ...] = ()
    pick: Pick | None = None
    faults: Annotated[Mapping[str, Parameters], Field(default={})]
    expect: End | None = None

    @model_validator(mode="after")
    def _known_faults(self) -> NodeRule:
        for kind, parameters in self.faults.items():
            parse_fault(kind, parameters)
        return self


class Scenario(_Model):
    description: str = ""
    seed: int | None = None
    nodes: dict[str, NodeRule]

    def rules_for(self, node: str) -> Sequence[NodeRule]:
        return [rule for pattern, rule in self.nodes.items() if fnmatchcase(node, pattern)]

    def expect(self, node: str) -> End:
        return next((rule.expect for rule in reversed(self.rules_for(node)) if rule.expect), End.CONVERGED)

    def check(self, nodes: Sequence[str]) -> None:
        """Raise UsageError when a pattern matches none of these nodes, because it would have no effect."""
        for pattern in self.nodes:
            if not any(fnmatchcase(node, pattern) for node in nodes):
                close = difflib.get_close_matches(pattern, nodes, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise UsageError(f"the scenario's {pattern!r} matches no node of the spec{hint}")


BUILT_IN = ("clean", "drifted", "demo", "blank")


def load_scenario(name: str) -> Scenario:
    """Load a built-in scenario by name, or a YAML file. Raise UsageError for an invalid one."""
    if name in BUILT_IN:
        text = files("reconciler.lab.scenarios").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            known = ", ".join(BUILT_IN)
            raise UsageError(f"no scenario {name!r}: {error.strerror}; built in are {known}") from error
    try:
        return Scenario.model_validate(YAML(typ="safe", pure=True).load(text))
    except YAMLError as error:
        raise UsageError(f"{name} is not YAML: {error}") from error
    except ValidationError as error:
        raise UsageError(f"{name}: " + "; ".join(_problem(entry) for entry in error.errors())) from error


def _problem(entry: Any) -> str:
    where = ".".join(str(part) for part in entry["loc"])
    return f"{where}: {entry['msg'].removeprefix('Value error, ')}"


def describe_drifts() -> Mapping[str, str]:
    return {name: drift.description for name, drift in DRIFTS.items()}
