"""The end of a signal that was played in the lab: when its node was out, what healed it, and who was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PERSON: Final = "person"  # who comes when the ladder is at its end
OUT: Final = "it is out of service"
NEEDED: Final = "it needs a repair"
OVER: Final = "it is over"


@dataclass(frozen=True, slots=True)
class PlayedSignal:
    """The end of a cause that `rung` ends and no milder one; "" for a row that is only reported.

    Seconds are since the sign. `out_s`: when it was out of service, or, of what is only reported, shown. `shown`: the
    signals of its node then. `did`: the rungs that were climbed, "soft_restart!transient" for one that failed.
    `back_s`: when it served for good. None: that did not happen. `told`: OUT, NEEDED, OVER. `unplayed`: why it was not
    played; "" = it was.
    """

    signal: str
    rung: str
    shown: tuple[str, ...] = ()
    out_s: float | None = None
    did: tuple[str, ...] = ()
    back_s: float | None = None
    told: tuple[str, ...] = ()
    unplayed: str = ""

    @property
    def took_a_person(self) -> bool:
        """Say whether a person was needed where the rung was to heal: the node came back, but not by it."""
        return self.rung not in ("", PERSON) and NEEDED in self.told

    @property
    def trouble(self) -> str:
        """The fault of this end, in words; "" = it has none."""
        if self.unplayed:
            return ""
        if self.out_s is None:
            return "nobody saw it"
        if self.rung and self.back_s is None:
            return "its node does not come back"
        if self.took_a_person:
            return "a person was needed before it"
        return "nobody was told" if self.rung and not self.told else ""
