"""Which nodes of a cluster have changed, as soon as they do. Where to look, and no facts (DESIGN section 8).

A list, then watches that each go on where the last one ended. `get --raw` again (see process.py): every kubectl from
1.20 on prints each event as it comes, and it alone takes a resourceVersion, so that a watch which was interrupted costs
no second list of ten thousand nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure, Problem, malformed
from reconciler.drivers.kube.process import Kubectl
from reconciler.model.errors import Failure
from reconciler.model.observed import Member

_NODES: Final = "/api/v1/nodes"
_PAGE: Final = 2000
_RENEW_S: Final = 300.0  # a connection that died without a word is noticed by then
_LEAST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_WORKED_S: Final = 10.0  # a watch that lasted so long was none that the server turns away
_GONE: Final = 410


class NodeWatch:
    """`kubeconfig` and `context` as of KubectlCluster. `timeout_s`: what one list may take.

    `renew_s`: how long one watch lasts.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None,
        context: str | None,
        kubectl: str = "kubectl",
        timeout_s: float,
        renew_s: float = _RENEW_S,
    ) -> None:
        self._kubectl = Kubectl(kubectl, kubeconfig, context, timeout_s)
        self._timeout_s = timeout_s
        self._renew_s = renew_s

    async def changes(self, tell: Callable[[str], None] = lambda _problem: None) -> AsyncGenerator[str]:
        """Names of nodes that came, went, or changed in a condition, a taint, a label or whether pods may go there.

        It never ends by itself: begin it before the first look at the fleet, and leave it with `aclosing` or by
        cancelling. Heartbeats are no changes. `tell` is told why there is nothing to be heard, once per problem, and ""
        when there is again.
        """
        nodes, pause, trouble = _Nodes(), _LEAST_PAUSE_S, ""
        while True:
            began, heard = asyncio.get_running_loop().time(), False
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
                if problem.kind.value != trouble and not _expired(problem):
                    trouble = problem.kind.value
                    tell(problem.detail)
                if _expired(problem) or problem.kind is Failure.MALFORMED:
                    nodes.revision = ""
            if heard or asyncio.get_running_loop().time() - began > _WORKED_S:
                pause = _LEAST_PAUSE_S
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _connection(self, nodes: _Nodes) -> AsyncGenerator[str]:
        """Changes until the watch ends. "" for a sign of life that is no change."""
        if not nodes.revision:
            for name in nodes.replace(*await self._list()):
                yield name
            yield ""
        query = {
            "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": nodes.revision,
            "timeoutSeconds": f"{self._renew_s:.0f}",
        }  # fmt: skip
        arguments = ["get", "--raw", f"{_NODES}?{urlencode(query)}"]
        async with aclosing(self._kubectl.lines(arguments, self._renew_s + self._timeout_s)) as lines:
            async for line in lines:
                yield nodes.take(*objects.event(line))

    async def _list(self) -> tuple[list[Member], str]:
        """Every node, and the resourceVersion of that moment."""
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


class _Nodes:
    """What was last heard of each node, as a number: enough to see that it is another."""

    def __init__(self) -> None:
        self.revision = ""  # "": to be listed
        self._known: dict[str, int] | None = None

    def replace(self, members: list[Member], revision: str) -> list[str]:
        """Names that differ from what was known; none the first time."""
        before, self._known = self._known, {member.name: _mark(member) for member in members}
        self.revision = revision
        if before is None:
            return []
        return [name for name in {**before, **self._known} if before.get(name) != self._known.get(name)]

    def take(self, kind: str, item: objects.Json) -> str:
        """The name of a node that changed, or ""."""
        if kind == "ERROR":
            raise _of_status(item)
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
            now = self._known[member.name] = _mark(member)
        return member.name if before != now else ""


def _mark(member: Member) -> int:
    return hash((
        member.uid, member.unschedulable, frozenset(member.conditions.items()), frozenset(member.labels.items()),
        frozenset(member.taints),
    ))  # fmt: skip


def _of_status(status: objects.Json) -> KubeFailure:
    problem = Problem(Failure.UNREACHABLE, f"the watch ended: {status.get('message') or status.get('reason')}", status)
    return KubeFailure(problem)


def _expired(problem: Problem) -> bool:
    """What happened since our resourceVersion is not known any more."""
    return problem.code == _GONE
