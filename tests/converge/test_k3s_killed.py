"""K3s under a runner that dies at any command, and between any two seconds: quorum, tokens and one cluster stay.

A killed process does nothing more, not even what it does on its way out: every later command of it fails, too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.gate import CommandResult
from tests.converge.k3s_world import NEW, SERVERS, declare, k3s_world, site, spec
from tests.converge.world import World

NOT_THERE = {"n*": ["not_a_member"]}
TTL_S = 900.0
few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def surviving() -> Iterator[None]:
    """Go on after a kill, and after nothing else: contextlib.suppress looks into groups from Python 3.12 on."""
    try:
        yield
    except Killed:
        pass
    except BaseExceptionGroup as group:
        if group.split(Killed)[1] is not None:
            raise


@contextmanager
def killed_at(command: int) -> Iterator[None]:
    """Kill the process at its nth command on any host, before it is sent."""
    sent = 0
    run = MachineHost.run

    async def dying(self: MachineHost, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        nonlocal sent
        sent += 1
        if sent >= command:
            raise Killed
        return await run(self, argv, timeout=timeout, stdin=stdin)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MachineHost, "run", dying)
        yield


@contextmanager
def fleet(k3s: Any, **changes: Any) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        here = k3s_world(lambda **given: World(Path(folder), **given), k3s, nodes=4, **changes)
        yield here
        here.ledger.close()


def holds(here: World) -> None:
    """The invariants, whenever they are looked at."""
    shared = site(here)
    assert shared.begun <= 1
    assert shared.fewest >= 0  # etcd never lost its quorum
    assert not any("too many learner" in why for why in shared.refused)  # never two members that join at once
    assert all(token.expires - here.clock.seconds() <= TTL_S for token in shared.valid().values())


def finished(here: World) -> None:
    here.apply(wait_s=36000.0)
    holds(here)
    assert {name: here.serves(name) for name in here.fleet.nodes} == dict.fromkeys(here.fleet.nodes, True)
    assert sorted(site(here).members) == list(SERVERS)
    here.clock.elapsed += TTL_S
    assert not site(here).valid()


def die(here: World, command: int) -> None:
    with killed_at(command), surviving():
        here.apply(wait_s=36000.0)
    holds(here)


@few
@given(st.lists(st.integers(1, 150), min_size=1, max_size=2))
def test_a_new_cluster_survives_runners_killed_at_any_command(commands: list[int]) -> None:
    with fleet(spec(bootstrap=True), drift=NOT_THERE) as here:
        for command in commands:
            die(here, command)
        finished(here)


@few
@given(st.lists(st.integers(1, 60), min_size=1, max_size=2))
def test_an_upgrade_survives_runners_killed_at_any_command(commands: list[int]) -> None:
    with fleet(spec()) as here:
        here.adopt()
        declare(here, spec(NEW))
        for command in commands:
            die(here, command)
        finished(here)
        assert here.lab.cluster is not None
        assert {here.lab.cluster.node(name).kubelet_version for name in here.fleet.nodes} == {NEW}


@few
@given(st.lists(st.floats(0, 900), min_size=1, max_size=2))
@example([190.0])  # while the second server starts: a restart would leave etcd without its quorum
def test_a_new_cluster_survives_runners_that_are_stopped_at_any_time(kills: list[float]) -> None:
    with fleet(spec(bootstrap=True), drift=NOT_THERE) as here:

        async def stopped(after: float) -> None:
            work = asyncio.create_task(here.applying(wait_s=36000.0))
            await asyncio.wait([work], timeout=after)
            work.cancel()
            await asyncio.wait([work])

        for after in kills:
            here.run(stopped(after))
            holds(here)
        finished(here)
