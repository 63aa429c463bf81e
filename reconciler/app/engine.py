"""The engine of a request: whose workers read the nodes in place of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.app.ports import FleetRequest
from reconciler.drivers.engine.access import EngineAccess
from reconciler.model.observer_port import Observer
from reconciler.model.ports import Clock


class Engine:
    """An engine, or none. Raise UsageError unless it is reached over mutual TLS."""

    def __init__(self, request: FleetRequest) -> None:
        self.access = None if request.engine is None else EngineAccess(request.engine, request.engine_tls)
        if self.access is not None:
            self.access.check()

    def observer(self, clock: Clock, revoked: Callable[[], Sequence[str]]) -> Observer | None:
        """Return what reads nodes on workers; None without an engine. `revoked`: host keys that are never trusted."""
        if self.access is None:
            return None
        from reconciler.drivers.engine.observer import EngineObserver

        return EngineObserver(self.access, clock, revoked)
