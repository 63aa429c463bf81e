"""`KubectlCluster`, which implements ports.Cluster with the installed kubectl (DESIGN sections 5 and 8)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from reconciler.drivers.deprecated_apis import METRIC, parse_deprecated
from reconciler.drivers.kube import objects, patches
from reconciler.drivers.kube.adjustments import KubeAdjustments
from reconciler.drivers.kube.failures import KubeFailure, Problem
from reconciler.drivers.kube.maintenance import MaintenanceRequests
from reconciler.drivers.kube.process import INSTALL_HINT, Kubectl
from reconciler.drivers.kube.rights import REVIEWS, RIGHTS, Right, is_allowed, maintenance_rights
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure
from reconciler.model.interning import share
from reconciler.model.k3s import DeprecatedApi
from reconciler.model.observed import Answered, ClusterState, Member, Pod, Silent, Taint
from reconciler.model.own_writes import OwnWrites
from reconciler.model.records import Mark
from reconciler.model.vocab import SignalTo

OLDEST_CLIENT = (1, 20)
_TAKES_POLICY_V1 = (1, 22)  # servers from this version on; older ones have only the beta
_PAGE = 2000  # 12 MB of JSON: parsing it holds up the event loop for 0.15 s; every page costs a child of 40 ms CPU
_NODES = "/api/v1/nodes"
# Finished pods use nothing on a node, and may outnumber the others. The server filters them out.
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"

_CACHE = "0"  # as resourceVersion: whatever the server has in memory

T = TypeVar("T")


class KubectlCluster(Confined):
    """A cluster, reached with kubectl. The constructor does no I/O. `timeout_s`: for one kubectl, by the wall clock.

    `kubeconfig=None` means whatever kubectl finds by itself (KUBECONFIG, ~/.kube/config, the pod's account); a path
    means that file and nothing else.

    `keep`: keep one kubectl running from the first read of a single node on, as more follow; `lasting`: from the first
    read of any kind on. `close` ends it.

    `own`: notes what is written, for a NodeWatch.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None,
        context: str | None,
        kubectl: str = "kubectl",
        timeout_s: float,
        now: Callable[[], datetime],
        keep: bool = False,
        lasting: bool = False,
        own: OwnWrites | None = None,
    ) -> None:
        self._kubectl = Kubectl(kubectl, kubeconfig, context, timeout_s)
        self._keep = keep or lasting
        self._lasting = lasting
        self._now = now
        self._own = own or OwnWrites()
        self._versions: tuple[str, str] | None = None
        self._requests = MaintenanceRequests(lambda path: self._kubectl.raw("get", path), self._list)
        self._adjustments = KubeAdjustments(self._object, self._kubectl.merge)

    async def close(self) -> None:
        await self._kubectl.close()

    # --- reads ---------------------------------------------------------------------------------------------------

    async def state(self) -> Answered[ClusterState] | Silent:
        if self._lasting:
            await self._kubectl.keep()
        try:
            nodes = await self._list(_NODES, "NodeList", objects.member)
            pods = await self._list("/api/v1/pods", "PodList", objects.pod, f"spec.nodeName!=,{_LIVE}")
            await self._requests.find()
            add_requests = await self._requests.read()
            client, server = await self._read_versions()
        except KubeFailure as failure:
            problem = await self._old_client() or failure.problem
            return Silent(self._now(), problem.unknown(), problem.detail)
        by_node: dict[str, list[Pod]] = {}
        for node, pod in pods:
            by_node.setdefault(node, []).append(pod)
        members = {
            node.name: share(add_requests(replace(node, pods=tuple(by_node.get(node.name, ()))))) for node in nodes
        }
        return Answered(self._now(), ClusterState(client, server, members))

    async def member(self, node: str, *, cached: bool = False) -> Member | None:
        """Read the node before its pods, which are then at least as new as its cordon.

        Not `cached`, the pods are a quorum read: for it the server decodes every pod of the cluster, and drops those
        of other nodes. Measured at 5,000 pods, that costs it 78 ms of CPU; from its cache, 2.7 ms.
        """
        if self._keep:
            await self._kubectl.keep()
        try:
            cache = _CACHE if cached else ""
            query = f"?resourceVersion={cache}" if cached else ""
            found = await self._get(f"{_NODES}/{quote(node, safe='')}{query}", "Node", "nodes")
            if found is None:
                return None
            pods = await self._list("/api/v1/pods", "PodList", objects.pod, f"spec.nodeName={node},{_LIVE}", cache)
            return (await self._requests.read())(objects.member(found, [pod for _, pod in pods]))
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure

    async def missing_rights(self, wanted: Sequence[Right] = RIGHTS) -> tuple[Right, ...]:
        """Ask the API server which rights this account lacks. Raise DriverError when it gives no answer.

        Those for other operators' objects are wanted where the cluster has them.
        """
        try:
            wanted = (*wanted, *maintenance_rights(await self._requests.find()))
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure
        # All are awaited, also when one fails: a question that is left alone would outlive this call.
        asked = (self._kubectl.raw("create", REVIEWS, one.question()) for one in wanted)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        missing = []
        for one, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, KubeFailure):
                raise answer.problem.of_read() from answer
            if isinstance(answer, BaseException):
                raise answer
            if not is_allowed(answer):
                missing.append(one)
        return tuple(missing)

    async def deprecated_apis(self) -> tuple[DeprecatedApi, ...]:
        """Return the deprecated APIs that this API server was asked for since it started. AUTH: it is forbidden to ask.

        Each API server counts for itself, and this is the one that answers.
        """
        try:
            text = (await self._kubectl.raw("get", "/metrics")).decode(errors="replace")
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure
        try:
            return parse_deprecated(line for line in text.splitlines() if line.startswith(f"{METRIC}{{"))
        except ValueError as error:
            raise DriverError(Failure.MALFORMED, str(error)) from error

    # --- writes on the node object -------------------------------------------------------------------------------

    async def mark(self, member: Member, mark: Mark) -> None:
        """Set our mark; `mark.cordoned` decides whether `unschedulable` is set, see patches.mark."""
        await self._patch(member, patches.mark(member, mark))

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        await self._patch(member, patches.unmark(member, uncordon=uncordon))

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        await self._patch(member, patches.set_labels(member, labels, taints))

    async def remove(self, member: Member) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": member.uid}}
        try:
            with self._own.to(member.name):
                await self._send("delete", f"/api/v1/nodes/{quote(member.name, safe='')}", body)
        except KubeFailure as failure:
            problem = failure.problem  # 409: the object of this name has another UID, so the one that was meant is gone
            if not problem.not_found("nodes") and problem.code != 409:
                raise problem.of_write() from failure

    async def _patch(self, member: Member, operations: list[patches.Operation]) -> None:
        if not operations:
            return
        try:
            with self._own.to(member.name):
                self._own.add(await self._kubectl.patch_node(member.name, json.dumps(operations)))
        except KubeFailure as failure:
            problem = failure.problem
            # REJECTED: a path in the patch may be gone, which a server finds before it compares resourceVersions.
            rejected = problem.kind is Failure.REJECTED
            changed = problem.not_found("nodes") or (rejected and await self._has_changed(member))
            raise (DriverError(Failure.CONFLICT, problem.detail) if changed else problem.of_write()) from failure

    async def _has_changed(self, member: Member) -> bool:
        try:
            current = await self.member(member.name)
        except DriverError:
            return False  # the server's answer to the patch is all that is known
        return current is None or current.resource_version != member.resource_version

    # --- writes on pods ------------------------------------------------------------------------------------------

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        """Evict exactly this pod (by UID, pitfall H6), through the eviction API, which honours budgets."""
        newer = await self._takes_policy_v1()
        try:
            try:
                await self._create_eviction(pod, grace_s, "policy/v1" if newer else "policy/v1beta1")
            except KubeFailure as failure:
                if not _is_other_version(failure.problem):
                    raise
                try:
                    await self._create_eviction(pod, grace_s, "policy/v1beta1" if newer else "policy/v1")
                except KubeFailure as second:
                    # Neither: the first 400 was no question of versions. An admission webhook says no with one, too.
                    raise failure if _is_other_version(second.problem) else second from None
        except KubeFailure as failure:
            await self._raise_unless_gone(pod, failure)

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | _delete_options(pod, grace_s)
        try:
            await self._send("delete", _path(pod), body)
        except KubeFailure as failure:
            await self._raise_unless_gone(pod, failure)

    # --- asking pods ---------------------------------------------------------------------------------------------

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a pod. Its UID is in the patch: the server refuses to change that of another pod."""
        patch = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        try:
            await self._kubectl.merge(_path(pod), f"pods/{pod.name}", pod.namespace, json.dumps(patch))
        except KubeFailure as failure:
            await self._raise_unless_gone(pod, failure)

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:
        try:
            await self._kubectl.raw("create", _proxy_path(pod, port, path), body.encode())
        except KubeFailure as failure:
            if not failure.problem.not_found("pods"):
                raise failure.problem.of_write() from failure

    async def answers(self, pod: Pod, port: int, path: str) -> bool:
        try:
            await self._kubectl.raw("get", _proxy_path(pod, port, path))
        except KubeFailure:
            return False
        return True

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:  # noqa: ARG002 - the port's signature
        raise DriverError(Failure.UNSUPPORTED, f"{pod.name} is no job of Slurm, and gets no signals")

    def adjustments(self) -> KubeAdjustments:
        return self._adjustments

    async def _create_eviction(self, pod: Pod, grace_s: float | None, version: str) -> None:
        body = {
            "kind": "Eviction",
            "apiVersion": version,
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": _delete_options(pod, grace_s),
        }
        await self._send("create", f"{_path(pod)}/eviction", body)

    async def _send(self, verb: str, path: str, body: Mapping[str, Any]) -> None:
        """Send a body. MALFORMED when the answer is no object: then it is not from an API server."""
        objects.document(await self._kubectl.raw(verb, path, json.dumps(body).encode()))

    async def _raise_unless_gone(self, pod: Pod, failure: KubeFailure) -> None:
        """Raise the failure, unless the pod is gone, which is success (pitfall H7), even if its name is reused."""
        problem = failure.problem
        if problem.not_found("pods") or (problem.code == 409 and await self._is_gone(pod)):
            return
        error = problem.of_write()
        if problem.kind is Failure.BUSY:  # the causes name the PodDisruptionBudget, kubectl's line doesn't
            detail = "; ".join(problem.causes or (problem.detail,))
            error = DriverError(Failure.BUSY, detail, retry_after=error.retry_after)
        raise error from failure

    async def _is_gone(self, pod: Pod) -> bool:
        try:
            found = await self._get(_path(pod), "Pod", "pods")
            return found is None or objects.pod(found)[1].uid != pod.uid
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure

    async def _takes_policy_v1(self) -> bool:
        try:
            number = _number((await self._read_versions())[1])
        except KubeFailure:
            return True  # the server's answer to the eviction decides
        return number is None or number >= _TAKES_POLICY_V1

    # --- kubectl -------------------------------------------------------------------------------------------------

    async def _read_versions(self) -> tuple[str, str]:
        """Read client and server versions, once and with one kubectl. KubeFailure when the client is too old.

        After what is read raw: `kubectl version` hides a connection that breaks behind ten seconds of retries.
        """
        if self._versions is None:
            found = objects.document(await self._kubectl.run(["version", "--output=json"]))
            client = objects.client_version(found)
            if problem := _too_old(client):
                raise KubeFailure(problem)
            self._versions = client, objects.server_version(found)
        return self._versions

    async def _old_client(self) -> Problem | None:
        """Return why the client is too old, which is why reads fail that are not known to have worked; else None."""
        if self._versions is not None:
            return None
        try:
            output = await self._kubectl.run(["version", "--client", "--output=json"])
            return _too_old(objects.client_version(objects.document(output)))
        except KubeFailure:
            return None  # what the reads said tells more

    async def _get(self, path: str, kind: str, resource: str) -> objects.Json | None:
        try:
            return objects.document(await self._kubectl.raw("get", path), kind)
        except KubeFailure as failure:
            if failure.problem.not_found(resource):
                return None
            raise

    async def _object(self, path: str) -> objects.Json | None:
        """Return an object; None where there is none, or the server has no such resource."""
        try:
            return objects.document(await self._kubectl.raw("get", path))
        except KubeFailure as failure:
            if failure.problem.code == 404:
                return None
            raise

    async def _list(
        self, path: str, kind: str, convert: Callable[[objects.Json], T], selector: str = "", version: str = ""
    ) -> list[T]:
        """Read every page. When a token expires (410), start again, once: a list is of one moment."""
        try:
            return await self._pages(path, kind, convert, selector, version)
        except KubeFailure as failure:
            if failure.problem.code != 410:
                raise
        return await self._pages(path, kind, convert, selector, version)

    async def _pages(
        self, path: str, kind: str, convert: Callable[[objects.Json], T], selector: str, version: str
    ) -> list[T]:
        """Read and convert page by page: the JSON of 10,000 pods at once would take 400 MB."""
        found: list[T] = []
        token = ""
        while True:
            # A token carries the version of its list, and is refused beside another one.
            query = {"limit": str(_PAGE), "fieldSelector": selector, "continue": token}
            query |= {"resourceVersion": "" if token else version}
            url = f"{path}?{urlencode({key: value for key, value in query.items() if value})}"
            items, token = objects.page(await self._kubectl.raw("get", url), kind, convert)
            found += items
            if not token:
                return found


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"


def _proxy_path(pod: Pod, port: int, path: str) -> str:
    """Return the path by which the API server reaches a port of a pod, wherever we are."""
    return f"{_path(pod)}:{port}/proxy{quote(path)}"


def _delete_options(pod: Pod, grace_s: float | None) -> dict[str, Any]:
    """Return delete options for this UID. `grace_s=None` keeps the pod's own grace period."""
    grace = {} if grace_s is None else {"gracePeriodSeconds": int(grace_s)}
    return {"preconditions": {"uid": pod.uid}} | grace


def _is_other_version(problem: Problem) -> bool:
    """Say whether the server has another version of the eviction API: 400, or a 404 that is not for the pod."""
    return problem.code == 400 or (problem.code == 404 and not problem.not_found("pods"))


def _too_old(client: str) -> Problem | None:
    """Return the problem of a client that would fail later, and less clearly."""
    if (number := _number(client)) is None or number >= OLDEST_CLIENT:
        return None
    return Problem(Failure.UNSUPPORTED, f"kubectl {client} is too old; {INSTALL_HINT}")


def _number(version: str) -> tuple[int, int] | None:
    """Return (1, 32) for "v1.32.4-gke.7"."""
    found = re.match(r"v(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
