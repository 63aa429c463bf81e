"""The state of a channel: what it was told of each notice, and when. The ledger keeps it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

from pydantic import TypeAdapter, ValidationError

from reconciler.model.notices import NoticeEvent, Severity

LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Known:
    """A notice as a channel knows it.

    `rank`: how far it has come, see `decide.rank_of`. `told`: the rank that the channel was told of; 0 = nothing yet.
    `weight`: the greatest severity that it was told. `times`: messages that told of it.
    """

    event: NoticeEvent
    subject: str
    reason: str
    detail: str
    nodes: tuple[str, ...]
    since: datetime
    rank: int
    told: int = 0
    weight: Severity | None = None
    over_at: datetime | None = None
    told_over: bool = False
    told_at: datetime = LONG_AGO
    times: int = 0


@dataclass(frozen=True, slots=True)
class ChannelState:
    """`seen_at`: the last pass that was decided on. `sent`: when the last messages were made.

    `held_since`: since when something waits for quiet hours or a digest to end. `storm_until`: nothing is said before;
    `storm_since` and `storms`: when the first of the messages that tell of many notices was made, and how many were.
    `number`: of messages, ever.
    """

    seen_at: datetime = LONG_AGO
    known: Mapping[str, Known] = field(default_factory=dict)
    sent: tuple[datetime, ...] = ()
    held_since: datetime | None = None
    storm_since: datetime = LONG_AGO
    storm_until: datetime = LONG_AGO
    storms: int = 0
    number: int = 0


def to_text(state: ChannelState) -> str:
    return _adapter().dump_json(state).decode()


def from_text(text: str) -> ChannelState:
    """Raise ValueError for what `to_text` did not write."""
    try:
        return _adapter().validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(f"the state of a channel is damaged ({error.error_count()} errors)") from None


@cache
def _adapter() -> TypeAdapter[ChannelState]:
    return TypeAdapter(ChannelState)
