"""Drain a node, so that no evictable pod runs on it (pitfalls H1-H7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from reconciler.converge.actions.adjust import Adjusting
from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.drain_waits import Waits
from reconciler.converge.actions.host import drain_by_command
from reconciler.converge.actions.membership import mark_of, tainted
from reconciler.converge.actions.serving import must_serve_without
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Member, Pod
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.plan import Blocked
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.stakes import stakes
from reconciler.model.units import format_duration
from reconciler.model.vocab import DrainProvider
from reconciler.planner.node.foreign_holds import hold_of
from reconciler.planner.node.holds import by_subject, held, stopped

ROUND_S = 3.0
WAIT_ROUND_S = 10.0  # while the work is given time, which is minutes or hours
USUAL_GRACE_S = 30.0  # Kubernetes' own default
FORCED_S = 120.0
REPEAT_S = 60.0  # repeat an unchanged progress line only so often
_PASSING = (Failure.BUSY, Failure.CONFLICT, Failure.UNREACHABLE, Failure.TIMEOUT, Failure.MALFORMED)


@action
async def drain(ctx: ActionContext) -> Outcome:
    """Drain the node by the provider that the spec names. The serving group of the node has to answer without it."""
    await must_serve_without(ctx)
    match ctx.desired.profile.drain.provider:
        case DrainProvider.KUBERNETES | DrainProvider.SLURM:
            return await _PodDrain(ctx).run()
        case DrainProvider.COMMAND:
            return await drain_by_command(ctx)
        case DrainProvider.NONE:
            return Done("the spec says that nothing has to be drained")
        case provider:
            assert_never(provider)


@dataclass(slots=True)
class _PodDrain:
    """A drain under way. Pods are known by UID: a pod of the same name elsewhere is another pod (H6).

    What the API server refuses, or does not answer, ends nothing before the deadline: each pod's refusal is noted, and
    the other pods go meanwhile.
    """

    ctx: ActionContext
    found: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)  # uid -> why, e.g. which budget
    trouble: str = ""  # why the latest look at the node failed
    member: Member | None = None
    left: Sequence[Pod] = ()
    waits: Waits = field(init=False)
    adjusting: Adjusting = field(init=False)
    _forced: bool = False  # everything is deleted, whatever its budgets say
    reported: tuple[object, float] | None = None  # what the latest progress line said, and when (monotonic)

    def __post_init__(self) -> None:
        self.waits = Waits(self.ctx)
        self.adjusting = Adjusting(self.ctx, self.waits)

    async def run(self) -> Outcome:
        """Drain the node. When it is stopped before the first eviction, the work is told that it stays."""
        try:
            return await self._run()
        except (Stop, DriverError):
            await self.waits.retract(self.left)
            if not self.asked:
                await self.adjusting.retract()
            raise

    async def _run(self) -> Outcome:
        policy, cluster, clock = self.ctx.desired.profile.drain, self.ctx.cluster, self.ctx.clock
        began, deleting = clock.monotonic(), False
        deadline = began + policy.timeout_s
        while not await self._is_over():
            if why := self._at_stake(self.left):
                raise Stop(Declined("at_stake", why))
            if not self.asked and await self._waits():
                began = clock.monotonic()
                deadline = began + policy.timeout_s
                continue
            now = clock.monotonic()
            dead = self.member is not None and self.member.is_dead(self.ctx.observed.host)
            if now >= deadline and (deleting or self.trouble or not policy.force):
                return Transient(self._blocking(deleting=deleting))
            past_grace = dead and now - began >= (policy.grace_s or USUAL_GRACE_S)
            if not deleting and not self.trouble and (past_grace or now >= deadline):
                deleting, deadline, self.asked, self._forced = True, now + FORCED_S, set(), True
                self.ctx.step(f"deleting {_pods(len(self.left))}")
            grace_s = 0.0 if deleting and dead else policy.grace_s
            await self._ask(cluster.delete if deleting else cluster.evict, grace_s, deadline)
            self._report()
            await clock.sleep(ROUND_S)
        await self.adjusting.lower(self.member)
        number = len(self.found)
        detail = f"{_pods(number)} {'deleted' if deleting else 'evicted'}" if number else "nothing to evict"
        return Done("; ".join([detail, *self.waits.result(self.asked), *self._kept()]), changed=bool(number))

    async def _waits(self) -> bool:
        """Wait a while if the work is given time before its eviction. Raise Stop if a hold has come meanwhile."""
        if self.member is None:
            return False
        why = await self.adjusting.reason(self.member, self.left, self.trouble)
        why = why or await self.waits.reason(self.member, self.left, self.trouble)
        if not why:
            return False
        if hold := self._hold():
            raise Stop(Declined("held", hold.detail))
        if others := hold_of(self.member):
            raise Stop(Declined("foreign_hold", others))
        self._tell(why)
        await self.ctx.clock.sleep(WAIT_ROUND_S)
        return True

    def _hold(self) -> Blocked | None:
        """Return what forbids to act on the node since the drain began: it has not lost anything yet."""
        holds, now = by_subject((), self.ctx.ledger.holds()), self.ctx.clock.now()
        return stopped(holds, now) or held(self.ctx.desired, self.ctx.record, holds, now)

    # --- reading ---

    async def _is_over(self) -> bool:
        """Look at the node; return whether nothing is left to go. A look that fails leaves what was known before."""
        try:
            self.member = await self._look()
        except DriverError as error:
            if error.kind not in _PASSING:
                raise
            self.trouble = str(error)
            return False
        self.trouble = ""
        self.left = self._left(self.member)
        self.found |= {pod.uid for pod in self.left}
        return not self.left

    async def _look(self) -> Member | None:
        """Read the node from the server's cache. What would end the drain is believed from a consistent read alone.

        Raise Stop if our mark is gone: new pods would come (H5).
        """
        cached = await self.ctx.cluster.member(self.ctx.node, cached=True)
        if cached is not None and self._ours(cached) and (left := self._left(cached)) and not self._at_stake(left):
            return cached
        member = await self.ctx.cluster.member(self.ctx.node)
        if member is not None and not self._ours(member):
            mark_of(member, self.ctx.ledger.id)
            raise Stop(Declined("not_marked", "the node does not carry our mark, so it can't be drained"))
        return member

    def _at_stake(self, pods: Sequence[Pod]) -> str:
        policy = self.ctx.desired.profile.drain
        return stakes(pods, policy).refusal(policy)

    def _ours(self, member: Member) -> bool:
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        return mark is not None and mark.ledger == self.ctx.ledger.id and tainted(member) and member.unschedulable

    def _left(self, member: Member | None) -> Sequence[Pod]:
        if member is None:
            return ()  # no node object, no pods (H7)
        return member.work(self.ctx.observed.host, self.ctx.clock.now())

    # --- writing ---

    async def _ask(self, remove: Callable[..., Awaitable[None]], grace_s: float | None, deadline: float) -> None:
        """Ask for the removal of each pod, once; of one that was refused, in each round.

        Pods on which others depend go last and together, the largest workload at the end. They stay while another pod
        is refused, so that a budget that never yields costs no job its progress.
        """
        if self.trouble:
            return
        alone = [pod for pod in self.left if pod.workload is None]
        await self._remove(alone, remove, grace_s, deadline)
        if any(pod.uid in self.refused for pod in alone) and not self._forced:
            return
        sizes = Counter(pod.workload for pod in self.left)
        rest = [pod for pod in self.left if pod.workload is not None]
        await self._remove(sorted(rest, key=lambda pod: (sizes[pod.workload], pod.workload)), remove, grace_s, deadline)

    async def _remove(
        self, pods: Sequence[Pod], remove: Callable[..., Awaitable[None]], grace_s: float | None, deadline: float
    ) -> None:
        for pod in pods:
            if pod.uid in self.asked:
                continue  # it is terminating
            if self.ctx.clock.monotonic() >= deadline:
                return
            try:
                await remove(pod, grace_s=grace_s)
            except DriverError as error:
                self.refused[pod.uid] = error.detail
            else:
                self.asked.add(pod.uid)
                self.refused.pop(pod.uid, None)

    # --- telling ---

    def _report(self) -> None:
        """Report which pods are left and why, if other pods are, another refusal is known, or it was long ago."""
        news = self.trouble, {pod.uid: self.refused.get(pod.uid) for pod in self.left}
        self._tell(self._trouble() if self.trouble else f"{_pods(len(self.left))} to go: {self._reasons(3)}", news)

    def _tell(self, text: str, news: object = None) -> None:
        """Report progress if there is news, by default another text, or the last report was long ago."""
        news, now = news or text, self.ctx.clock.monotonic()
        if self.reported is None or news != self.reported[0] or now - self.reported[1] >= REPEAT_S:
            self.ctx.step(text)
            self.reported = news, now

    def _blocking(self, *, deleting: bool) -> str:
        if self.trouble:
            return self._trouble()
        if deleting:
            return f"deleted, but still there: {self._reasons(5)}"
        limit = format_duration(self.ctx.desired.profile.drain.timeout_s)
        return f"{_pods(len(self.left))} left after {limit}: {self._reasons(5)}"

    def _trouble(self) -> str:
        return f"the node can't be read: {self.trouble}"

    def _reasons(self, most: int) -> str:
        """Return pods with the reason why each is still there. Those that were refused come first."""
        pods = sorted(self.left, key=lambda pod: (pod.uid not in self.refused, pod.namespace, pod.name))
        shown = "; ".join(f"{_name(pod)}: {self._why(pod)}" for pod in pods[:most])
        return shown + (f"; and {len(pods) - most} more" if len(pods) > most else "")

    def _why(self, pod: Pod) -> str:
        if pod.terminating_since is not None and pod.ends_at is not None:
            since = f"terminating since {pod.terminating_since:%H:%M:%SZ}"
            over = pod.ends_at <= self.ctx.clock.now()
            return f"{since}, kept{_finalizers(pod)}" if over else f"{since}, it has until {pod.ends_at:%H:%M:%SZ}"
        waits = "asked to end" if pod.uid in self.asked else "goes last, as others depend on it"
        return self.refused.get(pod.uid, waits)

    def _kept(self) -> Iterable[str]:
        """Return the pods that only a finalizer keeps, which are no work on a dead node."""
        pods = () if self.member is None else self.member.pods
        kept = [pod for pod in pods if pod.evictable and pod.uid in self.found]
        return (f"{_name(pod)} is kept{_finalizers(pod)}" for pod in kept)


def _finalizers(pod: Pod) -> str:
    return f" by finalizer {', '.join(pod.finalizers)}" if pod.finalizers else " by a kubelet that does not end it"


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
