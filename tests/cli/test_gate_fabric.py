"""gate fabric over the wire: a lab of six machines behind two leaves, their hosts over SSH."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Done, LabDirectory, reconciler, running_lab

pytestmark = pytest.mark.wire

NODES = [f"gpu-{at:04}" for at in range(1, 7)]
RAILS = """
        - name: rails
          tool: perftest
          args: {partners: 2, rails: "mlx5_0,mlx5_1", interface: ib0, seconds: 1}
          thresholds: [{metric: gbps, min: 360}]
          timeout: 60s
"""
TOGETHER = """
        - name: together
          tool: nccl-tests
          args: {group: 6, scope: fabric, interface: ib0, minBytes: 1G, maxBytes: 1G}
          thresholds: [{metric: busbw_peak, min: 300}]
          timeout: 10m
        - name: site
          tool: command
          args:
            partners: 2
            interface: ib0
            run: torchrun --nnodes=2 --node-rank=1 --master-addr=$PARTNER --master-port=29500 all_reduce.py
            serve: torchrun --nnodes=2 --node-rank=0 --master-addr=$PARTNER --master-port=29500 all_reduce.py
            metrics: busbw
          thresholds: [{metric: busbw, min: 350}]
          timeout: 10m
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    """Six nodes that are out of service by us: the tests of another profile leave a node there."""
    with running_lab(tmp_path_factory.mktemp("fabric"), "--scenario", "clean", nodes=6, time_scale=20) as found:
        for old in ("25%", "50%"):
            found.respec("fleet.yaml", old, "100%")
        profile = "apiVersion: reconciler.dev/v1alpha1\nkind: AcceptanceProfile\nmetadata: {name: NAME}\n"
        quick = "spec:\n  phases:\n    - name: quick\n      tests:\n        - {name: xids, tool: xid}\n"
        pairs = f"spec:\n  phases:\n    - name: network\n      tests:{RAILS}"
        groups = f"spec:\n  phases:\n    - name: network\n      tests:{TOGETHER}"
        for name, body in (("quick", quick), ("pairs", pairs), ("groups", groups)):
            (found.spec / f"{name}.yaml").write_text(profile.replace("NAME", name) + body)
        for path in (found.spec / "pools").iterdir():  # a rack, and so a leaf, of three nodes each
            text = re.sub(
                r"\br([1-6])$", lambda rack: "r1" if rack[1] < "4" else "r2", path.read_text(), flags=re.MULTILINE
            )
            path.write_text(text)
        for pool in sorted((found.spec / "pools").glob("*.yaml")):
            pool.write_text(pool.read_text().rstrip("\n") + "\n  rollout: {waves: ['100%'], bake: 0s}\n")
        done = found.apply(found.plan(), "--detailed-exitcode")
        assert done.code == 0, done.out
        out = reconciler("gate", "run", *NODES, "--profile", "quick", "--yes", *where(found))
        assert out.code == 0, out.err
        yield found


def where(lab: LabDirectory) -> tuple[str | Path, ...]:
    return ("--spec", lab.spec, "--endpoints", lab.endpoints)


def search(lab: LabDirectory, *words: str) -> Done:
    return reconciler("gate", "fabric", "--profile", "pairs", "--yes", *words, *where(lab))


def test_a_gate_runs_a_group_and_a_program_of_the_site(lab: LabDirectory) -> None:
    """Before the others: of a cable that is well again, the errors of the last hour still make its node ill."""
    ran = reconciler("gate", "run", "gpu-0002", "--profile", "groups", "--yes", *where(lab))
    shown = reconciler("gate", "show", "gpu-0002", *where(lab)).out  # why, were one of them not judged
    assert ran.code == 0, ran.out + ran.err + shown
    rows = reconciler("gate", "history", "gpu-0002", "--output", "json", *where(lab)).json
    last = {row["test"]: row["verdict"] for row in rows}
    assert {last["together"], last["site"]} == {"pass"}, ran.out + shown


def test_a_bad_cable_is_named_with_its_rail_and_no_other_node(lab: LabDirectory) -> None:
    good = search(lab, "--output", "json")
    assert good.code == 0, good.out + good.err
    assert (good.json["at_fault"], sorted(good.json["good"])) == ([], NODES)
    lab.fault("gpu-0003", "cable", port=1)
    found = search(lab, "--output", "json")
    lab.clear("gpu-0003")
    assert found.code == 7, found.out
    assert [(part["name"], part["rail"]) for part in found.json["at_fault"]] == [("gpu-0003", "mlx5_1")]
    assert found.json["incidents"] == []
    assert "gpu-0003" not in found.json["good"]
    history = reconciler("history", "gpu-0003", "--output", "json", *where(lab))
    assert "rail mlx5_1 is at fault" in history.out
    shown = reconciler("gate", "show", found.json["run"], "--output", "json", *where(lab))
    assert (shown.code, shown.json) == (0, found.json)
    rows = reconciler("gate", "history", *NODES, "--test", "rails", "--output", "json", *where(lab)).json
    last = [row for row in rows if row["started_at"] == max(row["started_at"] for row in rows)]
    assert {row["node"]: row["verdict"] for row in last} == {
        name: "fail" if name == "gpu-0003" else "pass" for name in NODES
    }


def test_a_bad_leaf_is_an_incident(lab: LabDirectory) -> None:
    behind = NODES[:3]
    for name in behind:
        lab.fault(name, "leaf", port=0)
    found = search(lab)
    for name in behind:
        lab.clear(name)
    assert found.code == 7, found.err
    assert "At fault" not in found.out
    assert "leaf r1, rail mlx5_0" in found.out
    assert "Incidents, no node's fault" in found.out


def test_a_node_whose_collectives_are_slow_is_found_by_groups(lab: LabDirectory) -> None:
    """The fault `low_nccl`, which no pair of perftest shows."""
    words = ("gate", "fabric", "--profile", "groups", "--test", "together", "--yes", "--output", "json", *where(lab))
    lab.fault("gpu-0005", "low_nccl", busbw=120.0)
    found = reconciler(*words)
    lab.clear("gpu-0005")
    assert found.code == 7, found.out + found.err
    assert [(part["kind"], part["name"]) for part in found.json["at_fault"]] == [("node", "gpu-0005")]
    assert sorted(found.json["good"]) == [name for name in NODES if name != "gpu-0005"]
    assert found.json["incidents"] == []


def test_without_a_test_with_partners_or_a_terminal_it_is_refused(lab: LabDirectory) -> None:
    none = reconciler("gate", "fabric", "--yes", *where(lab))
    assert (none.code, "needs a test with args.partners" in none.err) == (64, True), none.err
    silent = reconciler("gate", "fabric", "--profile", "pairs", *where(lab))
    assert (silent.code, "--yes" in silent.err) == (64, True)
