"""Checks of a Kubernetes API server and an account against what the driver relies on, over that driver.

What only reads is tried first. What writes marks and unmarks a node that a person named, or asks for an eviction that a
PodDisruptionBudget has to refuse: nothing is left behind by a server that does what it says.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlencode

from reconciler.drivers.kube import objects
from reconciler.drivers.kube.failures import KubeFailure
from reconciler.drivers.kube.kubectl_cluster import KubectlCluster
from reconciler.drivers.kube.process import Kubectl
from reconciler.drivers.kube.rights import CHECKPOINT_RIGHTS, EVENT_RIGHTS, QUEUE_RIGHTS, RIGHTS, SURGE_RIGHTS, Right
from reconciler.drivers.kube.watch import NodeWatch
from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Member, Pod, Silent
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, read_mark

_NODES: Final = "/api/v1/nodes"
_OURS: Final = "conformance"  # as the ledger of our mark
_MOST: Final = 3  # pages that are read, and names that a message has
_OTHER_UID: Final = "00000000-0000-4000-8000-000000000000"
_WATCH_S: Final = 2
_HEARD_S: Final = 5.0
_ROUNDS: Final = 3
_AWAY: Final = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.BUSY})


@dataclass
class Bench:
    """The cluster. `node`, `pod` (NAMESPACE/NAME): what may be written to; "" = none was named."""

    cluster: KubectlCluster
    kubectl: Kubectl
    watch: Callable[[], NodeWatch]
    now: Callable[[], datetime]
    timeout_s: float
    node: str = ""
    pod: str = ""
    about: dict[str, str] = field(default_factory=dict)

    async def read(self, path: str, kind: str | None = None) -> objects.Json:
        return objects.document(await self.kubectl.raw("get", path), kind)

    async def member(self, name: str) -> Member:
        found = await self.cluster.member(name)
        if found is None:
            raise WrongAnswerError(f"the cluster has no node {name}")
        return found


# --- what only reads -------------------------------------------------------------------------------------------------


async def _answers(bench: Bench) -> None:
    found = await bench.cluster.state()
    if isinstance(found, Silent):
        kind = Failure(found.reason.value)
        if kind is Failure.UNSUPPORTED:
            raise WrongAnswerError(found.detail)
        raise DriverError(kind, found.detail)
    state = found.value
    bench.about |= {"server": f"Kubernetes {state.server_version}", "client": f"kubectl {state.client_version}"}


async def _rights(bench: Bench) -> None:
    lacking = await bench.cluster.missing_rights(RIGHTS)
    expect(not lacking, f"the account may not {_list(lacking)}: grant deploy/kubernetes/rbac.yaml")
    everything = Right("*", "*", "as an administrator", group="*")
    if everything not in await bench.cluster.missing_rights((everything,)):
        bench.about["account"] = "an administrator's account, which says nothing of the reconciler's"


def _optional(rights: Sequence[Right], how: str) -> Callable[[Bench], Awaitable[None]]:
    async def asked(bench: Bench) -> None:
        wanted = set(rights)
        lacking = [one for one in await bench.cluster.missing_rights(tuple(rights)) if one in wanted]
        if lacking:
            raise DriverError(Failure.UNSUPPORTED, f"the account may not {_list(lacking)}: {how}")

    return asked


def _list(rights: Sequence[Right]) -> str:
    return "; ".join(map(str, rights))


async def _eviction(bench: Bench) -> None:
    listed = await bench.read("/api/v1", "APIResourceList")
    rows = [one for one in objects.maps_of(listed, "resources") if one.get("name") == "pods/eviction"]
    expect(bool(rows), "it has no pods/eviction, so pods could only be deleted, past every PodDisruptionBudget")
    of = [f"{one.get('group')}/{one.get('version')}" for one in rows if one.get("kind") == "Eviction"]
    expect(bool({"policy/v1", "policy/v1beta1"}.intersection(of)), f"it takes evictions of {of}, and none of policy/v1")


async def _pages(bench: Bench) -> None:
    names, token = list[str](), ""
    for _ in range(_MOST):
        query = urlencode({"limit": "1"} | ({"continue": token} if token else {}))
        page = await bench.read(f"{_NODES}?{query}", "NodeList")
        items = objects.maps_of(page, "items")
        expect(len(items) <= 1, f"a list with limit=1 has {len(items)} items")
        names += [objects.name(one) for one in items]
        token = str(objects.map_of(page, "metadata").get("continue") or "")
        if not token:
            break
    if len(names) < 2 and not token:
        raise DriverError(Failure.UNSUPPORTED, "it has fewer than two nodes, so no list has a second page")
    expect(len(set(names)) == len(names), f"pages of one list repeat {_first(names)}")


async def _fields(bench: Bench) -> None:
    nodes = objects.maps_of(await bench.read(f"{_NODES}?limit=1", "NodeList"), "items")
    for node, version in ((objects.name(one), text) for one in nodes for text in ("", "0")):
        selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        query = urlencode({"fieldSelector": selector} | ({"resourceVersion": version} if version else {}))
        found = [objects.pod(one) for one in objects.maps_of(await bench.read(f"/api/v1/pods?{query}"), "items")]
        wrong = [pod.name for place, pod in found if place != node or pod.phase in ("Succeeded", "Failed")]
        expect(not wrong, f"asked for the live pods of {node}, it lists {_first(wrong)}, which are not")
    nowhere = urlencode({"fieldSelector": f"spec.nodeName={_nowhere()}"})
    found = [objects.pod(one) for one in objects.maps_of(await bench.read(f"/api/v1/pods?{nowhere}"), "items")]
    expect(not found, f"asked for pods of a node that is not there, it lists {_first([pod.name for _, pod in found])}")


async def _not_there(bench: Bench) -> None:
    found = await bench.cluster.member(_nowhere())
    expect(found is None, "it has a node of a name that nobody gave")


async def _watch(bench: Bench) -> None:
    listed = await bench.read(f"{_NODES}?limit=1", "NodeList")
    since = str(objects.map_of(listed, "metadata").get("resourceVersion") or "")
    expect(bool(since), "a list has no resourceVersion, at which a watch could begin")
    query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": since, "timeoutSeconds": str(_WATCH_S)}
    began = time.monotonic()
    try:
        async with aclosing(
            bench.kubectl.lines(["get", "--raw", f"{_NODES}?{urlencode(query)}"], _WATCH_S + bench.timeout_s)
        ) as lines:
            async for line in lines:
                kind, _ = objects.event(line)
                known = kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
                expect(known, f"an event is of the type {kind}")
    except KubeFailure as failure:
        raise WrongAnswerError(f"a watch of {_WATCH_S} s: {failure.problem.detail}") from failure
    took = time.monotonic() - began
    expect(took > _WATCH_S / 2, f"a watch of {_WATCH_S} s ended after {took:.1f} s: something between ends streams")


def _nowhere() -> str:
    return f"reconciler-conformance-{secrets.token_hex(4)}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


# --- what writes -----------------------------------------------------------------------------------------------------


async def _idle(bench: Bench) -> Member:
    """Return the node that may be written to, if nobody uses it or has it marked."""
    if not bench.node:
        raise DriverError(Failure.UNSUPPORTED, "no node was named with --node")
    found = await bench.member(bench.node)
    if _is_ours(found):  # an earlier run was ended, or the server went away, between mark and unmark
        found = await _put_back(bench)
    works = [pod.name for pod in found.pods if pod.evictable]
    if works:
        raise DriverError(Failure.UNSUPPORTED, f"{bench.node} runs {_first(works)}: name a node that nobody uses")
    if found.unschedulable or OWNER_ANNOTATION in found.annotations:
        whose = "marked by a reconciler" if OWNER_ANNOTATION in found.annotations else "cordoned by somebody"
        raise DriverError(Failure.UNSUPPORTED, f"{bench.node} is {whose}: name a node that nobody uses")
    return found


def _mark(bench: Bench) -> Mark:
    return Mark(_OURS, _OURS, "reconciler conformance", bench.now().isoformat(), cordoned=True)


def _is_ours(member: Member) -> bool:
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    return mark is not None and mark.ledger == _OURS


async def _put_back(bench: Bench) -> Member:
    """Take our mark from the node. Return it as it is then. An error says what is left there, and what went before."""
    earlier = sys.exception()
    try:
        return await _unmarked(bench)
    except (DriverError, KubeFailure, WrongAnswerError) as error:
        said = f"{error}" if earlier is None else f"{error}; before that: {earlier}"
        raise WrongAnswerError(
            f"{bench.node} may still be cordoned, with the taint {MARK_TAINT} and the annotation {OWNER_ANNOTATION} "
            f"({said}): run the suite again, which takes them off, or type kubectl uncordon {bench.node}; "
            f"kubectl taint nodes {bench.node} {MARK_TAINT}-; "
            f"kubectl annotate node {bench.node} {OWNER_ANNOTATION}-"
        ) from error


async def _unmarked(bench: Bench) -> Member:
    """Take our mark away, also where others wrote to the node meanwhile."""
    for _ in range(_ROUNDS):
        found = await bench.member(bench.node)
        if not _is_ours(found):
            return found  # ours never came there, and a cordon is not ours to lift
        try:
            await bench.cluster.unmark(found, uncordon=True)
        except DriverError as error:
            if error.kind is not Failure.CONFLICT:
                raise
            continue
        return await bench.member(bench.node)
    raise WrongAnswerError(f"{bench.node} changes all the time")


async def _write_mark(bench: Bench) -> None:
    before = await _idle(bench)
    try:
        await bench.cluster.mark(before, _mark(bench))
        during = await bench.member(bench.node)
        expect(during.unschedulable, "the node was cordoned, and is schedulable")
        expect(OWNER_ANNOTATION in during.annotations, "the annotation with the owner was written, and is not there")
        expect(any(one.key == MARK_TAINT for one in during.taints), "the taint was written, and is not there")
        try:
            await bench.cluster.mark(before, replace(_mark(bench), reason="of a reader that is behind"))
        except DriverError as error:
            expect(
                error.kind is Failure.CONFLICT, f"a write to an older state ends with {error}, and not as a conflict"
            )
        else:
            raise WrongAnswerError("a write to an older state of the node is taken: two writers undo each other")
    finally:
        after = await _put_back(bench)
    for what in ("unschedulable", "labels", "annotations", "taints"):
        was, now = getattr(before, what), getattr(after, what)
        expect(_plain(was) == _plain(now), f"{what} of {bench.node} are {now} afterwards, and were {was}")


def _plain(value: object) -> object:
    """Leave out the taint by which the controllers say that a node is cordoned: they follow in their own time."""
    if not isinstance(value, tuple):
        return value
    return {one for one in value if one.key != "node.kubernetes.io/unschedulable"}


async def _write_watch(bench: Bench) -> None:
    await _idle(bench)
    heard, troubles, watch = asyncio.Event(), list[str](), bench.watch()

    async def listen() -> None:
        async with aclosing(watch.changes(troubles.append)) as names:
            async for name in names:
                if name == bench.node:
                    heard.set()

    listening = asyncio.create_task(listen())
    try:
        with suppress(TimeoutError):  # a write before the first list, which is long in a large cluster, is no change
            async with asyncio.timeout(_MOST * bench.timeout_s):
                await watch.listed.wait()
        for _ in range(_ROUNDS):
            try:
                await bench.cluster.mark(await _idle(bench), _mark(bench))
                async with asyncio.timeout(_HEARD_S):
                    await heard.wait()
            except TimeoutError:
                pass  # a watch may have ended just then: the next change is heard
            finally:
                await _put_back(bench)
            if heard.is_set():
                return
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    why = next(filter(None, troubles), "no event came")
    raise WrongAnswerError(f"{_ROUNDS} changes of {bench.node} were not heard within {_HEARD_S:g} s: {why}")


async def _write_eviction(bench: Bench) -> None:
    """Ask for an eviction by another UID, and one that a budget forbids. Both leave the pod where it is."""
    pod = await _pod(bench)
    if not pod.evictable or pod.terminating_since is not None:
        raise DriverError(Failure.UNSUPPORTED, f"{bench.pod} is no pod that a drain evicts, or ends already")
    if pod.phase != "Running" or not pod.ready:  # servers evict those that don't run without asking a budget
        raise DriverError(Failure.UNSUPPORTED, f"{bench.pod} is {pod.phase}, and not ready: its budget is not asked")
    try:
        await bench.cluster.evict(replace(pod, uid=_OTHER_UID), grace_s=None)
    except DriverError as error:  # a server that asks the budget before it compares UIDs says 429, as 1.20 does
        if error.kind is not Failure.BUSY:
            raise
    await _stays(bench, pod, "an eviction by another UID, as of an earlier pod of that name,")
    try:
        await bench.cluster.evict(pod, grace_s=None)
    except DriverError as error:
        expect(error.kind is Failure.BUSY, f"an eviction that a budget forbids ends with {error}, and not with 429")
        expect("budget" in error.detail.lower(), f"the refusal names no budget: {error.detail}")
    else:
        raise WrongAnswerError(
            f"{bench.pod} was evicted: no PodDisruptionBudget protected it, or the server does not ask them"
        )
    await _stays(bench, pod, "an eviction that was refused")


async def _pod(bench: Bench) -> Pod:
    if not bench.pod:
        raise DriverError(Failure.UNSUPPORTED, "no pod was named with --pod")
    namespace, _, name = bench.pod.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return objects.pod(await bench.read(path, "Pod"))[1]


async def _stays(bench: Bench, pod: Pod, after: str) -> None:
    try:
        now = await _pod(bench)
    except KubeFailure as failure:
        if not failure.problem.not_found("pods"):
            raise
        raise WrongAnswerError(f"{after} took the pod away") from failure
    expect(now.uid == pod.uid and now.terminating_since is None, f"{after} ended the pod")


_DRIVER: Final = "reconciler/drivers/kube/kubectl_cluster.py"
_API: Final = "Kubernetes API concepts"
_CHECKPOINTS: Final = tuple(right for rights in CHECKPOINT_RIGHTS.values() for right in rights)
_ROLE: Final = "deploy/kubernetes"
READS: Final[tuple[Probe[Bench], ...]] = (
    (Check("answers", f"{_DRIVER}: state", "the cluster is unknown, and no node is drained"), _answers),
    (Check("rights", "SelfSubjectAccessReview; reconciler/drivers/kube/rights.py", "drains stop half way", ("H1",)),
     _rights),
    (Check("event-rights", f"{_ROLE}/rbac.yaml", "a channel that is `kubernetes` is silent"),
     _optional(EVENT_RIGHTS, f"grant {_ROLE}/rbac.yaml where a channel is `kubernetes`")),
    (Check("checkpoint-rights", f"{_ROLE}/rbac-checkpoint.yaml", "work is not asked to save its state", ("H9",)),
     _optional(_CHECKPOINTS, f"grant {_ROLE}/rbac-checkpoint.yaml where a Persona has `checkpoint`")),
    (Check("surge-rights", f"{_ROLE}/rbac-adjust.yaml", "no replica is ready before one is evicted", ("H8",)),
     _optional(SURGE_RIGHTS, f"grant {_ROLE}/rbac-adjust.yaml where a Persona has `surge`")),
    (Check("queue-rights", f"{_ROLE}/rbac-adjust.yaml", "queues of Kueue are not stopped", ("H11",)),
     _optional(QUEUE_RIGHTS, f"grant {_ROLE}/rbac-adjust.yaml where a Persona stops queues")),
    (Check("eviction-api", "Eviction, policy/v1 or policy/v1beta1", "nothing is drained", ("H1",)), _eviction),
    (Check("pages", f"{_API}: retrieving large results in chunks", "a large cluster is read in part"), _pages),
    (Check("field-selectors", "spec.nodeName and status.phase of pods", "pods of other nodes are evicted", ("H6",)),
     _fields),
    (Check("not-there", f"{_API}: 404 with details.kind", "a node that is gone is taken for an outage", ("H7",)),
     _not_there),
    (Check("watch", f"{_API}: efficient detection of changes", "changes are seen by the next pass"), _watch),
)  # fmt: skip
WRITES: Final[tuple[Probe[Bench], ...]] = (
    (Check("write-mark", f"{_API}: resourceVersion in updates; RFC 6902", "marks of others are overwritten",
           ("H3", "H4", "H5"), writes="cordon, taint and annotation of the node of --node, which it takes away"),
     _write_mark),
    (Check("write-watch", f"{_API}: watch", "changes are seen by the next pass",
           writes="the same of that node, up to three times"), _write_watch),
    (Check("write-eviction", "Eviction: preconditions and PodDisruptionBudget", "pods are evicted that must not be",
           ("H1", "H6"), writes="asks for evictions of the pod of --pod, which its budget must refuse"),
     _write_eviction),
)  # fmt: skip
ALL: Final = tuple(check for check, _ in (*READS, *WRITES))


def _told(probe: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
    """Let what is no answer of a Kubernetes API fail the check that it was an answer to."""

    async def tried(bench: Bench) -> None:
        try:
            await probe(bench)
        except KubeFailure as failure:
            raise failure.problem.of_read() from failure

    return tried


async def check_cluster(bench: Bench, address: str, *, writes: bool) -> ConformanceReport:
    """Try the checks. A server that refuses us, or does not answer, is asked once. Without `writes` nothing changes."""
    fails, probes = frozenset(Failure) - _AWAY, [(check, _told(probe)) for check, probe in (*READS, *WRITES)]
    found = await run_probes(probes, bench, writes=writes, fails=fails, first="answers")
    return ConformanceReport("kubernetes", address, found, bench.about)
