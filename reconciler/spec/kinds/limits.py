"""How many nodes may be out of service, when they may be taken out, and what no plan may do."""

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
    except (ValueError, OverflowError):  # overflow: of the last hours of the year 9999, west of Greenwich
        aware = False
    if not aware:
        raise ValueError(f"{text!r} is not a moment with an offset; write it like 2027-06-30T18:00:00Z")


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
        default=tuple(Day), min_length=1, description="Days on which they begin. Absent: on every day."
    )
    begin: Begin = Field(alias="from", description="Local time at which they begin.")
    end: End = Field(alias="to", description="Local time at which they end; if that is not later, on the next day.")
    timezone: Annotated[str, Checked(_timezone)] = Field(description="IANA time zone of these times.")

    @model_validator(mode="after")
    def _last(self) -> Hours:
        if self.begin == self.end:
            raise ValueError("from and to are the same; a whole day is from 00:00 to 24:00")
        return self


class Window(Hours):
    """When nodes may be taken out of service. What brings a node back is always allowed."""

    kind: WindowKind = Field(
        description="allow: only then (or in other such windows), and the work must fit in. deny: not then; deny wins."
    )
    reason: Text | None = Field(default=None, description="Why; shown with whatever it holds up.")


class PoolsWindow(Window):
    """When nodes of some pools, or of all, may be taken out of service. What brings a node back is always allowed."""

    pools: tuple[Name, ...] = Field(default=(), description="Only in these pools; none named: in all.")


Moment = Annotated[str, Checked(_instant, format="date-time")]


class BreakGlass(Model):
    """Lifts all windows, and is shown in every plan."""

    reason: Text = Field(description="Why.")
    by: Text = Field(description="Who answers for it.")
    until: Moment = Field(description="Moment at which windows hold again, like 2027-06-30T18:00:00Z.")


class Hold(Model):
    """Forbids acting on nodes. Once applied it stands until `reconciler release`, even when it is deleted here."""

    reason: Text = Field(description="Why; everybody who finds a node held will read it.")
    owner: Text = Field(description="Who answers for it, and is to be asked.")
    until: Moment | None = Field(
        default=None, description="Moment at which it ends, like 2027-06-30T18:00:00Z. Absent: until it is released."
    )


class Budget(Model):
    """How many nodes of each `scope` may be out of service at once. The smallest limit that applies rules."""

    scope: Annotated[str, Matching(r"[a-z][a-z0-9-]{0,62}", "fleet, pool or a failure-domain label")] = Field(
        description="fleet, pool, or a failure-domain label such as rack."
    )
    nodes: SomeNodes = Field(
        description="A count like 2 or a share like 10%, rounded up, of the active nodes in scope."
    )
    reasons: tuple[Reason, ...] | None = Field(
        default=None,
        min_length=1,
        description="Only for nodes that are taken out for one of these: remediation, drift, change (of the spec), "
        "renewal (of a certificate alone). A reason without any limit is held to one node of the fleet.",
    )
    per: PositiveDuration | None = Field(
        default=None,
        description="Makes it a rate: so many may be newly taken out within any period this long. It then does not "
        "limit how many are out at once.",
    )
    during: Hours | None = Field(default=None, description="Only at these hours. Absent: always.")


def _trips(text: str) -> None:
    if parse_nodes(text, 100) == 0:
        raise ValueError(f"{text!r} brakes for nothing; write at least 1 or 1%")
    if text.strip() == "100%":
        raise ValueError(f"{text!r} brakes nothing: no more than all can go bad; write 99% at most")


Tripping = Annotated[NodeShare, Checked(_trips, minimum=1, pattern=r"^0*[1-9]\d*$|^0*[1-9]\d?%$")]


class Brake(Model):
    """When more nodes than this go bad within a while, nothing that disrupts begins until `reconciler resume`.

    Bad: not ready, reached over no way, off, or with a fault of the hardware, and not taken out by anybody before.
    """

    fleet: Tripping = Field(
        default="10%", description="Of the fleet's active nodes: a count like 5 or a share like 10%, of 3 at least."
    )
    domain: Tripping = Field(
        default="50%",
        description="Of the active nodes of one failure domain, such as one rack; a share of 2 nodes at least.",
    )
    within: PositiveDuration = Field(
        default="10m", description="How close to each other they go bad, as they are first seen to be."
    )


class Guards(Model):
    """A plan beyond one of these is refused as a whole. A count, or a share rounded up, of the active nodes."""

    reimage: NodeShare = Field(default="20%", description="Most nodes that one plan may reimage.")
    reboot: NodeShare = Field(default="30%", description="Most nodes that one plan may reboot, flash or reimage.")
    forget: NodeShare = Field(
        default="5%", description="Most nodes, of those once converged, that may be missing from the spec at once."
    )
