"""What is kept where others read it names no machine, and can still be approved and applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.app.drift_report import drift_report
from reconciler.converge.approval import stale_because
from reconciler.model import observed as o
from reconciler.model.documents import dump
from reconciler.model.observed import HIDDEN
from reconciler.model.plan import BlockCode
from reconciler.model.report import ActionEnd, ApplyOutcome, NodeEnd
from reconciler.render.redact import names_of, redact
from tests import builders as b
from tests.render.test_publish import NAMES, observation, plan
from tests.render.test_publish import fleet as fleet_of

WANTED = fleet_of(
    *(replace(b.node(name, uuid=f"UUID-{name}"), endpoints=replace(b.node().endpoints, bmc=f"https://10.0.0.{at}:8443"))
      for at, name in enumerate(NAMES, 11))
)  # fmt: skip
SEEN = observation(
    b.observed(NAMES[0], hot=b.hot("x", serial="SN-EXCHANGED", uuid="UUID-OTHER"),
               host=b.facts(NAMES[0], hostname="stray")),
    b.observed(NAMES[1], hot=b.silent("unreachable", "https://10.0.0.12:8443/redfish/v1: refused")),
    b.observed(NAMES[2], inventory=b.inventory(drives=(o.Drive("0", serial="DISK-77", wwn="5002538e"),)),
               host=b.facts(NAMES[2], sysctls={"vm.swappiness": "60"})),
)  # fmt: skip
RECORDS = {name: b.record(node) for name, node in WANTED.nodes.items()}
HIDDEN_OF_THEM = ("SN-EXCHANGED", "UUID-OTHER", "stray", "10.0.0.12", "DISK-77")


def test_a_plan_names_no_machine_and_can_be_approved() -> None:
    made = plan(WANTED, SEEN, RECORDS, b.LEDGER)
    blocked = made.nodes[NAMES[0]].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.IDENTITY
    before = dump(made)
    assert all(word in before for word in HIDDEN_OF_THEM[:2])
    told = redact(made, names_of(WANTED, SEEN, RECORDS), WANTED)
    after = dump(told)
    assert not any(word in after for word in HIDDEN_OF_THEM)
    assert HIDDEN in after
    assert told.fingerprint == made.fingerprint
    for name, node in made.nodes.items():
        again = replace(node, fingerprint="by its values, then")
        assert stale_because(told.nodes[name], again, begun=False) == ""
        assert [action.id for action in told.nodes[name].actions] == [action.id for action in node.actions]
    assert "60" in after, "what is no name is told"


def test_a_drift_report_names_no_machine() -> None:
    report = drift_report(plan(WANTED, SEEN, RECORDS, b.LEDGER), SEEN)
    told = dump(redact(report, names_of(WANTED, SEEN, RECORDS), WANTED))
    assert not any(word in told for word in HIDDEN_OF_THEM)
    assert "SN-gpu-a001" in told, "what the spec says can be read there"


@pytest.mark.parametrize("word", ["DISK-77", "10.0.0.13:8443", "SN-gpu-a003"])
def test_an_outcome_names_no_machine(word: str) -> None:
    ended = f"ubuntu-gpu 2026.11.1 on {word}, in 12m"
    outcome = ApplyOutcome(
        "1.0", "0", "r", "p", "test", WANTED.source, plan(WANTED, SEEN, RECORDS, b.LEDGER).scope, b.NOW, b.NOW, False,
        {NAMES[2]: NodeEnd("failed", ended)}, (ActionEnd(NAMES[2], "reimage", "done", ended, b.NOW, 1.0),), (), (),
        True, True, insecure=("1 of 3 BMCs take the login that Dell's iDRAC comes with",),
    )  # fmt: skip
    told = redact(outcome, names_of(WANTED, SEEN, RECORDS), WANTED)
    assert word not in dump(told)
    assert told.nodes[NAMES[2]].detail == f"ubuntu-gpu 2026.11.1 on {HIDDEN}, in 12m"
    assert told.insecure == ()
