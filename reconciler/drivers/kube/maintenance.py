"""Read the objects by which other operators maintain nodes, where a cluster has their APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure, malformed
from reconciler.model.errors import Failure
from reconciler.model.maintenance import OPERATORS, MaintenanceRequest, Operator
from reconciler.model.observed import Member

GROUPS: Final = "/apis"

# Reads every page of a list: path, kind, what becomes of an item.
Lists = Callable[[str, str, Callable[[objects.Json], Any]], Awaitable[list[Any]]]


class MaintenanceRequests:
    """The requests of a cluster. Which of these APIs it has is read by `find`, and kept until the next time."""

    def __init__(self, get: Callable[[str], Awaitable[bytes]], lists: Lists) -> None:
        self._get = get
        self._lists = lists
        self._paths: dict[Operator, str] | None = None  # of those that the cluster has

    async def find(self) -> tuple[Operator, ...]:
        """Read which APIs the cluster has. Any account may: system:discovery is bound to all that authenticate."""
        groups = objects.document(await self._get(GROUPS), "APIGroupList").get("groups")
        if not isinstance(groups, list):
            raise malformed("a list of API groups without groups")
        served = {group.get("name"): group for group in groups if isinstance(group, dict)}
        self._paths = {
            one: f"{GROUPS}/{one.group}/{_version(served[one.group], one.version)}/{one.resource}"
            for one in OPERATORS
            if one.group in served
        }
        return tuple(self._paths)

    async def read(self) -> Callable[[Member], Member]:
        """Return what adds to a member the requests that name it."""
        if self._paths is None:
            await self.find()
        assert self._paths is not None
        # All are awaited, also when one fails: a request that is left alone would outlive this call.
        answers = await asyncio.gather(*map(self._of, self._paths), return_exceptions=True)
        named: dict[str, list[MaintenanceRequest]] = {}
        unread: list[MaintenanceRequest] = []
        for operator, answer in zip(self._paths, answers, strict=True):
            if isinstance(answer, KubeFailure) and answer.problem.kind is Failure.AUTH:
                unread.append(operator.unreadable(answer.problem.detail))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for node, request in answer:
                    named.setdefault(node, []).append(request)

        def add(member: Member) -> Member:
            found = sorted([*named.get(member.name, ()), *unread])
            return replace(member, requests=tuple(found)) if found else member

        return add

    async def _of(self, operator: Operator) -> list[tuple[str, MaintenanceRequest]]:
        """Return (node, request) of each object; none where the group lacks this resource, as an older release may."""
        assert self._paths is not None
        try:
            found = await self._lists(
                self._paths[operator], f"{operator.kind}List", lambda item: list(operator.requests(item))
            )
        except KubeFailure as failure:
            if failure.problem.code == 404:
                return []
            raise
        return [pair for pairs in found for pair in pairs]


def _version(group: Mapping[str, Any], known: str) -> str:
    """Return the version to read: the one that is known, or else the one that the server prefers."""
    versions = [one.get("version") for one in group.get("versions") or () if isinstance(one, dict)]
    preferred = group.get("preferredVersion")
    found = preferred.get("version") if isinstance(preferred, dict) else None
    return known if known in versions or not isinstance(found, str) else found
