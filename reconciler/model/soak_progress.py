"""The progress of a soak: what its reconciler saw last, as the journal keeps it and as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from reconciler.model.units import MAX_DURATION_S, format_duration

JOURNALED: Final = "soak_progress"  # key in the intent of the attempt


@dataclass(frozen=True, slots=True)
class SoakProgress:
    """`seconds`: the declared time. `done_s`: how much of it was over at the look, which found no bad sign."""

    seconds: int
    done_s: int
    looked_at: datetime

    @property
    def ends_at(self) -> datetime:
        """Return the end of the declared time. The load that runs then is waited for, so the soak may take longer."""
        return self.looked_at + timedelta(seconds=max(0, self.seconds - self.done_s))

    @property
    def words(self) -> str:
        percent = min(100, 100 * self.done_s // self.seconds)
        left = max(0, self.seconds - self.done_s)
        return (
            f"soak: {percent} %, {format_duration(self.done_s)} of {format_duration(self.seconds)}, "
            f"{format_duration(left)} left, ends about {_minute(self.ends_at)}"
        )

    def under_way(self, now: datetime) -> str:
        """Return how far it is for people who ask at any time, also where nobody has looked at it for long."""
        ago = format_duration(max(0.0, (now - self.looked_at).total_seconds()))
        ends = f"ends about {_minute(self.ends_at)}"
        if self.ends_at < now:
            ends = f"its time was over about {_minute(self.ends_at)}, and nobody has read yet what came of it"
        return (
            f"soak: {format_duration(self.done_s)} of {format_duration(self.seconds)} and no bad sign "
            f"when last looked at {ago} ago; {ends}"
        )

    def journaled(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "done_s": self.done_s, "looked_at": self.looked_at.isoformat()}


def progress_of(intent: Mapping[str, Any]) -> SoakProgress | None:
    """Return the progress that an attempt journaled last; None where there is none, or none that can be read."""
    match intent.get(JOURNALED):
        case {"seconds": int(seconds), "done_s": int(done_s), "looked_at": str(looked_at)} if (
            0 < seconds <= MAX_DURATION_S and 0 <= done_s <= MAX_DURATION_S
        ):
            pass
        case _:
            return None
    try:
        at = datetime.fromisoformat(looked_at)
    except ValueError:
        return None
    return SoakProgress(seconds, done_s, at) if at.tzinfo is not None else None


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
