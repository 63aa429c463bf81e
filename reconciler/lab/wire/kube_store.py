"""Reads from the lab's cluster as in an API server: one object, a page of a list, changes since a revision."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.lab.hardware import maintenance
from reconciler.lab.hardware.control_plane import ClusterTruth, Gone, NodeObject, NotFound
from reconciler.lab.wire import kube_select as select
from reconciler.lab.wire.kube_objects import Objects, ordered, place
from reconciler.lab.wire.kube_status import ApiError, bad_request, expired, not_found
from reconciler.lab.wire.kube_workloads import Workloads
from reconciler.model.maintenance import OPERATORS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """The selection of a resource's objects. `namespace` None: all."""

    resource: str
    version: str
    namespace: str | None = None
    fields: str = ""
    labels: str = ""
    group: str = ""

    def matcher(self) -> Callable[[Json], bool]:
        by_fields, by_labels = select.by_fields(self.fields, self.resource), select.by_labels(self.labels)
        return lambda item: (
            (self.namespace is None or item["metadata"].get("namespace") == self.namespace)
            and by_fields(item)
            and by_labels(item)
        )


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Json]
    metadata: Json


class Store:
    def __init__(self, truth: ClusterTruth, objects: Objects) -> None:
        self._truth = truth
        self._objects = objects
        self._workloads = Workloads(truth)

    def get(self, query: Query, name: str) -> Json:
        try:
            if query.resource == "nodes":
                return self._objects.node(self._truth.node(name))
            if query.resource == "pods":
                return self._objects.pod(self._truth.pod(query.namespace or "", name))
        except NotFound as error:
            raise not_found(query.resource, name) from error
        matches = query.matcher()
        found = next((item for item in self._all(query) if item["metadata"]["name"] == name and matches(item)), None)
        if found is None:
            raise not_found(query.resource, name)
        return found

    def page(self, query: Query, limit: int, token: str) -> Page:
        """Return the objects from the token's position on, in order, at most `limit` (0: no limit)."""
        matches = query.matcher()
        items = ordered(item for item in self._all(query) if matches(item))
        revision = str(self._truth.revision)
        if token:
            revision, after = _read_token(token)
            self._still_known(revision)
            items = [item for item in items if place(item) > after]
        rest = len(items) - limit if limit else 0
        if rest <= 0:
            return Page(items, {"resourceVersion": revision})
        items = items[:limit]
        metadata: Json = {"resourceVersion": revision, "continue": _token(revision, place(items[-1]))}
        if not query.fields and not query.labels:
            metadata["remainingItemCount"] = rest
        return Page(items, metadata)

    def changes(self, query: Query, revision: int) -> Iterator[tuple[str, Json]]:
        """Return events of this resource after `revision` as (type, object). Raise a 410 when it is too old."""
        if query.resource not in ("nodes", "pods"):
            return  # no other resource ever changes
        wants_nodes = query.resource == "nodes"
        try:
            events = self._truth.events_since(revision)
        except Gone as error:
            raise expired(str(error)) from error
        for event in events:
            thing = event.object
            if isinstance(thing, NodeObject):
                if wants_nodes:
                    yield event.type, self._objects.node(thing)
            elif not wants_nodes:
                yield event.type, self._objects.pod(thing)

    @property
    def revision(self) -> int:
        return self._truth.revision

    def _all(self, query: Query) -> list[Json]:
        match query.resource:
            case "nodes":
                return [self._objects.node(node) for node in self._truth.nodes()]
            case "pods":
                node = select.required_field(query.fields, "spec.nodeName") or None
                return self._objects.pods(self._truth.pods(node))
            case "namespaces":
                return self._objects.namespaces()
            case "daemonsets":
                return self._objects.daemon_sets()
            case "deployments":
                return self._workloads.deployments(self._objects.time(0))
            case "replicasets":
                return self._workloads.replica_sets(self._objects.time(0))
            case "poddisruptionbudgets":
                return [self._objects.budget(each, query.version) for each in self._truth.disruption_budgets()]
            case _ if query.group in {operator.group for operator in OPERATORS}:
                return maintenance.objects(self._truth.machines, query.group)
            case _:
                return []

    def _still_known(self, revision: str) -> None:
        try:
            self._truth.events_since(int(revision))
        except Gone as error:
            raise expired("The provided continue parameter is too old to display a consistent list result.") from error


def _token(revision: str, after: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, *after]).encode()).decode()


def _read_token(token: str) -> tuple[str, tuple[str, str]]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        int(revision)
    except (ValueError, TypeError) as error:
        raise _bad_token() from error
    return revision, (namespace, name)


def _bad_token() -> ApiError:
    return bad_request("continue key is not valid")
