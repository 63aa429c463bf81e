"""`reconciler repair` over the wire: from the list of what waits to the node that serves with another part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.lab import control
from tests.cli.shell import Done, LabDirectory, reconciler, running_lab
from tests.docs.pages import first_words

pytestmark = pytest.mark.wire

NODE = "gpu-0002"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("repair"), "--scenario", "clean", nodes=2, time_scale=60) as found:
        found.respec("fleet.yaml", "25%", "100%")
        found.respec("fleet.yaml", "50%", "100%")
        done = found.apply(found.plan(), "--detailed-exitcode")
        assert done.code == 0, done.out + done.err
        yield found


def repair(lab: LabDirectory, *words: str) -> Done:
    return reconciler("repair", *words, "--spec", lab.spec, "--endpoints", lab.endpoints)


def test_from_the_first_sign_to_capacity_back(lab: LabDirectory) -> None:
    first = reconciler(*first_words("how-to/repair")[1:], lab.spec, "--endpoints", lab.endpoints)
    assert (first.code, first.out) == (0, "no node waits for a person\n"), first.err
    lab.fault(NODE, "failed_part", part="dimm", index=2)
    lab.apply(lab.plan(), "--wait", "0")
    [row] = reconciler("repair", "list", lab.spec, "--endpoints", lab.endpoints, "-o", "json").json
    assert (row["node"], row["state"], row["in_service"]) == (NODE, "waits for a person", False)
    [part] = row["parts"]
    assert (part["kind"], part["place"]) == ("dimm", "3")
    assert part["serial"]
    assert row["evidence"]

    assert repair(lab, "start", NODE).code == 64, "off a terminal it needs --yes"
    strange = repair(lab, "start", NODE, "--yes", "--part", "dimm:33")
    assert (strange.code, "did you mean" in strange.err) == (64, True), strange.err
    assert repair(lab, "done", NODE).code == 64, "it is not in repair"
    started = repair(lab, "start", NODE, "--yes", "--reason", "ECC")
    assert started.code == 0, started.out + started.err
    assert f"exchange dimm:3 (serial {part['serial']})" in started.err
    machine = lab.state()["nodes"][NODE]
    assert (machine["power"], machine["indicator"]) == ("off", True)

    refused = repair(lab, "done", NODE)
    assert refused.code != 0
    assert "still has" in refused.err
    assert repair(lab, "start", NODE, "--yes").code == 0
    control.exchange_part(lab.path, NODE, "dimm", 2)
    done = repair(lab, "done", NODE)
    assert done.code == 0, done.out + done.err
    assert f"dimm:3: {part['serial']} ->" in done.err
    state = lab.state()
    assert not state["cluster"]["nodes"][NODE]["unschedulable"]
    assert state["nodes"][NODE]["indicator"] is False
    told = reconciler("history", NODE, "--spec", lab.spec, "--endpoints", lab.endpoints).out
    assert "ops exchanges dimm:3" in told
    assert "accepted: dimm:3" in told
