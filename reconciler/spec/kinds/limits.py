"""Limits of a fleet: budgets, windows, holds, the brake, and guards against plans that are too large."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, model_validator

from reconciler.model.errors import did_you_mean
from reconciler.model.units import parse_nodes
from reconciler.model.vocab import Reason, WindowKind
from reconciler.spec.kinds.base import NodeShare, PositiveDuration, SomeNodes
from reconciler.strict_yaml.models import Checked, Matching, Model, Name, Text


def _timezone(text: str) -> None:
    try:
        ZoneInfo(text)
    except (LookupError, ValueError, OSError):  # unknown; not a relative path; a directory of the database
        hint = did_you_mean(text, available_timezones()) or "write it like Europe/Berlin or UTC"
        raise ValueError(f"{text!r} is not a time zone ({hint})") from None


def _instant(text: str) -> None:
    try:
        at = datetime.fromisoformat(text)
        aware = at.tzinfo is not None
        at.astimezone(UTC)
    except (ValueError, OverflowError):  # the last hours of the year 9999 west of Greenwich overflow
        aware = False
    if not aware:
        raise ValueError(f"{text!r} is not a time with an offset; write it like 2027-06-30T18:00:00Z")


class Day(StrEnum):
    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


_MINUTE = r"([01]\d|2[0-3]):[0-5]\d"
Begin = Annotated[str, Matching(_MINUTE, "a time of day like 22:00")]
End = Annotated[str, Matching(rf"{_MINUTE}|24:00", "a time of day like 06:00 or 24:00")]


class Hours(Model):
    """Hours of local time that recur every week."""

    days: tuple[Day, ...] = Field(
        default=tuple(Day), min_length=1, description="Days on which the hours begin. Absent: every day."
    )
    begin: Begin = Field(alias="from", description="Local time at which the hours begin.")
    end: End = Field(
        alias="to", description="Local time at which the hours end; on the next day if that is earlier than `from`."
    )
    timezone: Annotated[str, Checked(_timezone)] = Field(description="IANA time zone of these times.")

    @model_validator(mode="after")
    def _last(self) -> Hours:
        if self.begin == self.end:
            raise ValueError("from and to are the same; a whole day is from 00:00 to 24:00")
        return self


class Window(Hours):
    """When nodes may be taken out of service. Returning a node to service is always allowed."""

    kind: WindowKind = Field(
        description="allow: work begins only inside this or another such window, and must fit in. deny: no work begins "
        "inside this window, whatever others allow."
    )
    reason: Text | None = Field(
        default=None, description="Reason for the window; shown with the nodes that wait for it."
    )


class PoolsWindow(Window):
    """When nodes of some or all pools may be taken out of service. Returning a node to service is always allowed."""

    pools: tuple[Name, ...] = Field(default=(), description="Pools that the window is limited to. Absent: all.")


Moment = Annotated[str, Checked(_instant, format="date-time")]


class BreakGlass(Model):
    """Lifts all windows for an emergency. Every plan shows it."""

    reason: Text = Field(description="Reason.")
    by: Text = Field(description="Who is responsible.")
    until: Moment = Field(description="Time from which windows apply again, like 2027-06-30T18:00:00Z.")


class Hold(Model):
    """Forbids acting on nodes. Once applied it is active until `reconciler release`, even when it is deleted here."""

    reason: Text = Field(description="Reason, shown to everybody who finds the node held.")
    owner: Text = Field(description="Who is responsible, and answers questions.")
    until: Moment | None = Field(
        default=None, description="Time at which it ends, like 2027-06-30T18:00:00Z. Absent: when it is released."
    )


class Budget(Model):
    """How many nodes of each `scope` may be out of service at once. Of several limits, the smallest applies."""

    scope: Annotated[str, Matching(r"[a-z][a-z0-9-]{0,62}", "fleet, pool, workload or a failure-domain label")] = Field(
        description="fleet, pool, a failure-domain label such as rack, or workload: each Job, JobSet, LeaderWorkerSet, "
        "PodGroup of Kueue and training job of Kubeflow, with the nodes that its pods run on, or ran on when they were "
        "taken out."
    )
    nodes: SomeNodes = Field(
        description="A count like 2 or a share like 10%, rounded up, of the active nodes in scope."
    )
    reasons: tuple[Reason, ...] | None = Field(
        default=None,
        min_length=1,
        description="Reasons for taking nodes out that the limit applies to: remediation, drift, change (of the spec), "
        "renewal (of a certificate alone). Absent: all. A reason that no limit covers is limited to one node of the "
        "fleet.",
    )
    per: PositiveDuration | None = Field(
        default=None,
        description="Makes the limit a rate: how many nodes may be newly taken out within any period this long. It "
        "then does not limit how many are out at once.",
    )
    during: Hours | None = Field(default=None, description="Hours in which the limit applies. Absent: always.")

    @model_validator(mode="after")
    def _workload_counts(self) -> Budget:
        if self.scope == "workload" and (self.per or self.during or not self.nodes.isdigit()):
            raise ValueError("a limit of scope workload is a count like 1, at all hours, and no rate")
        return self


def _trips(text: str) -> None:
    if parse_nodes(text, 100) == 0:
        raise ValueError(f"{text!r} would trip the brake without a bad node; write at least 1 or 1%")
    if text.strip() == "100%":
        raise ValueError(f"{text!r} never trips the brake; write at most 99%")


Tripping = Annotated[NodeShare, Checked(_trips, minimum=1, pattern=r"^0*[1-9]\d*$|^0*[1-9]\d?%$")]


class Brake(Model):
    """When more nodes than this go bad at about the same time, no disruption begins until `reconciler resume`.

    A node goes bad when it is not ready, unreachable, off, or has a hardware fault, and nobody took it out before.
    """

    fleet: Tripping = Field(
        default="10%",
        description="Limit for the fleet's active nodes: a count like 5, or a share like 10% that is at least 3 nodes.",
    )
    domain: Tripping = Field(
        default="50%",
        description="Limit for the active nodes of one failure domain, such as one rack; a share is at least 2 nodes.",
    )
    within: PositiveDuration = Field(
        default="10m", description="Period within which the nodes are first observed to be bad."
    )


class Guards(Model):
    """Limits beyond which a plan is refused as a whole: counts, or shares rounded up, of the active nodes."""

    reimage: NodeShare = Field(default="20%", description="Most nodes that one plan may reimage.")
    reboot: NodeShare = Field(default="30%", description="Most nodes that one plan may reboot, flash or reimage.")
    forget: NodeShare = Field(
        default="5%", description="Most nodes that were once converged and may be missing from the spec at once."
    )
    fail_gate: NodeShare = Field(
        default="5%",
        description="Most nodes in service that may fail an acceptance test that the spec has changed, by what the "
        "ledger has measured of them.",
    )
