"""WATCH: the changes of a resource as a stream of JSON lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from reconciler.lab.wire.kube_objects import place
from reconciler.lab.wire.kube_status import ApiError
from reconciler.lab.wire.kube_store import Query, Store

POLL_S = 0.1  # ClusterTruth advances when it is read; a watcher reads it this often
_BOOKMARK_S = 10.0
_INITIAL_END = "k8s.io/initial-events-end"

Json = dict[str, Any]


async def events(
    store: Store, query: Query, *, since: str, timeout_s: float, bookmarks: bool, initial: bool, head: Json
) -> AsyncIterator[Json]:
    """Yield the changes after `since`; for "" or "0" present objects first, as ADDED. `head`: kind and apiVersion."""
    matches = query.matcher()
    shown: set[tuple[str, str]] = set()
    if since in ("", "0") or initial:
        for item in store.page(query, 0, "").items:
            shown.add(place(item))
            yield {"type": "ADDED", "object": item}
        revision = store.revision
        if initial:
            yield _bookmark(head, revision, {_INITIAL_END: "true"})
    else:
        revision = int(since)
        shown.update(place(item) for item in store.page(query, 0, "").items)
    ends, next_bookmark = time.monotonic() + timeout_s, time.monotonic() + _BOOKMARK_S
    while (now := time.monotonic()) < ends:
        try:
            changes = list(store.changes(query, revision))
        except ApiError as error:
            yield {"type": "ERROR", "object": error.body()}
            return
        revision = store.revision  # other changes are not for this watcher
        for kind, item in changes:
            event = _seen(kind, item, matches, shown)
            if event is not None:
                yield event
        if bookmarks and now >= next_bookmark:
            next_bookmark = now + _BOOKMARK_S
            yield _bookmark(head, revision, {})
        await asyncio.sleep(min(POLL_S, max(0.0, ends - now)))


def _seen(kind: str, item: Json, matches: Callable[[Json], bool], shown: set[tuple[str, str]]) -> Json | None:
    """Return the event as its selector sees it: DELETED when the object leaves the selection, ADDED when it enters."""
    key = place(item)
    if kind == "DELETED" or not matches(item):
        if key not in shown and not (kind == "DELETED" and matches(item)):
            return None
        shown.discard(key)
        return {"type": "DELETED", "object": item}
    word = "MODIFIED" if key in shown and kind != "ADDED" else "ADDED"
    shown.add(key)
    return {"type": word, "object": item}


def _bookmark(head: Json, revision: int, annotations: dict[str, str]) -> Json:
    metadata = {"resourceVersion": str(revision), "creationTimestamp": None} | (
        {"annotations": annotations} if annotations else {}
    )
    return {"type": "BOOKMARK", "object": head | {"metadata": metadata, "spec": {}, "status": {}}}
