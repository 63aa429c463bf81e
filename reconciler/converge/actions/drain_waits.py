"""Wait before an eviction: for finite work to end, and then for the rest to save its state (pitfall H9).

The node is cordoned meanwhile and counts as out of service. What was begun is journaled before it is done, so that the
run after a crash goes on waiting until the same time, and asks nobody twice: a request of which nobody knows whether it
arrived is not repeated. Work that did not hear of it is evicted at the deadline.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from reconciler.converge.actions.context import ActionContext
from reconciler.model.drain import DRAIN_AT, Checkpoint
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Member, Pod
from reconciler.model.records import OWNER_ANNOTATION, read_mark
from reconciler.model.vocab import CheckpointWay

HOST: Final = "host"  # in place of a pod's UID: the host was asked
_JOBS: Final = "jobs_until"
_DRAIN_AT: Final = "drain_at"
_ASKED: Final = "asked"
SURGED: Final = "surge_until"
HELD: Final = "queues_until"
_MARKED: Final = "marked_at"
COMMAND_S: Final = 60.0
# Failures after which an annotation is set again: it is the same one, so nobody is asked twice.
PASSING: Final = frozenset(Failure) - {Failure.AUTH, Failure.REJECTED, Failure.UNSUPPORTED}


@dataclass(slots=True)
class Waits:
    """The waits of a drain before it evicts. `at`: instants of the journal, by what they are of."""

    ctx: ActionContext
    at: dict[str, datetime] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)  # the same by the monotonic clock: a wall clock may be set
    asked: list[str] = field(default_factory=list)  # UIDs of pods, or HOST
    ready: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)  # UID -> why it won't save its state
    _marked: str = ""
    _begun: bool = False

    async def reason(self, member: Member, pods: Sequence[Pod], trouble: str) -> str:
        """Return what is waited for, in words; "" when the pods may be evicted. `trouble`: they can't be read now."""
        policy = self.ctx.desired.profile.drain
        if not (policy.wait_for_jobs_s or policy.checkpoint) or member.is_dead(self.ctx.observed.host):
            return ""  # no pod of a dead node runs, and none can answer
        self._begin(member)
        going = [pod for pod in pods if pod.terminating_since is None]
        if self._signals:
            self._ended({pod.uid for pod in going})
        if policy.wait_for_jobs_s and (found := [pod for pod in going if pod.finite]):
            until = self._until(_JOBS, policy.wait_for_jobs_s)
            if not self.is_over(_JOBS):
                last = max((pod.due_at for pod in found if pod.due_at is not None), default=None)
                known = last is not None and all(pod.due_at is not None for pod in found)
                due = f", the last by {clock_time(last)}" if known and last is not None else ""
                return f"waits until {clock_time(until)} for finite work to end: {names(found)}{due}"
        if policy.checkpoint is None or not going:
            return ""
        return await self._checkpoint(policy.checkpoint, going, trouble)

    async def retract(self, pods: Iterable[Pod]) -> None:
        """Take the request back from the pods, as they are not evicted now, and forget it: the next one is new."""
        wanted = self.at.get(_DRAIN_AT)
        if wanted is None:
            return
        self.ctx.journal(**{_DRAIN_AT: "", _ASKED: []})
        for pod in pods:
            if pod.checkpoint is not None and pod.checkpoint.asked == wanted.isoformat():
                try:
                    await self.ctx.cluster.annotate(pod, {DRAIN_AT: None})
                except DriverError as error:
                    self.ctx.step(f"{pod.namespace}/{pod.name} is not told that it stays: {error}")

    def result(self, evicted: Container[str]) -> Iterable[str]:
        """Return how the requests ended, for the outcome of the drain. `evicted`: UIDs of those that were."""
        if not self.asked:
            return
        if self._signals:
            self._ended(evicted)
        if saved := len(self.ready):
            yield (
                "the work saved its state" if HOST in self.asked else f"{saved} of {len(self.asked)} saved their state"
            )
        if self.refused:
            yield f"no checkpoint: {'; '.join(sorted(set(self.refused.values()))[:3])}"
        elif not saved:
            yield f"no checkpoint by {clock_time(self.at[_DRAIN_AT])}"

    @property
    def _signals(self) -> bool:
        policy = self.ctx.desired.profile.drain.checkpoint
        return policy is not None and policy.way is CheckpointWay.SIGNAL

    def _ended(self, others: Container[str]) -> None:
        """Note which of the jobs that were signalled ended by themselves: all but `others`. They saved their state."""
        self.ready |= {uid for uid in self.asked if uid not in self.refused and uid not in others}

    # --- the journal ---

    def _begin(self, member: Member) -> None:
        """Take up what an earlier attempt at this drain has begun; one under another mark was another drain."""
        if self._begun:
            return
        self._begun = True
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        self._marked = "" if mark is None else mark.at
        for known in (self.ctx.resumed, self.ctx.ledger.before(self.ctx.attempt)):
            if known.get(_MARKED) == self._marked:
                self._take_up(known)
                break
        self.ctx.journal(
            **{_MARKED: self._marked, _ASKED: self.asked}, **{name: at.isoformat() for name, at in self.at.items()}
        )

    def _take_up(self, known: Mapping[str, Any]) -> None:
        for name in (_JOBS, _DRAIN_AT, SURGED, HELD):
            if known.get(name):
                self._set(name, datetime.fromisoformat(known[name]))
        self.asked = [str(uid) for uid in known.get(_ASKED, ())]

    def _until(self, name: str, seconds: float) -> datetime:
        """Return when a wait ends, which is journaled when it begins."""
        if name not in self.at:
            self._set(name, (self.ctx.clock.now() + timedelta(seconds=seconds)).replace(microsecond=0))
            self.ctx.journal(**{name: self.at[name].isoformat()})
        return self.at[name]

    def _set(self, name: str, at: datetime) -> None:
        self.at[name] = at
        self.ends[name] = self.ctx.clock.monotonic() + (at - self.ctx.clock.now()).total_seconds()

    def limit(self, member: Member, name: str, seconds: float) -> datetime:
        """Return until when something is waited for in this drain, by whichever run."""
        self._begin(member)
        return self._until(name, seconds)

    def forget(self, *names: str) -> None:
        """Forget these limits: the next wait is a new one."""
        for name in names:
            if self.at.pop(name, None) is not None:
                self.ctx.journal(**{name: ""})

    def is_over(self, name: str) -> bool:
        return self.ctx.clock.monotonic() >= self.ends[name]

    # --- checkpoints ---

    async def _checkpoint(self, policy: Checkpoint, going: Sequence[Pod], trouble: str) -> str:
        by_host = policy.way is CheckpointWay.COMMAND
        able = [] if by_host else [pod for pod in going if policy.asks(pod)]
        if not able and not by_host:
            return ""
        until = self._until(_DRAIN_AT, policy.timeout_s)
        if self.is_over(_DRAIN_AT):
            return ""
        if not trouble:
            whom: list[tuple[str, Pod | None]] = [(HOST, None)] if by_host else [(pod.uid, pod) for pod in able]
            for uid, pod in whom:
                await self._ask(policy, uid, pod, until)
                await self._look(policy, uid, pod, until)
        open_ones = [pod for pod in able if pod.uid not in self.ready and pod.uid not in self.refused]
        waits = bool(open_ones) or (by_host and HOST not in self.ready and HOST not in self.refused)
        who = names(open_ones) if open_ones else "the work of the host"
        return f"asked to save its state, it has until {clock_time(until)}: {who}" if waits else ""

    async def _ask(self, policy: Checkpoint, uid: str, pod: Pod | None, until: datetime) -> None:
        """Ask once, whatever becomes of it: it is journaled before. An annotation shows by itself that it was set."""
        shown = pod is not None and pod.checkpoint is not None and pod.checkpoint.asked == until.isoformat()
        if uid in self.asked and (shown or policy.way is not CheckpointWay.ANNOTATION):
            return
        if uid not in self.asked:
            self.asked.append(uid)
            self.ctx.journal(**{_ASKED: self.asked})
        try:
            await self._request(policy, pod, until)
        except DriverError as error:
            if error.kind not in (PASSING if policy.way is CheckpointWay.ANNOTATION else {Failure.AMBIGUOUS}):
                self.refused[uid] = f"{_name(pod)}: {error.detail}"
                self.ctx.step(f"no checkpoint: {self.refused[uid]}")

    async def _request(self, policy: Checkpoint, pod: Pod | None, until: datetime) -> None:
        match policy.way:
            case CheckpointWay.ANNOTATION:
                assert pod is not None
                await self.ctx.cluster.annotate(pod, {DRAIN_AT: until.isoformat()})
            case CheckpointWay.HTTP:
                assert pod is not None
                await self.ctx.cluster.post(pod, policy.port, policy.path, f'{{"drainAt":"{until.isoformat()}"}}')
            case CheckpointWay.SIGNAL:
                assert pod is not None
                await self.ctx.cluster.signal(pod, policy.signal, policy.to)
            case CheckpointWay.COMMAND:
                await self._command(policy.ask)
            case way:
                assert_never(way)

    async def _look(self, policy: Checkpoint, uid: str, pod: Pod | None, until: datetime) -> None:
        """Look whether the work is ready. An answer to another request than this one counts for nothing."""
        if uid in self.ready or uid in self.refused:
            return
        if pod is None:
            ready = await self._is_ready(policy.ready)
        elif policy.way is CheckpointWay.HTTP:
            ready = await self._answers(pod, policy)
        elif policy.way is CheckpointWay.SIGNAL:
            return  # it has saved its state when it has ended: `result` counts that
        else:
            ready = pod.checkpoint is not None and pod.checkpoint.answer == until.isoformat()
        if ready:
            self.ready.add(uid)

    async def _answers(self, pod: Pod, policy: Checkpoint) -> bool:
        try:
            return await self.ctx.cluster.answers(pod, policy.port, policy.path)
        except DriverError:
            return False  # no answer in time is a no

    async def _command(self, argv: Sequence[str]) -> None:
        """Run a command on the host. REJECTED when it fails."""
        result = await self.ctx.host.run(argv, timeout=max(2.0, self.ctx.clock.real_seconds(COMMAND_S)))
        if result.timed_out:
            raise DriverError(Failure.AMBIGUOUS, f"{argv[0]} did not end within {COMMAND_S:g}s")
        if result.exit_status:
            raise DriverError(Failure.REJECTED, f"{argv[0]} exits with {result.exit_status}")

    async def _is_ready(self, argv: Sequence[str]) -> bool:
        try:
            await self._command(argv)
        except DriverError:
            return False
        return True


def names(pods: Sequence[Pod], most: int = 3) -> str:
    """Return the first pods by name, and how many more there are."""
    shown = ", ".join(sorted(map(_name, pods))[:most])
    return shown + (f" and {len(pods) - most} more" if len(pods) > most else "")


def _name(pod: Pod | None) -> str:
    return "the host" if pod is None else f"{pod.namespace}/{pod.name}"


def clock_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"
