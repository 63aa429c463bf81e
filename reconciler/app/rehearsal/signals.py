"""Play what raises a signal against each rung of a fleet's own ladder, on two nodes of its spec in virtual time.

A cause is laid into a node that one remedy ends and no milder one does. The loop then does what `run` does. What is
told: when the node was out, which rungs were climbed, when it served again, and what people were told. A person comes
when the ladder is at its end. No node is contacted, and nothing is kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from reconciler.app.rehearsal.gate import RehearsalGate
from reconciler.app.rehearsal.run import lab_tools
from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.converge.observe import observe
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.health.cure import proved_by_reset
from reconciler.health.table import Effect, HealthTable, table_of
from reconciler.lab.durations import GATE_S, ActionDuration, Durations
from reconciler.lab.failure_rates import FailureRates
from reconciler.lab.fleet import build_lab
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.lab.scenario import Scenario
from reconciler.lab.signal_scenes import SCENES, Scene, own_event, own_line
from reconciler.model.after import Exchanged
from reconciler.model.desired import BudgetLimit, Desired, Fleet, Profile
from reconciler.model.errors import UsageError
from reconciler.model.gate import Binding, Certificate, GateJudgement, Verdict
from reconciler.model.limits import Brake, Guards
from reconciler.model.notices import Channel, ChannelStatus, Message, Recipient
from reconciler.model.observed import Observation, Observed
from reconciler.model.outcome import outcome_word
from reconciler.model.plan import Plan
from reconciler.model.played_signal import NEEDED, OUT, OVER, PERSON, PlayedSignal
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION
from reconciler.model.spec_feed import Pulled
from reconciler.model.status import FleetStatus, LoopStatus
from reconciler.model.vocab import DriftMode, NewsSource, NodeState
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import Next, Proof
from reconciler.spec.signals import PREFIX

INTERVAL_S, PULL_S = 120.0, 3600.0  # of the loop: the defaults of `run`, but for a spec that does not change
LONGEST_S = 8 * 3600.0  # until it is out, and until it serves
QUIET_S = 600.0  # before the sign; the machines have been up for an hour then
AFTER_S = 900.0  # in which what is over is told
_STEP_S = 1.0
_SHOWN_S = 1800.0  # the longest window of a reported row, 15 minutes, and looks until it counts
_PERSON_S = 60.0  # that a person needs, once called
_DRIVERS_WORD: Final = "gpu_recovery"
_LADDER: Final = frozenset(RungAction)


@dataclass(frozen=True, slots=True)
class Stage:
    """A fleet of two nodes, of which `node` falls ill. `gate_s`: how long a whole gate takes."""

    fleet: Fleet
    node: str
    gate_s: float = GATE_S

    @property
    def pool(self) -> str:
        return self.fleet.nodes[self.node].pool

    @property
    def profile(self) -> Profile:
        return self.fleet.nodes[self.node].profile

    @property
    def table(self) -> HealthTable:
        return table_of(self.profile)

    def rungs(self, signal: str) -> tuple[str, ...]:
        """Return the rungs of the pool's ladder that the signal's row leaves, and PERSON; none for one that reports."""
        row, policy = self.table.rule_of(signal).row, self.profile.remediation
        if row.next is None:
            return ()
        if row.next is Next.PERSON or policy is None:
            return (PERSON,)
        ladder = [rung.action for rung in policy.ladder if self._may_help(signal, rung.action)]
        return (*(rung for rung in ladder if row.rungs is None or rung in row.rungs), PERSON)

    def _may_help(self, signal: str, rung: str) -> bool:
        row = self.table.rule_of(signal).row
        if rung == "reset_bmc":
            return False  # it treats no node
        if rung == "ac_cycle" and not self.fleet.nodes[self.node].outlets:
            return False
        if rung == "restart_service":
            return row.service is not None
        if rung == "gpu_reset":
            named = RungAction.GPU_RESET in (row.rungs or ())
            return named or signal in (_DRIVERS_WORD, "xid_") or proved_by_reset(signal, row)
        return rung != "reimage" or row.next is Next.LADDER


def stage_of(fleet: Fleet, pool: str) -> Stage:
    """Return two nodes of a pool ("": the first that can be played) under what limits nobody. Raise UsageError."""
    if fleet.settings.cluster is None:
        raise UsageError("a signal is played on a fleet with a Kubernetes, and this spec declares none")
    if pool and pool not in {node.pool for node in fleet.nodes.values()}:
        raise UsageError(f"there is no pool {pool}")
    by_pool: dict[str, list[Desired]] = {}
    for node in fleet.nodes.values():
        if node.pool == pool or not pool:
            by_pool.setdefault(node.pool, []).append(node)
    chosen = next((nodes for nodes in by_pool.values() if _can_be_played(nodes)), None)
    if chosen is None:
        raise UsageError(
            f"{f'pool {pool}' if pool else 'no pool'} has two active nodes with GPUs, a BMC, a host, an acceptance "
            "profile and a remediation policy, which playing a signal takes"
        )
    nodes = {node.node: replace(node, serving=None) for node in _playable(chosen)[:2]}
    settings = replace(
        fleet.settings, drift_mode=DriftMode.CORRECT, budgets=(BudgetLimit("fleet", "100%"),), floors=(), reserves=(),
        windows=(), guards=Guards("100%", "100%", "100%"), brake=Brake("100%", "100%"), tickets=(), extensions=(),
        releases=(), notifications=(Channel("people", "people"),),
    )  # fmt: skip
    return Stage(replace(fleet, settings=settings, nodes=nodes, rollouts={}, holds=()), next(iter(nodes)))


def _can_be_played(nodes: Sequence[Desired]) -> bool:
    return len(_playable(nodes)) > 1


def _playable(nodes: Sequence[Desired]) -> list[Desired]:
    return [
        node
        for node in nodes
        if node.state is NodeState.ACTIVE
        and node.endpoints.bmc is not None
        and node.endpoints.host is not None
        and node.profile.acceptance is not None
        and node.profile.remediation is not None
        and node.profile.inventory.gpus
    ]


def cells(stage: Stage, signals: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each signal with each of its rungs; none given: those of the whole table. Raise UsageError for no row."""
    unknown = [name for name in signals if name not in stage.table.rules]
    if unknown:
        raise UsageError(f"the table of signals has no row {unknown[0]}; `reconciler explain` and its page list them")
    for name in signals or stage.table.rules:
        for rung in stage.rungs(name) or ("",):
            yield name, rung


def play_signal(stage: Stage, signal: str, rung: str) -> PlayedSignal:
    """Play a row with a cause that `rung` ends; "" for a row that is only reported."""
    own, line = stage.table.own_events.get(signal), stage.table.own_lines.get(signal)
    scene = own_event(own) if own is not None else own_line(line) if line is not None else SCENES.get(signal)
    if own is not None and rung not in ("", PERSON):
        return PlayedSignal(signal, rung, unplayed="no rung takes an entry out of a BMC's log; see the row of a person")
    if scene is None:
        return PlayedSignal(signal, rung, unplayed="the lab has no cause for it")
    image = stage.profile.image
    if scene.driver and (image is None or image.contents.get("driver") != scene.driver):
        return PlayedSignal(signal, rung, unplayed=f"drivers as of {scene.driver} show it")
    before = random.getstate()
    random.seed(f"{signal} {rung}")  # of the loop's intervals: the same cell is played the same way each time
    try:
        return _Play(stage, scene, signal, rung).play()
    finally:
        random.setstate(before)


@dataclass
class _Feed:
    """ports.SpecFeed of a spec that does not change."""

    fleet: Fleet | None
    _told: bool = False

    async def pull(self) -> Pulled:
        changed, self._told = not self._told, True
        return Pulled("", changed, "")


@dataclass
class _People:
    """notices.Messenger that keeps what people are sent."""

    told: list[Message] = field(default_factory=list)

    async def send(self, recipient: Recipient, message: Message) -> None:  # noqa: ARG002 - the port's signature
        self.told.append(message)


class _Gate(RehearsalGate):
    """A gate without the keys of images, which nobody installs here: they are taken to be signed."""

    def trust(self, desired: Desired, observed: Observed) -> GateJudgement:  # noqa: ARG002 - the port's signature
        return GateJudgement(True, Verdict.PASS)


class _NoMetrics:
    """ports.Metrics that nobody scrapes."""

    def loop_status(self, status: LoopStatus) -> None:
        pass

    def passed(self, fleet: FleetStatus) -> None:
        pass

    def planned(self, made: int, kept: int, wrong: int) -> None:
        pass

    def acting(self, node: str, action: str, step: str) -> None:
        pass

    def acted(self, action: str, outcome: str, seconds: float) -> None:
        pass

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        pass

    def deaf(self, source: NewsSource, since: datetime | None) -> None:
        pass


class _Play:
    def __init__(self, stage: Stage, scene: Scene, signal: str, rung: str) -> None:
        self.scene, self.signal, self.rung, self.fleet, self.name = scene, signal, rung, stage.fleet, stage.node
        self.gate_s = stage.gate_s
        self.rule = stage.table.rule_of(signal)
        self.repairs = stage.table.effect_of(signal) is not Effect.REPORTS
        self.clock = VirtualClock()
        self.lab = build_lab(stage.fleet, Scenario.model_validate({"nodes": {}}), self.clock.seconds)
        self.clock.elapsed = 3600.0  # everything has been up for a while
        self.fabric = LabFabric(self.lab, self.clock, tools=lab_tools(stage.fleet), latency=False)
        self.machine = self.lab.machines[stage.node]
        self.ledger = MemoryLedger("played")
        self.people = _People()
        self.images = [node.profile.image for node in self.fleet.nodes.values() if node.profile.image is not None]
        self.shown = False
        self.acting = ""
        self.did: list[str] = []
        self.began = 0.0

    def play(self) -> PlayedSignal:
        return run_virtual(self._played(), self.clock)

    async def _played(self) -> PlayedSignal:
        await self._adopt()
        self.clock.elapsed += 2 * 3600.0  # the reconciler, the spec and the drivers are no news any more
        durations = Durations(0, lambda _node: self._past)
        deps = LoopDeps(
            begin=lambda _: "played", ledger=self.ledger, clock=self.clock,
            gate=_Gate(AcceptanceGate(self.fabric.public_key), FailureRates({}, 0), durations),
            metrics=_NoMetrics(), progress=self._progress, interval_s=INTERVAL_S, messenger=self.people, saw=self._saw,
            signatures=lambda _: self._signatures(),
        )  # fmt: skip
        loop = Loop(deps, _Feed(self.fleet), lambda _: self.fabric, holder="played", pull_s=PULL_S)
        running = asyncio.create_task(loop.run())
        try:
            return await self._fall_ill(running)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def _past(self, action: str, _target: str) -> ActionDuration | None:
        return ActionDuration(self.gate_s, self.gate_s) if action == "run_gate" else None

    async def _adopt(self) -> None:
        """Save a certificate of each node as it is, so that nothing is left to do."""
        seen = await observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock)
        for name, desired in self.fleet.nodes.items():
            assert desired.profile.acceptance is not None
            binding = binding_of(desired, seen.nodes[name], tests_digest(desired.profile.acceptance))
            if isinstance(binding, Binding):
                self.ledger.save_certificate(Certificate("1.0", name, self.clock.now(), binding, (), adopted=True))

    async def _fall_ill(self, running: asyncio.Task[None]) -> PlayedSignal:
        ended = PlayedSignal(self.signal, self.rung)
        await self._until(lambda: self._serves() and self.clock.elapsed > 3 * 3600.0 + QUIET_S, running)
        self.did.clear()
        self.shown = False
        try:
            self.scene.play_on(self.machine, self.rung)
            if self.scene.fault == "node_condition" and self.lab.cluster is not None:
                self.lab.cluster.sync(self.name)
        except (IndexError, KeyError, StopIteration, ValueError) as error:  # a machine without that part
            return replace(ended, unplayed=f"this machine has no part for it: {error}")
        self.began = self.clock.elapsed
        is_out = self._marked if self.repairs else self._is_shown
        if not await self._until(is_out, running):
            return replace(ended, told=self._told())
        ended = replace(ended, out_s=self._since, shown=await self._look())
        if self.repairs:
            await self._until(lambda: self._is_healed() or NEEDED in self._told(), running)
            if not self._is_healed():
                await self._person(running)
            if await self._until(self._is_healed, running):
                ended = replace(ended, back_s=self._since)
        await self.clock.sleep(AFTER_S)
        return replace(ended, did=tuple(self.did), told=self._told())

    def _is_shown(self) -> bool:
        """Return whether a reported row is shown, or will not be, as the node went out for something else.

        A fault that a GPU reset ends is over before the next whole pass, which alone shows what is reported.
        """
        return self.shown or (self._since > _SHOWN_S and (self._marked() or OUT in self._told()))

    @property
    def _since(self) -> float:
        return self.clock.elapsed - self.began

    async def _until(self, done: Callable[[], bool], running: asyncio.Task[None]) -> bool:
        """Wait until it is so; return False when it takes too long. Raise what ended the loop."""
        ends = self.clock.elapsed + LONGEST_S
        while not done():
            if running.done():
                running.result()
            if self.clock.elapsed > ends:
                return False
            await self.clock.sleep(_STEP_S)
        return True

    def _marked(self) -> bool:
        assert self.lab.cluster is not None
        node = self.lab.cluster.node(self.name)
        return any(taint.key == MARK_TAINT for taint in node.taints) or OWNER_ANNOTATION in node.annotations

    def _serves(self) -> bool:
        assert self.lab.cluster is not None
        node = self.lab.cluster.node(self.name)
        return node.ready == "True" and not node.unschedulable and not self._marked()

    def _is_healed(self) -> bool:
        return self._serves() and self.scene.fault not in self.machine.state.faults

    async def _look(self) -> tuple[str, ...]:
        """Return the signals that a look at the node shows."""
        seen = await observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock, fresh_inventory=True)
        snapshot = replace(take_snapshot(self.ledger, self.fleet, list(self.fleet.nodes)), known=())
        plan = plan_fleet(self.fleet, seen, snapshot, self.clock.now(), PlanRequest("look", self._signatures()))
        return tuple(sorted(item.path for item in plan.nodes[self.name].drift if item.path.startswith(PREFIX)))

    def _signatures(self) -> Mapping[tuple[str, str], bool | None]:
        return {(image.name, image.version): True for image in self.images}

    async def _person(self, running: asyncio.Task[None]) -> None:
        """Have a person exchange the part, or mend what else it was, while a hold keeps the loop from the node."""
        self.ledger.hold(self.name, "exchanging a part", "a person", None, self.clock.now())
        await self._until(lambda: not self.acting, running)
        self.machine.power("force_off")
        await self.clock.sleep(_PERSON_S)
        self.scene.mend(self.machine, self._needed_part())
        self.ledger.release(self.name, "a person", self.clock.now())

    def _needed_part(self) -> str:
        """Return the kind of part of which another one has to be there; "" = the row asks for none."""
        if Proof.NEW_SERIAL not in self.rule.row.healed_by:
            return ""
        return (self.rule.part or Exchanged.DIMM).value.removesuffix("_exchanged")  # None: another one of any kind

    def _progress(self, event: Event) -> None:
        if isinstance(event, ActionStarted | ActionFinished) and event.node == self.name:
            self.acting = event.action.id if isinstance(event, ActionStarted) else ""
        if isinstance(event, ActionFinished) and event.node == self.name and event.action.name in _LADDER:
            word = outcome_word(event.outcome)
            self.did.append(event.action.id if word == "done" else f"{event.action.id}!{word}")

    def _saw(self, _fleet: Fleet, plan: Plan, _observation: Observation) -> None:
        drift = plan.nodes[self.name].drift if self.name in plan.nodes else ()
        self.shown = self.shown or any(item.path.startswith(PREFIX) for item in drift)

    def _told(self) -> tuple[str, ...]:
        found = set(_words(self.people.told))
        return tuple(sorted(found - {OUT} if NEEDED in found else found))  # says both


def _words(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if "needs a repair" in message.title:
            yield NEEDED
        if "is out of service" in message.title:
            yield OUT
        if message.over:
            yield OVER
