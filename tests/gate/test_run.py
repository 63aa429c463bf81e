"""A whole gate on one host: what happens to the node while a load runs, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from reconciler.converge.gate import AcceptanceGate
from reconciler.gate.lock import locked
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.desired import Acceptance, GatePhase, GateTest
from reconciler.model.errors import DriverError
from reconciler.model.gate import Certificate, CommandResult, Verdict
from reconciler.model.observed import Answered, HostFacts, Silent, Xid
from reconciler.model.ports import Host
from reconciler.model.vocab import UnknownReason
from tests import builders as b

LOAD = GateTest("load", "command", {"run": "train", "metrics": "mfu"}, (), 60.0)
TESTS = (GateTest("passive", "xid", {}, (), 60.0), LOAD)
NODE = b.node(profile=replace(b.PROFILE, acceptance=Acceptance("standard", (GatePhase("burn", TESTS),), None)))
GOOD = CommandResult(0, "step 1\nmfu 0.42 ratio\n")


class OneHost:
    """A host that prints `output`, and is as `after` says from then on."""

    def __init__(self, output: CommandResult = GOOD, after: HostFacts | None = None) -> None:
        self.output = output
        self.after: HostFacts | None = after
        self.commands: list[tuple[str, ...]] = []

    async def facts(self, *_: Any) -> Answered[HostFacts] | Silent:
        if not self.commands:
            return Answered(b.NOW, b.facts())
        return Answered(b.NOW, self.after) if self.after else Silent(b.NOW, UnknownReason.UNREACHABLE, "no route")

    async def run(self, argv: Sequence[str], *, timeout: float) -> CommandResult:
        assert timeout > 0
        self.commands.append(tuple(argv))
        return self.output


def gate(host: OneHost) -> Certificate:
    ran = AcceptanceGate(lambda _: None).run(NODE, cast("Host", host), b.observed(), VirtualClock())
    return asyncio.run(ran)


def verdicts(certificate: Certificate) -> dict[str, Verdict]:
    return {result.test: result.verdict for result in certificate.results}


def test_times_units_and_what_was_printed_are_kept_and_each_command_runs_alone() -> None:
    host = OneHost(after=b.facts())
    found = gate(host)
    assert verdicts(found) == {"passive": Verdict.PASS, "load": Verdict.PASS}
    load = found.results[1]
    assert load.printed == f"--- command 1: exit status 0\n{GOOD.stdout}"
    assert (load.units, load.metrics) == ({"mfu": "ratio"}, {"mfu": 0.42})
    assert load.started_at is not None
    assert all(argv[: len(locked(()))] == locked(()) for argv in host.commands)


def test_a_gpu_that_is_lost_in_the_middle_fails_the_node_whatever_the_load_says() -> None:
    host = OneHost(after=b.facts(xids=(Xid(79, "0000:17:00.0", 1),)))
    assert verdicts(gate(host)) == {"passive": Verdict.FAIL, "load": Verdict.PASS}


def test_a_host_that_is_lost_in_the_middle_has_no_certificate() -> None:
    with pytest.raises(DriverError, match="went silent at the gate"):
        gate(OneHost(after=None))


def test_a_tool_that_was_killed_for_memory_is_tried_once_more_and_is_no_failure() -> None:
    host = OneHost(CommandResult(137, "step 1\n"), after=b.facts())
    assert verdicts(gate(host)) == {"passive": Verdict.PASS, "load": Verdict.ERROR}
    assert len(host.commands) == 2


def test_another_gate_on_the_node_is_an_error_that_says_so() -> None:
    found = gate(OneHost(CommandResult(75, ""), after=b.facts()))
    assert verdicts(found)["load"] is Verdict.ERROR
    assert "another gate runs on this node" in found.results[1].reasons[0]
