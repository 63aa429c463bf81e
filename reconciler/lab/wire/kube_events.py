"""The Events that clients write: kept by name, without the hour after which a real server drops them."""

from __future__ import annotations

from typing import Any

from reconciler.lab.wire import kube_status as status

Json = dict[str, Any]


class WrittenEvents:
    def __init__(self) -> None:
        self.events: dict[str, Json] = {}
        self._revision = 0

    def get(self, name: str) -> Json:
        if name not in self.events:
            raise status.not_found("events", name)
        return self.events[name]

    def write(self, method: str, name: str, event: Json) -> tuple[Json, int]:
        """Carry out a POST or a PUT; return the Event and the status of the answer."""
        return (self._create(event), 201) if method == "POST" else (self._replace(name, event), 200)

    def _create(self, event: Json) -> Json:
        name = str((event.get("metadata") or {}).get("name") or f"generated.{self._revision}")
        if name in self.events:
            raise status.already_exists("events", name)
        return self._store(name, event)

    def _replace(self, name: str, event: Json) -> Json:
        """Replace an Event under its resourceVersion."""
        known, given = self.get(name), (event.get("metadata") or {}).get("resourceVersion")
        if given not in (None, known["metadata"]["resourceVersion"]):
            raise status.conflict("events", name, "the object has been modified")
        return self._store(name, event)

    def _store(self, name: str, event: Json) -> Json:
        self._revision += 1
        metadata = {**(event.get("metadata") or {}), "name": name, "resourceVersion": str(self._revision)}
        self.events[name] = {**event, "kind": "Event", "apiVersion": "v1", "metadata": metadata}
        return self.events[name]
