"""The typed consent to decommission a node: one for each, to exactly what the plan does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click
import pytest

from reconciler.cli.commands import apply
from reconciler.model.errors import UsageError
from reconciler.model.plan import Plan
from reconciler.model.vocab import NodeState
from tests.converge.world import World


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    here = World(tmp_path_factory.mktemp("consent"), nodes=3)
    here.adopt()
    nodes = dict(here.fleet.nodes)
    for name in ("n0", "n1"):
        machine = here.machine(name).state
        serials = (machine.drives[1].serial,) if name == "n0" else ()
        nodes[name] = replace(nodes[name], state=NodeState.DECOMMISSIONED, serial=machine.serial, erase=serials)
    here.fleet = replace(here.fleet, nodes=nodes)
    made = here.plan()
    here.ledger.close()
    return made


def at_terminal(monkeypatch: pytest.MonkeyPatch, *, yes: bool, answers: Sequence[str] = ()) -> None:
    waiting = list(answers)
    monkeypatch.setattr("sys.stdin.isatty", lambda: yes, raising=False)
    monkeypatch.setattr(click, "prompt", lambda _text, **_: waiting.pop(0))


BOTH = ("decommission n0", "decommission n1")


def test_off_a_terminal_each_node_needs_its_own_sentence(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch, yes=False)
    assert apply.consent(plan, BOTH) == {"n0", "n1"}
    with pytest.raises(UsageError, match="n1 for good: this needs --confirm 'decommission n1'"):
        apply.consent(plan, BOTH[:1])


@pytest.mark.parametrize("given", ["decommission n2", "decommission n9", "yes", "n0", "decommission  n0"])
def test_a_sentence_for_nothing_in_the_plan_is_refused(plan: Plan, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    at_terminal(monkeypatch, yes=False)
    with pytest.raises(UsageError, match="decommissions no such node"):
        apply.consent(plan, (*BOTH, given))


def test_on_a_terminal_it_is_typed_and_the_drives_are_shown(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch, yes=True, answers=BOTH)
    assert apply.consent(plan, ()) == {"n0", "n1"}
    said = capsys.readouterr().err
    [drive] = [action.target for action in plan.nodes["n0"].actions if action.name == "erase"]
    assert f"n0 leaves the fleet for good. This erases: {drive}." in said
    assert "n1 leaves the fleet for good. This erases: no drive." in said


@pytest.mark.parametrize("answer", ["y", "yes", "decommission n1", "Decommission n0"])
def test_anything_else_ends_it(plan: Plan, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    at_terminal(monkeypatch, yes=True, answers=(answer, *BOTH))
    with pytest.raises(click.Abort):
        apply.consent(plan, ())
