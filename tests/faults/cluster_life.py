"""The life of a K3s cluster with operators, stage by stage, and a run of it that dies at any call.

A call is one of a port: to a host, a BMC, the cluster, Helm or the ledger. The process dies after the call has had its
effect and before it can know of that; nothing that it does on its way out has any effect either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from reconciler.converge.events import ActionFinished, ActionStarted, Event
from reconciler.converge.k3s_teardown import TeardownRequest, tear_down
from reconciler.converge.run import Ended
from reconciler.lab.hardware.cluster_objects import NodeObject
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.desired import Fleet, RolloutPolicy
from reconciler.model.operands import GPU_RESOURCE, VALIDATOR
from reconciler.model.releases import ReleaseStatus
from tests.converge.k3s_world import BASE, NEW, OLD, SERVERS, declare, k3s_world, site, spec
from tests.converge.test_backup import each
from tests.converge.test_in_place import SLOTS
from tests.converge.test_k3s import lose
from tests.converge.test_k3s_external import external
from tests.converge.test_operators import RELEASE
from tests.converge.world import SIGNATURES, World
from tests.soak.invariant_checker import CheckedFabric, CheckedLedger, CrashTrigger, PowerCut

LEASE_S: Final = 61.0
TTL_S: Final = 900.0  # of an agent's token
RUN_S: Final = 86400.0
LOST: Final = "n1"  # a server
WIPE: Final = "new image for all, new cluster"
BETWEEN: Final = "between actions"
_AT: ContextVar[str] = ContextVar("action under way", default=BETWEEN)
_CALL: ContextVar[tuple[str, str]] = ContextVar("port and call", default=("", ""))

assert BASE.membership is not None
_WAITING = replace(BASE.membership, allocatable={GPU_RESOURCE: 4}, validated=True)
PROFILE = replace(BASE, digest="with operators", membership=_WAITING, image=replace(SLOTS, preserve=("/data",)))
KEPT: Final = {"/data/models/a": "weights"}
DATA: Final = {**KEPT, "/state/b": "of the system", "/var/lib/c": "of a program", "/srv/d": "on the root"}
ANEW: Final = replace(SLOTS, version="2026.12.0", sha256="5" * 64, preserve=("/data",))


@dataclass(frozen=True)
class Point:
    """A call of a run. `action`: what was under way when it was made. `port`: to whom; `call`: its name."""

    action: str
    port: str
    call: str


@dataclass
class Trigger(CrashTrigger):
    """Notes each call, with the action that makes it, and ends the run after one."""

    seen: list[Point] = field(default_factory=list)

    def after_call(self, name: str) -> None:
        self.seen.append(Point(_AT.get(), *_CALL.get()))
        super().after_call(name)


@dataclass
class Watch:
    """What the ports of the world report to."""

    crash_trigger: Trigger = field(default_factory=Trigger)

    def before(self, kind: str, _node: str, name: str, *_: Any) -> None:
        _CALL.set((kind, name))


class _Events(list[Event]):
    def append(self, event: Event) -> None:
        if isinstance(event, ActionStarted):
            _AT.set(event.action.name)
        elif isinstance(event, ActionFinished):
            _AT.set(BETWEEN)
        super().append(event)


class _Releases:
    """Helm's port: whatever is called of it is of the release of that name."""

    def __init__(self, store: Any, watch: Watch) -> None:
        self._store, self._watch = store, watch

    def __getattr__(self, name: str) -> Any:
        call, trigger = getattr(self._store, name), self._watch.crash_trigger

        async def watched(*given: Any) -> Any:
            trigger.check()
            token = _AT.set("Helm release")
            try:
                result = await call(*given)
                _CALL.set(("helm", name))
                trigger.after_call(name)
            finally:
                _AT.reset(token)
            return result

        return watched


class Fabric(CheckedFabric):
    def __init__(self, fabric: Any, watch: Watch) -> None:
        super().__init__(fabric, watch)  # type: ignore[arg-type]  # of a checker, it needs these two
        self.watch = watch

    @property
    def fleet(self) -> Fleet:
        """The fleet that the cluster's port waits for."""
        return self._fabric.fleet  # type: ignore[attr-defined,no-any-return]  # of K3sFabric

    @fleet.setter
    def fleet(self, fleet: Fleet) -> None:
        self._fabric.fleet = fleet  # type: ignore[attr-defined]

    def releases(self) -> _Releases:
        return _Releases(self._fabric.releases(), self.watch)


class _Ledger(CheckedLedger):
    """A ledger whose writes are calls, and whose reads are none: a run that dies in one has done nothing."""

    _READS: Final = frozenset({
        "node", "nodes", "holds", "history", "rollouts", "unfinished", "durations", "id", "prove", "renew", "fence",
    })  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name in self._READS:
            return getattr(self._ledger, name)
        call, trigger = getattr(self._ledger, name), self._checker.crash_trigger
        if not callable(call):
            return call

        def watched(*args: Any, **keys: Any) -> Any:
            trigger.check()
            result = call(*args, **keys)
            if name != "batch":
                _CALL.set(("ledger", name))
                token = _AT.set(args[2] if name == "begin" else _AT.get())  # an intent is told of before the action
                try:
                    trigger.after_call(name)
                finally:
                    _AT.reset(token)
            return result

        return watched


@dataclass
class Life:
    """A K3s cluster of three servers and some agents, which a GPU Operator keeps. `wrong`: what must never be."""

    world: World
    watch: Watch
    wrong: list[str] = field(default_factory=list)
    begun: int = 1  # how many clusters may have been begun

    def __post_init__(self) -> None:
        cluster = self.world.lab.cluster
        assert cluster is not None
        cluster.watcher = self._serves

    def _serves(self, node: NodeObject, serves: bool) -> None:
        """A node begins to serve only with what its operators offer, and with a certificate."""
        if not serves or not self.world.events:
            return
        cluster = self.world.lab.cluster
        assert cluster is not None
        ready = [pod.phase for pod in cluster.pods(node.name) if pod.owner_name == VALIDATOR]
        if (node.allocatable.get(GPU_RESOURCE), ready) != (4, ["Running"]):
            self.wrong.append(f"{node.name} serves, and offers {dict(node.allocatable)}, validated {ready}")
        if self.world.ledger.node(node.name).certificate is None:
            self.wrong.append(f"{node.name} serves without a certificate")

    # --- runs ---

    def run(self, stage: Stage) -> None:
        """Run a stage as one process would; it may die in it."""
        world, ledger = self.world, self.world.ledger
        world.events = _Events()
        world.ledger = _Ledger(ledger, self.watch)  # type: ignore[assignment,arg-type]  # by structure
        try:
            stage.run(self)
        finally:
            world.ledger = ledger

    def dies(self, stage: Stage, calls: int) -> bool:
        """Let a run of a stage die after so many calls. Return whether it came so far."""
        self.watch.crash_trigger = trigger = Trigger(calls)
        try:
            self.run(stage)
        except PowerCut:
            pass
        except BaseExceptionGroup as group:
            if group.split(PowerCut)[1] is not None:
                raise
        self.watch.crash_trigger = Trigger()
        self.world.clock.elapsed += LEASE_S
        self.never()
        return trigger.fired

    def apply(self) -> None:
        report = self.world.apply(wait_s=RUN_S)
        ended = {name: (one.state.value, one.detail) for name, one in report.results.items()}
        states = {Ended.DONE, Ended.CONVERGED}
        self.wrong += [f"{name}: {why}" for name, why in ended.items() if report.results[name].state not in states]
        release = report.releases[RELEASE.name]
        if release.state not in states:
            self.wrong.append(f"{release.name}: {release.state.value}: {release.detail}")

    def done(self, node: str) -> set[str]:
        """Return the actions that ended well on a node."""
        return {one.action for one in self.world.ledger.node(node).attempts if one.outcome == "done"}

    # --- what must be ---

    def never(self) -> None:
        """What must never be, whenever it is looked at."""
        shared, now = site(self.world), self.world.clock.seconds()
        checks = {
            "one cluster more was begun": shared.begun <= self.begun,
            "etcd lost its quorum": shared.fewest >= 0,
            "two members joined at once": not any("too many learner" in why for why in shared.refused),
            "a token lives longer": all(token.expires - now <= TTL_S for token in shared.valid().values()),
        }
        self.wrong += [what for what, holds in checks.items() if not holds]

    def serving(self, version: str) -> None:
        """The whole cluster is in service, as declared."""
        self.never()
        world, shared = self.world, site(self.world)
        cluster = world.lab.cluster
        assert cluster is not None
        out = [name for name in world.fleet.nodes if not world.serves(name)]
        runs = {cluster.node(name).kubelet_version for name in world.fleet.nodes}
        release = cluster.helm.releases[RELEASE.name]
        unfinished = [one for one in world.ledger.unfinished() if one[2] != "run"]
        world.clock.elapsed += TTL_S
        checks = {
            f"out of service: {out}": not out,
            f"servers: {shared.members}": sorted(shared.members) == list(SERVERS),
            f"versions: {runs}": runs == {version},
            f"the release is {release.status.value}": release.status is ReleaseStatus.DEPLOYED,
            f"intents without an outcome: {unfinished}": not unfinished,
            "a token is left": not shared.valid(),
        }
        self.wrong += [what for what, holds in checks.items() if not holds]

    def gone(self) -> None:
        world, shared = self.world, site(self.world)
        left = [path for name in world.fleet.nodes for path in world.machine(name).disk().files if "rancher" in path]
        if left or shared.members or shared.tokens or shared.passwords or world.ledger.holds():
            self.wrong.append(f"left of the cluster: {left} {shared.members} {world.ledger.holds()}")


@dataclass(frozen=True)
class Stage:
    """`prepare`: makes it due. `run`: what a process does. `finished`: adds to `wrong` what is not as it must be.

    `actions`: those whose calls are played; () = all, and what is done between them.
    """

    prepare: Callable[[Life], None]
    run: Callable[[Life], None]
    finished: Callable[[Life], None]
    blank: bool = False  # it starts from machines without K3s
    database: bool = False  # its state is in a database
    actions: Collection[str] = ()


def _tear_down(life: Life) -> None:
    world = life.world
    token = _AT.set("teardown")
    try:
        request = TeardownRequest(world.fleet, "main", "test")
        world.run(tear_down(request, fabric=world.fabric, ledger=world.ledger, clock=world.clock))
    finally:
        _AT.reset(token)


def _wipe(life: Life) -> None:
    """The cluster was taken away, and the spec wants another image on all nodes, at once, and a new cluster."""
    world = life.world
    for name in world.fleet.nodes:
        world.machine(name).disk().files |= DATA
    _tear_down(life)
    declare(world, spec(bootstrap=True))
    each(world, lambda one: replace(one, profile=replace(one.profile, image=ANEW, digest=f"{one.profile.digest} anew")))
    world.fleet = replace(world.fleet, rollouts=dict.fromkeys(("servers", "gpu"), RolloutPolicy(("100%",), 0.0)))
    world.signatures = {**SIGNATURES, (ANEW.name, ANEW.version): True}
    life.begun += 1


def _wiped(life: Life) -> None:
    """All are in service with the new image, and with what was on the partition that the spec keeps."""
    life.serving(OLD)
    for name in filter(life.world.serves, life.world.fleet.nodes):
        disk = life.world.machine(name).disk()
        if disk.version != ANEW.version or DATA.items() & disk.files.items() != KEPT.items():
            life.wrong.append(f"{name} runs {disk.version}, and has {sorted(disk.on_partitions())}")


def _lose(life: Life) -> None:
    """A server loses its disk, and a person has put the image on a new one."""
    lose(life.world, LOST)


STAGES: Final[Mapping[str, Stage]] = {
    "begin": Stage(lambda _: None, Life.apply, lambda life: life.serving(OLD), blank=True),
    "upgrade by one minor": Stage(
        lambda life: declare(life.world, spec(NEW)), Life.apply, lambda life: life.serving(NEW)
    ),
    "replace a lost server": Stage(_lose, Life.apply, lambda life: life.serving(OLD)),
    "tear down": Stage(lambda _: None, _tear_down, Life.gone),
    WIPE: Stage(_wipe, Life.apply, _wiped),
    "replace a lost server, with a database": Stage(
        _lose, Life.apply, lambda life: life.serving(OLD), database=True, actions=("configure_k3s", "join")
    ),
}


@contextmanager
def a_life(nodes: int, *, blank: bool, database: bool = False) -> Iterator[Life]:
    """A cluster with operators as it is kept; `blank`: its machines, before it was ever begun."""
    watch = Watch()
    world = k3s_world(
        lambda **given: World(Path(), **given),
        external(bootstrap=blank) if database else spec(bootstrap=blank),
        profile=PROFILE,
        nodes=nodes,
        settings={"releases": (RELEASE,)},
        store=lambda _: MemoryLedger("memory"),
        **({"drift": {"n*": ["not_a_member"]}} if blank else {}),
    )
    inner = world.fabric
    world.fabric = Fabric(inner, watch)  # type: ignore[assignment]  # by structure
    life = Life(world, watch)
    if not blank:
        world.adopt()
        life.apply()
        assert not life.wrong, life.wrong
    watch.crash_trigger = Trigger()
    yield life
    world.ledger.close()


def calls_of(name: str, nodes: int) -> list[Point]:
    """Return the calls of an undisturbed run of a stage, in order. Raise AssertionError where it does not end well."""
    stage = STAGES[name]
    with a_life(nodes, blank=stage.blank, database=stage.database) as life:
        stage.prepare(life)
        life.watch.crash_trigger = Trigger()
        life.run(stage)
        stage.finished(life)
        assert not life.wrong, life.wrong
        return life.watch.crash_trigger.seen


def interrupted(name: str, nodes: int, *calls: int) -> list[str]:
    """Kill the runs of a stage after so many calls each, let the last one end, and return what is wrong."""
    stage = STAGES[name]
    with a_life(nodes, blank=stage.blank, database=stage.database) as life:
        stage.prepare(life)
        for at in calls:
            if not life.dies(stage, at):
                life.wrong.append(f"it did not come to call {at}")
        life.run(stage)
        stage.finished(life)
        return life.wrong
