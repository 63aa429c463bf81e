"""A BMC that answers nobody is reset by its host, which serves meanwhile: never more often than the ladder says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.lab.inprocess.host import MachineHost
from reconciler.model.desired import Rung
from reconciler.model.gate import CommandResult
from reconciler.model.outcome import Declined, Done
from reconciler.model.plan import Goal
from reconciler.planner.fleet.reliability import Period, reliability
from tests.converge.test_k3s_killed import Killed, surviving
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]
RESET = "reset_bmc_from_host"
MINUTE = 60.0
ENDLESS = {"bmc_503": {"times": 0}}  # as of a web server whose backend died; else it ends by itself

assert PROFILE.remediation is not None
LADDER = (Rung("reset_bmc", 2), Rung("soft_restart", 1))
POLICY = replace(PROFILE.remediation, ladder=LADDER)
POLICED = replace(PROFILE, digest="policed", remediation=POLICY)


def silent(world: Worlds, fault: str, *names: str, nodes: int = 4, ladder: tuple[Rung, ...] = LADDER) -> World:
    """A world in which the BMCs of some nodes have been silent for twenty minutes, and a pass has seen it begin."""
    here = world(nodes=nodes, profile=replace(POLICED, digest=str(ladder), remediation=replace(POLICY, ladder=ladder)))
    here.adopt()
    here.apply()
    for name in names:
        here.machine(name).inject(fault, **ENDLESS.get(fault, {}))
    here.apply()
    here.clock.elapsed += 20 * MINUTE
    return here


def resets(here: World, node: str = "n0") -> list[str]:
    return [one.outcome for one in here.ledger.node(node).attempts if one.action == RESET]


def test_a_bmc_that_hangs_is_reset_by_its_host_which_serves_meanwhile(world: Worlds) -> None:
    here = silent(world, "bmc_hung", "n0")
    boot = here.machine("n0").system().boot_id
    plan = here.plan().nodes["n0"]
    assert [action.id for action in plan.actions] == [RESET]
    assert plan.actions[0].because == ("health.bmc_silent",)
    here.apply()
    assert resets(here) == ["done"]
    assert here.machine("n0").state.faults == {}
    assert here.machine("n0").system().boot_id == boot, "the host goes on"
    assert here.serves("n0")
    assert not {"mark", "drain"} & {*here.did("n0")}
    assert here.plan().nodes["n0"].actions == ()
    assert resets(here, "n1") == []


def test_a_reset_that_healed_is_read_back_from_the_ledger_for_the_report(world: Worlds) -> None:
    """The report of what healed never had it: it was left out where attempts are read."""
    here = silent(world, "bmc_hung", "n0")
    here.apply()
    here.clock.elapsed += MINUTE
    here.apply()
    now = here.clock.now()
    since = now - timedelta(hours=1)
    past = here.ledger.past(since, now)
    made = reliability(Period(here.fleet, past, since, now, past))
    assert [(one.signal, one.rung, one.attempts, one.healed) for one in made.rungs] == [
        ("health.bmc_silent", "reset_bmc", 1, 1)
    ]


@pytest.mark.parametrize("fault", ["bmc_unreachable", "bmc_503"])
def test_a_bmc_that_no_reset_brings_back_is_reset_as_often_as_the_ladder_says_and_then_told_only(
    world: Worlds, fault: str
) -> None:
    here = silent(world, fault, "n0")
    for _ in range(6):
        here.apply(wait_s=0.0)
        here.clock.elapsed += 60 * MINUTE
    assert resets(here) == ["transient", "transient"]
    plan = here.plan().nodes["n0"]
    assert plan.actions == ()
    assert "health.bmc_silent" in [item.path for item in plan.drift]
    assert here.serves("n0")


@pytest.mark.parametrize(
    ("fault", "names", "ladder"),
    [
        ("bmc_hung", ("n0",), LADDER[1:]),  # the policy has no such rung
        ("bmc_wrong_password", ("n0",), LADDER),  # it works, and refuses our credentials
        ("bmc_sessions", ("n0",), LADDER),  # it works, and others have all of its sessions
        ("bmc_unreachable", ("n0", "n1", "n2"), LADDER),  # their network fails (J6)
    ],
)
def test_no_other_silence_leads_to_a_reset(
    world: Worlds, fault: str, names: tuple[str, ...], ladder: tuple[Rung, ...]
) -> None:
    here = silent(world, fault, *names, ladder=ladder)
    here.apply(wait_s=0.0)
    assert [resets(here, name) for name in names] == [[] for _ in names]
    assert all(here.serves(name) for name in names)


def test_a_host_that_does_not_answer_resets_nothing(world: Worlds) -> None:
    here = silent(world, "bmc_hung", "n0")
    here.machine("n0").inject("ssh_refused")
    assert here.plan().nodes["n0"].actions == ()


def test_an_ill_host_is_never_treated_by_a_reset_of_its_bmc(world: Worlds) -> None:
    here = world(nodes=2, profile=replace(POLICED, remediation=replace(POLICY, ladder=LADDER[:1])))
    here.adopt()
    here.apply()
    here.machine("n0").inject("xid_79", gpu=1)
    here.apply()
    assert resets(here) == []
    assert {"reset_bmc"} & {*here.did("n0")} == set()
    assert here.plan().nodes["n0"].goal is Goal.ISOLATED


def test_a_bmc_that_answers_by_now_is_not_reset(world: Worlds) -> None:
    here = world(nodes=1)
    assert here.act("reset_bmc_from_host") == Done("the BMC answers")
    assert here.machine("n0").state.bmc_boots == 0


def test_a_bmc_that_refuses_us_by_now_is_not_reset(world: Worlds) -> None:
    here = world(nodes=1)
    here.machine("n0").inject("bmc_wrong_password")
    ended = here.act("reset_bmc_from_host")
    assert isinstance(ended, Declined)
    assert ended.code == "bmc_refuses"
    assert here.machine("n0").state.bmc_boots == 0


@pytest.mark.parametrize("sent", [False, True])
def test_a_runner_that_dies_in_its_midst_is_followed_by_one_that_goes_on(world: Worlds, *, sent: bool) -> None:
    here = silent(world, "bmc_hung", "n0")
    run = MachineHost.run

    async def dying(self: MachineHost, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        if sent and argv[0] == "ipmitool":
            await run(self, argv, timeout=timeout, stdin=stdin)
        raise Killed

    with pytest.MonkeyPatch.context() as patch, surviving():
        patch.setattr(MachineHost, "run", dying)
        here.apply()
    here.clock.elapsed += 20 * MINUTE  # its lease
    here.apply()
    assert here.machine("n0").state.bmc_boots == 1, "what was sent is not sent again"
    assert "bmc_hung" not in here.machine("n0").state.faults
    assert here.plan().nodes["n0"].actions == ()
    assert here.serves("n0")
