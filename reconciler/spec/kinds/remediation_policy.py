"""RemediationPolicy: the actions to try on an unhealthy node, in order, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from reconciler.model.vocab import OF_KUBELET
from reconciler.spec.kinds.base import PositiveDuration, Resource
from reconciler.strict_yaml.models import Matching, Model

ConditionType = Annotated[
    str,
    Matching(
        r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?",
        "a type of condition like GpuUnhealthy or example.com/GpuUnhealthy",
    ),
]


class RungAction(StrEnum):
    RESTART_SERVICE = "restart_service"  # the unit that the row of the signal names
    RESET_BMC = "reset_bmc"  # by the host, of a BMC that answers nobody: it treats no node
    GPU_RESET = "gpu_reset"
    SOFT_RESTART = "soft_restart"
    POWER_CYCLE = "power_cycle"
    AC_CYCLE = "ac_cycle"  # of nodes whose outlets the spec names
    REIMAGE = "reimage"


class RungSpec(Model):
    """One rung of the remediation ladder."""

    action: RungAction = Field(
        description="restart_service, reset_bmc, gpu_reset, soft_restart, power_cycle, ac_cycle or reimage. The first "
        "three are tried for those signals alone whose rows say that they help: reset_bmc by the host of a BMC that "
        "does not answer, while the node serves. ac_cycle is for nodes with `outlets`."
    )
    attempts: int = Field(default=1, ge=1, le=10, description="Tries within the window before the next rung.")


class TreatedClass(StrEnum):
    """The classes of signals whose nodes the ladder treats."""

    TRANSIENT = "transient"
    PERSISTENT = "persistent"
    ENVIRONMENT = "environment"


class RepairLimit(Model):
    """The most repairs of one node, of all rungs together, before a person must look."""

    attempts: int = Field(ge=1, le=100, description="Attempts of all rungs together.")
    per_class: Mapping[TreatedClass, Annotated[int, Field(ge=1, le=100)]] = Field(
        default_factory=dict,
        description="Attempts of all rungs together for signals of one class: transient, persistent or environment. An "
        "attempt counts for the class of each signal that the node showed then.",
    )
    within: PositiveDuration = Field(default="7d", description="Attempts older than this no longer count.")

    @model_validator(mode="after")
    def _check_classes(self) -> RepairLimit:
        for name, most in self.per_class.items():
            if most > self.attempts:
                raise ValueError(f"perClass.{name} is {most}, and `attempts` allows {self.attempts} of all classes")
        return self


class ConditionStatus(StrEnum):
    """The statuses that may count as bad. Unknown is not among them: a silent detector says nothing about the node."""

    TRUE = "True"
    FALSE = "False"


def _status_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, bool) else value  # what YAML makes of an unquoted True


def _of_a_detector(name: str) -> str:
    if name in OF_KUBELET:
        hint = "hostDownAfter says when it counts as down" if name == "Ready" else "the scheduler acts on it"
        raise ValueError(f"{name} is the kubelet's own condition, and no evidence of broken hardware: {hint}")
    return name


class NodeConditionSpec(Model):
    """A condition of the node object that speaks against the node."""

    type: Annotated[ConditionType, AfterValidator(_of_a_detector)] = Field(
        description="Type of the condition, as its detector sets it: GpuUnhealthy, KernelDeadlock, example.com/Nvlink."
    )
    status: Annotated[ConditionStatus, BeforeValidator(_status_as_text)] = Field(
        default=ConditionStatus.TRUE, description="Status that is bad: True or False."
    )


class RemediationPolicySpec(Model):
    """The ladder and its limits."""

    window: PositiveDuration = Field(default="1d", description="Attempts older than this no longer count.")
    ladder: tuple[RungSpec, ...] = Field(
        description="Rungs, mildest first. When all are used up the node is isolated and reported."
    )
    limit: RepairLimit | None = Field(
        default=None,
        description="How often one node is repaired at most, whatever the rungs and signals. Absent: as often within "
        "7d as the ladder has attempts, which is once up the whole of it.",
    )
    ignore_xids: tuple[Annotated[int, Field(ge=1, le=9999)], ...] = Field(
        default=(), description="XID codes that say nothing about the hardware, such as 13 or 31."
    )
    host_down_after: PositiveDuration = Field(
        default="5m", description="How long both SSH and the cluster can't reach a node before it counts as down."
    )
    node_conditions: tuple[NodeConditionSpec, ...] = Field(
        default=(),
        description="Conditions of the cluster's node object that make a node unhealthy while they last, as detectors "
        "such as node-problem-detector set them. After an action a detector has ten minutes to clear its condition "
        "before the next rung of the ladder. Conditions that are not listed here are ignored.",
    )

    @field_validator("node_conditions")
    @classmethod
    def _unique(cls, conditions: tuple[NodeConditionSpec, ...]) -> tuple[NodeConditionSpec, ...]:
        types = [condition.type for condition in conditions]
        for at, name in enumerate(types):
            if name in types[:at]:
                raise ValueError(f"condition {name!r} is listed twice")
        return conditions


class RemediationPolicy(Resource):
    """The actions to try on an unhealthy node."""

    kind: Literal["RemediationPolicy"] = Field(description="RemediationPolicy.")
    spec: RemediationPolicySpec = Field(description="The ladder and its limits.")
