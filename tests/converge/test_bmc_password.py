"""The password of a BMC is changed on time, one of a pool at a time; interrupted anywhere, nobody is locked out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from reconciler.lab.hardware.state import TaskState
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Done, Permanent, Transient
from tests.converge.test_k3s_killed import Killed, surviving
from tests.converge.world import World

Worlds = Callable[..., World]
ROTATE = "rotate_bmc_password"
DAY = 86400.0
CALLS = ("stage_password", "change_password", "is_password_proved", "keep_password", "put_password_back")


def rotating(world: Worlds, **changes: Any) -> World:
    """A world that is as specified, and whose passwords are changed each month."""
    here = world(**{"nodes": 1, "settings": {"rotate_after_s": 30 * DAY}, **changes})
    here.adopt()
    return here


def rotations(here: World, node: str = "n0") -> list[str]:
    return [one.outcome for one in here.ledger.node(node).attempts if one.action == ROTATE]


def passwords(here: World, node: str = "n0") -> tuple[int, tuple[int, ...]]:
    """What the BMC takes, and what its secret has."""
    state = here.machine(node).state
    return state.bmc_password, state.kept_passwords


def test_it_is_changed_first_and_again_after_its_time_while_the_host_serves(world: Worlds) -> None:
    here = rotating(world)
    plan = here.plan().nodes["n0"]
    assert [action.id for action in plan.actions] == [ROTATE]
    assert plan.actions[0].because == ("BMC password: never changed by this ledger",)
    assert [item.path for item in plan.drift] == ["bmc.password"]
    boot = here.machine("n0").system().boot_id
    here.apply()
    assert here.did("n0") == [ROTATE]
    assert passwords(here) == (1, (1,))
    assert here.machine("n0").system().boot_id == boot
    assert here.serves("n0")
    here.clock.elapsed += 29 * DAY
    here.adopt()
    assert here.plan().nodes["n0"].actions == ()
    here.clock.elapsed += 2 * DAY
    here.adopt()
    here.apply()
    assert rotations(here) == ["done", "done"]
    assert passwords(here) == (2, (2,))


def test_without_the_field_it_is_never_changed(world: Worlds) -> None:
    here = rotating(world, settings={})
    here.apply()
    assert here.did("n0") == []
    assert passwords(here) == (0, (0,))


def test_of_each_pool_one_at_a_time(world: Worlds) -> None:
    here = rotating(world, nodes=4, each=lambda node: replace(node, pool="a" if node.node in ("n0", "n1") else "b"))
    planned = [name for name, plan in here.plan().nodes.items() if plan.actions]
    assert len({*planned} & {"n0", "n1"}) == len({*planned} & {"n2", "n3"}) == 1
    for _ in range(2):
        here.apply()
    assert [rotations(here, name) for name in ("n0", "n1", "n2", "n3")] == [["done"]] * 4
    assert not any(plan.actions for plan in here.plan().nodes.values())


def test_what_was_begun_is_ended_before_another_node_of_the_pool(world: Worlds) -> None:
    here = rotating(world, nodes=4)
    [first] = [name for name, plan in here.plan().nodes.items() if plan.actions]
    with killed(0, after=True):
        here.apply()
    assert len(here.machine(first).state.kept_passwords) == 2
    here.clock.elapsed += 3 * DAY  # other nodes would be the first by now
    here.adopt()
    assert [name for name, plan in here.plan().nodes.items() if plan.actions] == [first]


def test_it_waits_for_all_other_work(world: Worlds) -> None:
    here = rotating(world, drift={"n0": [{"bios_off": {}}]})
    actions = [action.name for action in here.plan().nodes["n0"].actions]
    assert "set_bios" in actions
    assert ROTATE not in actions
    here.apply()
    here.apply()
    assert rotations(here) == ["done"]


def test_a_bmc_that_is_at_work_is_left_alone(world: Worlds) -> None:
    here = rotating(world)
    machine = here.machine("n0")
    machine.state.tasks["9"] = TaskState("9", next(iter(machine.state.firmware)), "2.0", machine.now, machine.now + DAY)
    assert ROTATE not in [action.name for action in here.plan().nodes["n0"].actions]
    ended = here.act(ROTATE)
    assert isinstance(ended, Transient)
    assert "at work" in ended.detail
    assert passwords(here) == (0, (0,))


def test_one_that_forgets_a_change_that_it_accepted_has_the_old_one_proved_again(world: Worlds) -> None:
    here = rotating(world)
    here.machine("n0").inject("password_change", how="ignored")
    ended = here.act(ROTATE)
    assert isinstance(ended, Permanent)
    assert "the password before is proved to be in force" in ended.detail
    assert passwords(here) == (0, (0,))
    assert here.act(ROTATE) == Done("the BMC has a new password, which its secret has alone")


@pytest.mark.parametrize("kind", [Failure.REJECTED, Failure.AUTH, Failure.UNSUPPORTED])
def test_one_that_refuses_the_change_leaves_one_password_in_the_secret(
    world: Worlds, kind: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = rotating(world)

    async def refuse(_: MachineBmc) -> None:
        raise DriverError(kind, "it does as it likes")

    monkeypatch.setattr(MachineBmc, "change_password", refuse)
    assert here.act(ROTATE) == Permanent("it does as it likes; the password before is proved to be in force")
    assert passwords(here) == (0, (0,))


def test_one_that_dies_in_its_midst_is_gone_on_with(world: Worlds) -> None:
    here = rotating(world)
    here.machine("n0").inject("password_change", how="dies")
    here.apply()
    assert passwords(here)[0] in passwords(here)[1]
    here.clock.elapsed += 3600
    here.apply()
    assert passwords(here) == (1, (1,))
    assert rotations(here)[-1] == "done"


# --- interrupted ---


@contextmanager
def killed(at: int, *, after: bool) -> Iterator[None]:
    """Kill the process at its call of that number about the password, from 0: before it is made, or after it."""
    made = 0

    def dying(real: Callable[[MachineBmc], Awaitable[Any]]) -> Callable[[MachineBmc], Awaitable[Any]]:
        async def call(self: MachineBmc) -> Any:
            nonlocal made
            made += 1
            if made <= at:
                return await real(self)
            if after and made == at + 1:
                await real(self)
            raise Killed

        return call

    with pytest.MonkeyPatch.context() as patch, surviving():
        for name in CALLS:
            patch.setattr(MachineBmc, name, dying(getattr(MachineBmc, name)))
        yield


@pytest.mark.parametrize("how", ["", "ignored"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(4))
def test_who_is_killed_at_any_call_is_followed_by_one_that_ends_it(
    world: Worlds, at: int, how: str, *, after: bool
) -> None:
    here = rotating(world)
    if how:
        here.machine("n0").inject("password_change", how=how)
    with killed(at, after=after):
        here.apply()
    assert passwords(here)[0] in passwords(here)[1], "whoever comes next can log in"
    for _ in range(4):
        here.clock.elapsed += 20 * 60.0  # its lease, and the pause after a failure
        here.apply()
    assert passwords(here)[0] > 0
    assert passwords(here)[1] == (passwords(here)[0],)
    assert rotations(here)[-1] == "done"
    assert here.serves("n0")
    assert here.plan().nodes["n0"].actions == ()


def test_who_is_killed_between_the_bmc_and_the_secret_is_followed_too(world: Worlds) -> None:
    here = rotating(world)
    here.machine("n0").inject("password_change", how="ignored")

    def dies(_: MachineBmc, __: int) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, surviving():
        patch.setattr(MachineBmc, "_keep", dies)
        here.apply()
    assert passwords(here) == (0, (1, 0))
    here.clock.elapsed += 20 * 60.0
    here.apply()
    assert passwords(here) == (1, (1,))
