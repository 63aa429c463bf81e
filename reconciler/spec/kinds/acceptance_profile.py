"""AcceptanceProfile: the tests that a node passes before it may serve."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from reconciler.model.gate_arguments import RATE, between_nodes
from reconciler.model.gate_tools import TOOLS
from reconciler.model.soak import is_load
from reconciler.spec.kinds.base import Duration, PositiveDuration, Resource
from reconciler.strict_yaml.characters import check_line
from reconciler.strict_yaml.models import Model, Name, Text

if TYPE_CHECKING:

    class Tool(StrEnum):
        pass

else:  # named as the table of the tools has them
    Tool = StrEnum("Tool", {name.upper().replace("-", "_"): name for name in TOOLS}, module=__name__)
    Tool.__doc__ = "The tools whose output the gate can judge."


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        check_line(value)
    if isinstance(value, str | int):
        return value
    raise ValueError("must be text, a whole number, true or false")


Argument = Annotated[str | int | bool, BeforeValidator(_argument)]


_SHARE = re.compile(rf"([0-9]{{1,4}}(?:\.[0-9]{{1,6}})?)% of ({RATE.pattern})")


@dataclass(frozen=True, slots=True)
class Share:
    """A limit as a share of a declared rate, like `92% of lineRate`."""

    percent: float
    rate: str

    @classmethod
    def read(cls, value: str) -> Share | None:
        found = _SHARE.fullmatch(value)
        return None if found is None else cls(float(found[1]), found[2])

    def of(self, rates: Mapping[str, float]) -> float | None:
        """Return the limit in the metric's unit; None when the rate is not declared."""
        return rates[self.rate] * self.percent / 100 if self.rate in rates else None


def _limit(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError("must be a finite number")
        return float(value)
    if isinstance(value, str) and Share.read(value) is not None:
        return value
    raise ValueError(f"must be a number, or a share of a declared rate like '92% of lineRate', not {value!r}")


Limit = Annotated[float | str, BeforeValidator(_limit)]


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
    """A limit on a metric. A share is of a rate that the arguments or the HardwareProfile declare."""

    metric: Text = Field(description="Metric, as the tool's parser names it.")
    min: Limit | None = Field(default=None, description="Smallest value that passes, or a share: 92% of lineRate.")
    max: Limit | None = Field(default=None, description="Largest value that passes, or a share: 110% of lineRate.")
    cohort: CohortBar | None = Field(
        default=None,
        description="Limit by the peers in reference/*.json of the spec. Under ten peers, min and max alone decide.",
    )

    @model_validator(mode="after")
    def _judges(self) -> Threshold:
        if self.min is None and self.max is None:
            raise ValueError("has no limit; give min, max or both")
        if isinstance(self.min, float) and isinstance(self.max, float) and self.min > self.max:
            raise ValueError(f"no value can pass: min {self.min:g} is above max {self.max:g}")
        return self

    def shares(self) -> Mapping[str, Share]:
        """Return the limits that are shares of a rate, by the name of the limit."""
        limits = {"min": self.min, "max": self.max}
        return {
            name: share
            for name, value in limits.items()
            if isinstance(value, str) and (share := Share.read(value)) is not None
        }


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
    validity: PositiveDuration | None = Field(
        default=None, description="How long its result is valid. Absent: as long as the profile says."
    )

    def rates(self, declared: Mapping[str, float]) -> dict[str, float]:
        """Return the rates that limits may be shares of: those of the hardware, and the test's own before them."""
        own = {name: float(value) for name, value in self.args.items() if not isinstance(value, str | bool)}
        return {**declared, **own}


class Phase(Model):
    """Tests that run one after the other; the next phase starts when all have passed."""

    name: Name = Field(description="Name of the phase.")
    tests: tuple[Test, ...] = Field(min_length=1, description="Tests of the phase.")


class Soak(Model):
    """Loads that run in turn on the node, for hours or days, after all phases have passed."""

    duration: PositiveDuration = Field(description="How long, like 72h. Each load has to fit twice.")
    loads: tuple[Test, ...] = Field(
        default=(), description="Loads, with their limits. Absent: the tests of the phases that load the node."
    )
    decline: Below = Field(
        default="2%", description="How far the throughput of the last hour may be below that of the first."
    )

    @field_validator("loads")
    @classmethod
    def _unique(cls, loads: tuple[Test, ...]) -> tuple[Test, ...]:
        names = [load.name for load in loads]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two loads are called {twice!r}")
        return loads


def _soak(value: Any) -> Any:
    """Accept a time alone. 0s is no soak, as in earlier versions."""
    if value == "0s":
        return None
    return {"duration": value} if isinstance(value, str) else _with_tuples(value)


def _with_tuples(value: Any) -> Any:
    """Return a document with tuples for lists: what passes a validator of Python is no JSON any more to Pydantic."""
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


class Revalidation(Model):
    """How tests are renewed before their results expire, within the budget and after all other work."""

    before: PositiveDuration = Field(description="How long before a result expires an idle node is tested again.")
    drain: bool = Field(default=False, description="Whether a node with work on it is drained for that, too.")


class AcceptanceProfileSpec(Model):
    """The phases of tests, in order, when they are run again, and how long their results are valid."""

    validity: PositiveDuration | None = Field(
        default=None, description="How long the result of a test is valid. Absent: it does not expire."
    )
    revalidate: Revalidation | None = Field(
        default=None, description="Renews results before they expire. Absent: a node is tested when one has expired."
    )
    after: Mapping[Text, tuple[Name, ...]] = Field(
        default={},
        description="Tests by name that an action, new firmware of a component, or a part that was exchanged "
        "(gpu_exchanged, nic_exchanged, drive_exchanged, dimm_exchanged) costs, or another driver (driver_changed), "
        "another leaf or spine (fabric_changed), or 30 days without work and gate (idle). Absent: the minimum set for "
        "it; where nothing is known, all tests. An installation and another machine cost all tests.",
    )
    phases: tuple[Phase, ...] = Field(min_length=1, description="Phases, cheap ones first.")
    soak: Annotated[Soak | None, BeforeValidator(_soak, json_schema_input_type=Soak | Duration | None)] = Field(
        default=None, description="Loads over hours or days before the node is admitted. A time alone will do: 72h."
    )

    def loads(self) -> tuple[Test, ...]:
        """Return the loads of the soak: its own, or the tests of the phases that load the node."""
        own = () if self.soak is None else self.soak.loads
        tests = (test for phase in self.phases for test in phase.tests)
        return own or tuple(test for test in tests if is_load(test.tool.value) and not between_nodes(test.args))

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
