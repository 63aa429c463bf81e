"""Watch which nodes of a cluster change. It says which nodes to read, and gives no facts (DESIGN section 8).

A list is followed by watches that each continue where the last one ended. They use `get --raw` (see process.py): every
kubectl from 1.20 on prints each event at once, and only it takes a resourceVersion, so that an interrupted watch costs
no second list of ten thousand nodes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure, Problem, malformed
from reconciler.drivers.kube.process import Kubectl
from reconciler.model.errors import Failure
from reconciler.model.observed import UNSCHEDULABLE, Member
from reconciler.model.own_writes import OwnWrites

_NODES: Final = "/api/v1/nodes"
_PAGE: Final = 2000
_RENEW_S: Final = 300.0  # a connection that died silently is noticed by then
_LEAST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 5.0  # for so long, at most, the watch stays deaf once the server is back
_WORKED_S: Final = 10.0  # a watch that lasted this long was not refused
_ANSWER_S: Final = 2.0
_ANSWER_POLL_S: Final = 0.02
_GONE: Final = 410


class NodeWatch:
    """A watch on a cluster's nodes. `kubeconfig`, `context`: see KubectlCluster.

    `timeout_s`: for one list. `renew_s`: how long one watch lasts. `own`: writes that are no news.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None,
        context: str | None,
        kubectl: str = "kubectl",
        timeout_s: float,
        renew_s: float = _RENEW_S,
        own: OwnWrites | None = None,
    ) -> None:
        self._kubectl = Kubectl(kubectl, kubeconfig, context, timeout_s)
        self._timeout_s = timeout_s
        self._renew_s = renew_s
        self._own = own or OwnWrites()
        self.listed = asyncio.Event()  # the nodes were listed: from then on no change is missed

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Yield names of nodes that came, went, or changed in a condition, a taint, a label or schedulability.

        It never ends by itself: begin it before the first pass over the fleet, and leave it with `aclosing` or by
        cancelling. Heartbeats are no changes. `tell` is called with the reason when the watch fails, once per problem,
        and with "" when it works again.
        """
        nodes, pauses, trouble = _Nodes(self._own), _pauses(), ""
        relisted = False
        while True:
            began, heard, expired = asyncio.get_running_loop().time(), False, False
            try:
                async with aclosing(self._connection(nodes)) as names:
                    async for name in names:
                        heard = True
                        if trouble:
                            trouble = ""
                            tell("")
                        if name:
                            yield name
            except KubeFailure as failure:
                problem = failure.problem
                expired = problem.code == _GONE  # the server no longer has the events since our resourceVersion
                if problem.kind.value != trouble and not expired:
                    trouble = problem.kind.value
                    tell(problem.detail)
                if expired or problem.kind is Failure.MALFORMED:
                    nodes.revision = ""
            if heard or asyncio.get_running_loop().time() - began > _WORKED_S:
                pauses = _pauses()
            relisted = expired and not relisted  # a server that answers so is up: list at once, but not for ever
            if not relisted:
                await asyncio.sleep(next(pauses))

    async def _connection(self, nodes: _Nodes) -> AsyncGenerator[str]:
        """Yield changes until the watch ends; "" for an event that is no change."""
        if not nodes.revision:
            for name in nodes.replace(*await self._list()):
                yield name
            self.listed.set()
            yield ""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": nodes.revision,
            "timeoutSeconds": f"{self._renew_s:.0f}",
        }
        arguments = ["get", "--raw", f"{_NODES}?{urlencode(query)}"]
        async with aclosing(self._kubectl.lines(arguments, self._renew_s + self._timeout_s)) as lines:
            async for line in lines:
                kind, item = objects.event(line)
                await self._answered(objects.name(item))
                yield nodes.take(kind, item)

    async def _answered(self, node: str) -> None:
        """Wait until our own writes to the node have their answers, which say what they wrote; but not for long."""
        ends = asyncio.get_running_loop().time() + _ANSWER_S
        while self._own.are_under_way(node) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - rare and short
            await asyncio.sleep(_ANSWER_POLL_S)

    async def _list(self) -> tuple[list[Member], str]:
        """Return every node, and the list's resourceVersion."""
        found: list[Member] = []
        token = ""
        while True:
            query = {"limit": str(_PAGE)} | ({"continue": token} if token else {})
            text = await self._kubectl.run(["get", "--raw", f"{_NODES}?{urlencode(query)}"])
            items, token, revision = objects.page_at(text, "NodeList", objects.member)
            found += items
            if not token:
                if not revision:
                    raise malformed("a list without a resourceVersion")
                return found, revision


def _pauses() -> Iterator[float]:
    """Yield the pauses between attempts. They differ, so that many watchers don't come back together."""
    longest = _LEAST_PAUSE_S
    while True:
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load
        longest = min(2 * longest, _LONGEST_PAUSE_S)


class _Nodes:
    """The last state of each node as a hash, which is enough to see a change."""

    def __init__(self, own: OwnWrites) -> None:
        self._own = own
        self.revision = ""  # "": they have to be listed
        self._known: dict[str, int] | None = None

    def replace(self, members: list[Member], revision: str) -> list[str]:
        """Replace all nodes; return the names that changed, none the first time."""
        before, self._known = self._known, {member.name: _state_hash(member) for member in members}
        self.revision = revision
        if before is None:
            return []
        return [name for name in {**before, **self._known} if before.get(name) != self._known.get(name)]

    def take(self, kind: str, item: objects.Json) -> str:
        """Take an event; return the name of the node that changed, or ""."""
        if kind == "ERROR":
            raise _watch_failure(item)
        if kind == "BOOKMARK":
            self.revision = objects.revision(item)
            return ""
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            raise malformed(f"an event of type {kind}")
        member = objects.member(item)
        self.revision = member.resource_version
        assert self._known is not None
        before, now = self._known.pop(member.name, None), None
        if kind != "DELETED":
            now = self._known[member.name] = _state_hash(member)
        return member.name if before != now and self.revision not in self._own else ""


def _state_hash(member: Member) -> int:
    return hash(
        (
            member.uid,
            member.unschedulable,
            frozenset(member.conditions.items()),
            frozenset(member.labels.items()),
            frozenset(taint for taint in member.taints if taint.key != UNSCHEDULABLE),
        )
    )


def _watch_failure(status: objects.Json) -> KubeFailure:
    problem = Problem(Failure.UNREACHABLE, f"the watch ended: {status.get('message') or status.get('reason')}", status)
    return KubeFailure(problem)
