"""The port of metrics. The contract is that of model/ports.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from reconciler.model.notices import ChannelStatus
from reconciler.model.status import FleetStatus, LoopStatus
from reconciler.model.vocab import NewsSource


class Metrics(Protocol):
    """Numbers of a long-running reconciler, for monitoring. No call fails or waits."""

    def loop_status(self, status: LoopStatus) -> None:
        """Set the status of the loop."""

    def passed(self, fleet: FleetStatus) -> None:
        """Replace what the last pass found."""

    def planned(self, made: int, kept: int, wrong: int) -> None:
        """Count nodes whose plans a pass made, kept from earlier ones, and, once an hour, found to be kept wrongly."""

    def acting(self, node: str, action: str, step: str) -> None:
        """Set what is being done to a node, and how far that is. `action`: with its target; "": nothing any more."""

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        """Count an action that ended. `action`: its catalogue name without a target; `seconds`: of the fleet's time."""

    def deaf(self, source: NewsSource, since: datetime | None) -> None:
        """Set since when a source of news can't be heard, or that of some node. None: all can, or nobody listens."""

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        """Replace how the channels do that people are told through, by name."""
