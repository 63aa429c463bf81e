"""AcceptanceProfile: the tests that a node passes before it may serve."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from reconciler.spec.kinds.base import Duration, Enforced, PositiveDuration, Resource
from reconciler.strict_yaml.characters import check_line
from reconciler.strict_yaml.models import Model, Name, Text


class Tool(StrEnum):
    """The tools whose output the gate can judge."""

    DCGMI_DIAG = "dcgmi-diag"
    NVBANDWIDTH = "nvbandwidth"
    NCCL_TESTS = "nccl-tests"
    FIO = "fio"
    INVENTORY = "inventory"
    XID = "xid"


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        check_line(value)
    if isinstance(value, str | int):
        return value
    raise ValueError("must be text, a whole number, true or false")


Argument = Annotated[str | int | bool, BeforeValidator(_argument)]


def _below(text: str) -> str:
    if not re.fullmatch(r"\d{1,2}(\.\d+)?%", text) or not float(text[:-1]):
        raise ValueError(f"{text!r} is no share between 0% and 100%, like 3% or 2.5%")
    return text


Below = Annotated[str, AfterValidator(_below), WithJsonSchema({"type": "string", "pattern": r"^\d{1,2}(\.\d+)?%$"})]


class CohortBar(Model):
    """A limit by peers: same hardware, image, test and version of the tool. A node fails when both figures hold."""

    below: Below = Field(description="How far below the median of its peers a node has to be to fail, like 3%.")
    modified_z: float = Field(
        gt=0, le=1000, description="How far below it by the modified z-score, 0.6745 * distance / MAD. Usual: 3.5."
    )


class Threshold(Model):
    """A limit on a metric."""

    metric: Text = Field(description="Metric, as the tool's parser names it.")
    min: float | None = Field(default=None, description="Smallest value that passes.")
    max: float | None = Field(default=None, description="Largest value that passes.")
    cohort: CohortBar | None = Field(
        default=None,
        description="Limit by the peers in reference/*.json of the spec. Under ten peers, min and max alone decide.",
    )

    @model_validator(mode="after")
    def _judges(self) -> Threshold:
        if self.min is None and self.max is None:
            raise ValueError("has no limit; give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"no value can pass: min {self.min:g} is above max {self.max:g}")
        return self


class Test(Model):
    """One run of one tool."""

    __test__ = False  # not a pytest class

    name: Name = Field(description="Name of the test, unique within the profile.")
    tool: Tool = Field(description="Tool to run.")
    args: Mapping[str, Argument] = Field(default={}, description="Arguments of the tool, by name.")
    thresholds: tuple[Threshold, ...] = Field(default=(), description="Limits that its metrics have to meet.")
    timeout: PositiveDuration = Field(default="10m", description="How long it may run.")
    versions: tuple[Text, ...] = Field(
        default=(), description="Allowed versions of the tool, by prefix. Absent: those that the reconciler knows."
    )
    allow_skip: tuple[Text, ...] = Field(default=(), description="Parts of the test that this hardware may skip.")


class Phase(Model):
    """Tests that run one after the other; the next phase starts when all have passed."""

    name: Name = Field(description="Name of the phase.")
    tests: tuple[Test, ...] = Field(min_length=1, description="Tests of the phase.")


class AcceptanceProfileSpec(Model):
    """The phases of tests, in order, and how long a certificate is valid."""

    validity: PositiveDuration | None = Field(
        default=None, description="How long a certificate is valid. Absent: it does not expire."
    )
    phases: tuple[Phase, ...] = Field(min_length=1, description="Phases, cheap ones first.")
    soak: Annotated[Duration, Enforced("0s")] = Field(
        default="0s", description="How long the node is watched under load before it is admitted."
    )

    @field_validator("phases")
    @classmethod
    def _unique(cls, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        seen: set[str] = set()
        for test in (test for phase in phases for test in phase.tests):
            if test.name in seen:
                raise ValueError(f"two tests are called {test.name!r}")
            seen.add(test.name)
        return phases


class AcceptanceProfile(Resource):
    """The tests that a node passes before it may serve."""

    kind: Literal["AcceptanceProfile"] = Field(description="AcceptanceProfile.")
    spec: AcceptanceProfileSpec = Field(description="Phases, in order.")
