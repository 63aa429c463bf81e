"""Health: the rows of the table of signals that a fleet changes or adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from reconciler.spec.kinds.base import PositiveDuration
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import Fact, First, Next, Proof, Scope, SignalClass, Unit
from reconciler.strict_yaml.models import Matching, Model, Text

RowName = Annotated[
    str,
    Matching(r"[a-z][A-Za-z0-9_./-]*", "a name of signals like edac_ce, xid_119 or condition_GpuUnhealthy"),
]
ADDED = ("fact", "contains", "scope", "cause", "source")  # fields that only a row of the fleet's own has


class SignalOverride(Model):
    """One row: what it says takes the place of what the packaged table says of the signal."""

    off: Text | None = Field(
        default=None, description="Why this fleet leaves the signal alone: it is counted as ignored. No other key then."
    )
    because: Text | None = Field(default=None, description="Why this fleet judges otherwise; shown in plans.")
    reads: int | None = Field(default=None, ge=1, le=2, description="How many readings are evidence.")
    window: PositiveDuration | None = Field(
        default=None, description="How old an event may be when it is first read, or the time `threshold` counts in."
    )
    threshold: float | None = Field(
        default=None, ge=0, description="The least value that is evidence, or the greatest that is none."
    )
    domains: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="Labels of the failure domains that may be its cause, with * and ?, like rack or pdu*: many nodes "
        "of one that show it within ten minutes are an incident of the domain, and no node is treated for it.",
    )
    first: First | None = Field(default=None, description="isolate, drain or report.")
    next: Next | None = Field(default=None, description="ladder, power or person, for what isolates or drains.")
    rungs: tuple[RungAction, ...] | None = Field(
        default=None,
        min_length=1,
        description="The rungs of the policy's ladder that may heal it; others are left out.",
    )
    service: Unit | None = Field(default=None, description="The systemd unit whose restart may heal it.")
    healed_by: tuple[Proof, ...] | None = Field(
        default=None, min_length=1, description="What proves together that it is healed."
    )
    fact: Fact | None = Field(
        default=None,
        description="Of a row of the fleet's own: bmc.events or host.kernel_events with `contains`, or host.raised for "
        "a signal of an extension.",
    )
    contains: Text | None = Field(
        default=None,
        description="Of a row of the fleet's own: the plain text that an entry of the BMC's log, or a line of the "
        "kernel log, holds, in upper or lower case.",
    )
    scope: Scope | None = Field(default=None, description="Of a row of the fleet's own: the part at fault.")
    cause: SignalClass | None = Field(
        default=None, alias="class", description="Of a row of the fleet's own: its class."
    )
    source: Text | None = Field(
        default=None, description="Of a row of the fleet's own: where its meaning is documented."
    )

    @model_validator(mode="after")
    def _says_why(self) -> SignalOverride:
        others = self.model_fields_set - {"off", "because"}
        if self.off is not None:
            if others or self.because is not None:
                raise ValueError("`off` excludes all other keys: a signal that is left alone needs no row")
        elif not others:
            raise ValueError(
                "changes nothing: give reads, window, threshold, domains, first, next, rungs, service, healedBy or off"
            )
        elif self.because is None:
            raise ValueError("no `because`: say why this fleet judges otherwise")
        return self


class Health(Model):
    """Signals of illness, as this fleet judges them otherwise than the packaged table."""

    signals: Mapping[RowName, SignalOverride] = Field(
        default={},
        description="Rows by the name of the signal. One that ends in '_' is for all signals that begin with it.",
    )
