"""`reconciler isolation` over the wire: an ill node is cordoned at once, listed, and let go if the signal was wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.shell import LabDirectory, reconciler, running_lab

pytestmark = pytest.mark.wire

NODE = "gpu-0002"
SIGNAL = "health.memory_ue"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    """Converged; nothing more may be taken out of service."""
    with running_lab(tmp_path_factory.mktemp("isolation"), "--scenario", "clean", nodes=3) as found:
        found.respec("fleet.yaml", "25%", "100%")
        found.respec("fleet.yaml", "50%", "100%")
        done = found.apply(found.plan(), "--detailed-exitcode")
        assert done.code == 0, done.out + done.err
        days = "[mon, tue, wed, thu, fri, sat, sun]"
        closed = f"  windows: [{{kind: deny, days: {days}, from: '00:00', to: '24:00', timezone: UTC}}]\n"
        found.respec("fleet.yaml", "  drift:", closed + "  drift:")
        yield found


def isolation(lab: LabDirectory, *words: str):  # type: ignore[no-untyped-def]
    return reconciler("isolation", *words, "--spec", lab.spec, "--endpoints", lab.path / "endpoints.json")


def unschedulable(lab: LabDirectory) -> list[str]:
    return [name for name, node in lab.state()["cluster"]["nodes"].items() if node["unschedulable"]]


def test_from_the_first_sign_to_the_retraction(lab: LabDirectory) -> None:
    first = isolation(lab, "list")
    assert (first.code, first.out) == (0, "no node is isolated\n"), first.err
    lab.fault(NODE, "kernel_event", event="memory_ue", persistent=True)
    approved, before = lab.plan(), lab.counters()
    told = lab.run("plan").out
    assert f"isolated at once, before any limit: {NODE} ({SIGNAL})" in told
    done = lab.apply(approved, "--wait", "0")
    assert unschedulable(lab) == [NODE], done.out + done.err
    assert lab.counters() == before, "drain and repair wait for their budget"
    told = lab.run("plan").out
    assert f"isolated, not drained yet: {NODE} ({SIGNAL})" in told
    [row] = json.loads(isolation(lab, "list", "-o", "json").out)
    assert (row["what"], row["signal"], row["state"]) == (NODE, SIGNAL, "not drained yet")
    # A typo is no remedy; a signal that isolates nobody is none to retract.
    for wrong in ("memory_eu", "psu_failed"):
        refused = isolation(lab, "retract", wrong, "--reason", "x")
        assert (refused.code, unschedulable(lab)) == (64, [NODE])
        assert "is not a signal that isolates nodes" in refused.err
    done = isolation(lab, "retract", "memory_ue", "--reason", "firmware logs one on every boot")
    assert (done.code, unschedulable(lab)) == (0, [])
    assert "back in service" in done.out
    told = isolation(lab, "list").out
    assert SIGNAL in told
    assert "firmware logs one on every boot" in told
    done = lab.run("drift", "--detailed-exitcode")
    assert done.code == 2, "it is still told"
    assert "retracted: reported only" in done.out
    lab.apply(lab.plan(), "--wait", "0")
    assert unschedulable(lab) == []
    assert isolation(lab, "restore", "memory_ue").code == 0
    again = isolation(lab, "restore", "memory_ue")
    assert (again.code, "is not retracted" in again.err) == (64, True)
    lab.apply(lab.plan(), "--wait", "0")
    assert unschedulable(lab) == [NODE]
