"""Evidence is kept before a rung destroys it, once, and never delays a repair for long."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import ActionContext
from reconciler.model.desired import Rung
from reconciler.model.outcome import Outcome
from tests.converge.test_repair import CRITICAL, order
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
LADDER = (Rung("gpu_reset"), Rung("soft_restart"), Rung("power_cycle"))
TREATED = replace(PROFILE, digest="treated", remediation=replace(PROFILE.remediation, ladder=LADDER))


def treated(world: Worlds, faults: Mapping[str, Any]) -> World:
    here = world(nodes=2, racks=1, profile=TREATED, faults={"n0": faults})
    here.adopt()
    here.apply()
    return here


def bundles(here: World) -> dict[str, dict[str, Any]]:
    """Return the bundle of each attempt that names one, by action."""
    found = {}
    for attempt in here.ledger.node("n0").attempts:
        _, named, rest = attempt.detail.partition("(evidence ")
        if named:
            text = here.ledger.output(rest.rstrip(")"))
            assert text is not None
            found[attempt.action] = json.loads(text)
    return found


def test_what_a_rung_destroys_is_kept_and_named(world: Worlds) -> None:
    here = treated(world, {"xid": {"code": 119, "heals": "boot"}})
    kept = bundles(here)
    assert list(kept) == ["gpu_reset", "soft_restart"]
    for action, bundle in kept.items():
        assert (bundle["node"], bundle["action"]) == ("n0", action)
        host = bundle["parts"]["facts of the host"]
        assert [xid["code"] for xid in host["xids"]] == [119]
        assert {gpu["serial"] for gpu in host["gpus"]} == {gpu.serial for gpu in here.machine("n0").state.gpus}
        assert bundle["parts"]["BMC log, parts"]["events"] is not None
        assert "nvidia-bug-report" in bundle["missing"], "what could not be had is said"


def test_it_is_kept_before_a_person_exchanges_a_part(world: Worlds) -> None:
    """No rung came before: the driver's report, which a vendor asks for, would be gone with the power."""
    here = world(nodes=2, faults={"n0": CRITICAL})
    here.adopt()
    order(here)
    here.apply()
    (bundle,) = bundles(here).values()
    assert bundle["action"] == "shut_down"
    assert "BMC log, parts" in bundle["parts"]
    assert "facts of the host" in bundle["parts"]
    assert here.machine("n0").state.power == "off"


def test_a_dead_host_delays_nothing(world: Worlds) -> None:
    here = treated(world, {})
    here.machine("n0").inject("host_hung")
    for _ in range(3):
        here.clock.elapsed += 600  # until it counts as down
        here.apply()
    [(action, bundle)] = bundles(here).items()
    assert action == "power_cycle"
    assert bundle["missing"]["kernel log"] == "the host does not answer"
    assert "BMC log, parts" in bundle["parts"]
    assert here.serves("n0")


def test_evidence_outlives_what_prune_drops(world: Worlds) -> None:
    here = treated(world, {"xid": {"code": 119}})
    before = bundles(here)
    assert before
    here.ledger.drop_results(here.clock.now() + timedelta(days=1))
    here.ledger._drop_outputs()
    assert bundles(here) == before


class Killed(BaseException):
    """The end of a process."""


def test_a_run_that_goes_on_takes_none_again(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(nodes=1, profile=TREATED, faults={"n0": {"xid": {"code": 79, "heals": "boot"}}})
    here.adopt()

    async def killed(_: ActionContext) -> Outcome:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setitem(FUNCTIONS, "soft_restart", killed)
        with pytest.raises(BaseException):  # noqa: B017 - the group that asyncio makes of it
            here.apply()
    [(_, _, _, _, intent)] = here.ledger.unfinished()
    here.apply()
    [bundle] = [one.detail for one in here.ledger.node("n0").attempts if one.action == "soft_restart"]
    assert f"(evidence {intent['evidence'][:12]})" in bundle
    assert here.serves("n0")
