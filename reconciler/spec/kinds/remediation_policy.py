"""RemediationPolicy: what is tried on an unhealthy node, in which order, and how often."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from reconciler.spec.kinds.base import Model, PositiveDuration, Resource


class RungAction(StrEnum):
    SOFT_RESTART = "soft_restart"
    POWER_CYCLE = "power_cycle"
    REIMAGE = "reimage"


class RungSpec(Model):
    """One step of the ladder."""

    action: RungAction = Field(description="soft_restart, power_cycle or reimage.")
    attempts: int = Field(default=1, ge=1, le=10, description="Tries within the window before the next step.")


class RemediationPolicySpec(Model):
    """The ladder and its limits."""

    window: PositiveDuration = Field(default="1d", description="Attempts older than this are forgotten.")
    ladder: tuple[RungSpec, ...] = Field(
        description="Steps, mildest first. When all are used up the node is isolated and reported."
    )
    ignore_xids: tuple[Annotated[int, Field(ge=1, le=9999)], ...] = Field(
        default=(), description="XID codes that say nothing about the hardware, such as 13 or 31."
    )
    host_down_after: PositiveDuration = Field(
        default="5m", description="How long SSH and the cluster both miss a node before it counts as down."
    )


class RemediationPolicy(Resource):
    """What is tried on an unhealthy node."""

    kind: Literal["RemediationPolicy"] = Field(description="RemediationPolicy.")
    spec: RemediationPolicySpec = Field(description="The ladder and its limits.")
