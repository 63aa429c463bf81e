"""The rolling rebuild of a group that serves, with models, images and backups, and runs that die at any call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.desired import Desired
from reconciler.model.serving_sync import DesiredSync
from tests.converge.test_backup import BACKUP, NEW, each, to_new_image
from tests.converge.test_serving import ENGINE, commands, grouped
from tests.converge.world import World
from tests.faults.cluster_life import Fabric, Life, Point, Stage, Trigger, Watch

PATH: Final = "/srv/models"
DIGEST: Final = f"sha256:{'a' * 64}"
OURS: Final = ("sync_serving", "degrade_serving", "mark", "drain", "back_up", "restore_backup", "restore_serving")


@dataclass
class ServingWatch(Watch):
    """Looks whether the group answers, before each call."""

    life: ServingLife | None = None

    def before(self, kind: str, node: str, name: str, *given: Any) -> None:
        super().before(kind, node, name, *given)
        if self.life is not None:
            self.life.never()


@dataclass
class ServingLife(Life):
    """A group whose nodes have a model each, and lack those of the others; all but the last have the engine's image."""

    group: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.group = tuple(self.world.fleet.nodes)

    def never(self) -> None:
        """At no time nobody answers: a node in service has an engine of nodes that are all in service."""
        serving = {name for name in self.group if self.world.serves(name)}
        if not any(self._engine(name) <= serving for name in serving):
            told = {name: commands(self.world, name)[-1:] for name in self.group}
            self._wrong_once(f"nobody answers: {sorted(serving)} of the group are in service, told {told}")

    def _engine(self, name: str) -> set[str]:
        """Return the nodes that a node's engine runs on."""
        told = commands(self.world, name)
        return set(told[-1].split()[-1].split(",")) if told else set(self.group)

    def _wrong_once(self, why: str) -> None:
        if why not in self.wrong:
            self.wrong.append(why)

    def rebuilt(self) -> None:
        """All run the new image and serve together, each with its own data; nobody was told anything twice."""
        world, unfinished = self.world, [one for one in self.world.ledger.unfinished() if one[2] != "run"]
        whole = f"serve --all {','.join(self.group)}"
        for name in self.group:
            machine, told = world.machine(name), commands(world, name)
            only = [one for one in told if "--only" in one]
            checks = {
                f"runs {machine.disk().version}": machine.disk().version == NEW.version,
                f"was installed {machine.state.counters.installs} times": machine.state.counters.installs == 1,
                "is out of service": world.serves(name),
                "lost its model": machine.disk().files.get(f"{PATH}/{name}") == name,
                "lost the engine's image": machine.disk().container_images.get(ENGINE) == DIGEST,
                f"was told {told}": told[-1:] == [whole] and len(only) == len(set(only)) == len(self.group) - 1,
                f"was told {told.count(whole)} times to serve with all": told.count(whole) == len(self.group),
            }
            self.wrong += [f"{name} {what}" for what, holds in checks.items() if not holds]
        due = [node.node for node in world.plan().nodes.values() if node.actions]
        if due or unfinished:
            self.wrong.append(f"still to be done on {due}, intents without an outcome: {unfinished}")


def _rebuild(life: Life) -> None:
    to_new_image(life.world)


def _finished(life: Life) -> None:
    assert isinstance(life, ServingLife)
    life.rebuilt()


def _apply(life: Life) -> None:
    report = life.world.apply(wait_s=100 * 3600.0)
    life.wrong += [
        f"{name}: {one.state.value}: {one.detail}"
        for name, one in report.results.items()
        if one.state.value not in ("done", "converged")
    ]


STAGES: Final[Mapping[str, Stage]] = {
    "rebuild a pair": Stage(_rebuild, _apply, _finished),
    "rebuild four nodes": Stage(_rebuild, _apply, _finished, actions=OURS),
}
_SIZES: Final = {"rebuild a pair": 2, "rebuild four nodes": 4}


@contextmanager
def a_life(nodes: int) -> Iterator[ServingLife]:
    group = tuple(f"n{at}" for at in range(nodes))
    world = grouped(lambda **given: World(Path(), **given), group, store=lambda _: MemoryLedger("memory"))
    backup = replace(BACKUP, images=(ENGINE,))
    addresses = {name: f"10.30.0.{at}" for at, name in enumerate(group)}

    def declared(node: Desired) -> Desired:
        assert node.serving is not None
        sync = DesiredSync((PATH,), "ib0", addresses[node.node], 400.0, (ENGINE,))
        profile = replace(node.profile, backup=backup, digest="saved")
        return replace(node, serving=replace(node.serving, sync=sync), profile=profile)

    each(world, declared)
    for name in group:
        machine = world.machine(name)
        machine.copied_from = {addresses[other]: world.machine(other) for other in group}
        machine.disk().files[f"{PATH}/{name}"] = name
        if name != group[-1]:
            machine.disk().container_images[ENGINE] = DIGEST
    watch = ServingWatch()
    world.fabric = Fabric(world.fabric, watch)  # type: ignore[assignment]  # by structure
    life = ServingLife(world, watch)
    _apply(life)  # what is declared anew needs no work on the nodes
    assert not life.wrong, life.wrong
    watch.crash_trigger, watch.life = Trigger(), life
    yield life
    world.ledger.close()


def calls_of(name: str) -> list[Point]:
    """Return the calls of an undisturbed run of a stage, in order. Raise AssertionError where it does not end well."""
    stage = STAGES[name]
    with a_life(_SIZES[name]) as life:
        stage.prepare(life)
        life.run(stage)
        seen = list(life.watch.crash_trigger.seen)  # what is asked below is no call of the run
        stage.finished(life)
        assert not life.wrong, life.wrong
        return seen


def interrupted(name: str, *calls: int) -> list[str]:
    """Kill the runs of a stage after so many calls each, let the last one end, and return what is wrong."""
    stage = STAGES[name]
    with a_life(_SIZES[name]) as life:
        stage.prepare(life)
        for at in calls:
            if not life.dies(stage, at):
                life.wrong.append(f"it did not come to call {at}")
        life.run(stage)
        stage.finished(life)
        return life.wrong
