"""The spec that is written for nodes asks for what they have, whatever that is, and reads as if written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.desired import Fleet
from reconciler.model.records import NodeRecord
from reconciler.render.draft.kinds import Draft, Row, draft, lacking
from reconciler.render.draft.survey import Asked, found, unread
from reconciler.render.draft.text import Access, files, summary
from reconciler.spec import check_spec
from tests import builders as b
from tests.adopt.fleets import nodes_as

GOLDEN = Path(__file__).parent / "golden"
ACCESS = Access("root", bmc=True, ssh=True, bmc_ca=None, host_ca=None, cluster="main", context=None)


def rows(*names: str, **changes: Any) -> dict[str, Row]:
    made = {}
    for at, name in enumerate(names, 11):
        made[name] = replace(Row(name, f"https://10.0.0.{at}", f"10.0.1.{at}", "", {"rack": "r1"}), **changes)
    return made


def fleet_of(texts: Mapping[str, str]) -> Fleet:
    fleet, problems = check_spec({name: text.encode() for name, text in texts.items()}, directory="fleet-spec")
    assert fleet is not None, "\n".join(map(str, problems))
    return fleet


def written(
    nodes: Mapping[str, o.Observed], table: Mapping[str, Row], parked: Mapping[str, str] | None = None
) -> Draft:
    surveyed = [found(seen, Asked(bios=("SriovGlobalEnable", "NumaNodesPerSocket"))) for seen in nodes.values()]
    return draft("test", table, surveyed, {}, parked or {})


@settings(max_examples=40)
@given(st.data())
def test_it_asks_for_nothing_that_a_node_has_not(data: st.DataObject) -> None:
    names = [f"gpu-{at:03d}" for at in sorted(data.draw(st.sets(st.integers(1, 30), min_size=1, max_size=8)))]
    nodes = {name: data.draw(nodes_as(name)) for name in names}
    nodes = {name: seen for name, seen in nodes.items() if isinstance(seen.host, o.Answered)}
    if not nodes:
        return
    fleet = fleet_of(files(written(nodes, rows(*nodes)), ACCESS))
    assert fleet.nodes.keys() == nodes.keys()
    for name, node in fleet.nodes.items():
        items = Comparer(IgnoreRules((), b.NOW)).compare(node, nodes[name], NodeRecord(name))
        assert [(item.path, item.desired, item.observed, item.kind) for item in items] == []


def eight(**odd: Any) -> dict[str, o.Observed]:
    """Eight nodes, of which one or the other has something else."""
    made = {}
    for at in range(1, 9):
        name = f"gpu-{at:03d}"
        changes = odd.get(f"n{at}", {})
        own = {"serial": f"SN-{at + 100}"}
        made[name] = b.observed(
            name,
            inventory=b.inventory(**changes.get("inventory", {})),
            host=b.facts(name, **own, **changes.get("host", {})),
            member=b.member(name, labels={"workload": "infer" if at > 6 else "train", "rack": "r1"}),
            hot=b.hot(name, model="SYS-821GE-TNHR", **own),
        )
    return made


def test_it_reads_as_if_written_by_hand(request: pytest.FixtureRequest) -> None:
    """Kept as files, to be read: `pytest tests/draft --update` writes them anew."""
    nodes = eight(
        n3={"host": {"sysctls": {"vm.swappiness": "60"}}},
        n5={"inventory": {"boot_order": ("Pxe", "Hdd")}},
        n8={"host": {"hostname": "localhost"}},
    )
    made = written(nodes, rows(*nodes), {"gpu-004": "unhealthy (XID 79 on 00000000:03:00.0); no remediation policy"})
    made.unread = {"gpu-009": "SSH: gpu-009 (10.0.1.19:22) does not answer"}
    made.rows = {**made.rows, **rows("gpu-009")}
    texts = files(made, ACCESS) | {"summary.txt": "\n".join(summary(made)) + "\n"}
    fleet_of({name: text for name, text in texts.items() if name != "summary.txt"})
    if request.config.getoption("--update"):
        for name, text in texts.items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_text(text)
    assert {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()} == texts.keys()
    for name, text in texts.items():
        assert (GOLDEN / name).read_text() == text, f"{name} has changed: read it, then run with --update"


def test_nodes_in_a_row_share_an_entry() -> None:
    nodes = {name: seen for name, seen in eight().items() if name <= "gpu-006"}
    text = files(written(nodes, rows(*nodes)), ACCESS)["pools/train.yaml"]
    assert (
        "    - name: gpu-[001-006]\n      bmc: https://10.0.0.[11-16]\n      host: 10.0.1.[11-16]\n"
        "      serial: SN-[101-106]\n      domains: {rack: r1}\n"
    ) in text


def test_many_nodes_that_are_not_in_a_row_stand_in_a_table() -> None:
    names = [f"gpu-{at:03d}" for at in range(1, 40)]
    serials = {name: f"{int(name[4:]) * 7919 % 10007:x}" for name in names}
    nodes = {
        name: b.observed(name, hot=b.hot(name, serial=serials[name]), host=b.facts(name, serial=serials[name]))
        for name in names
    }
    texts = files(written(nodes, rows(*names)), ACCESS)
    (table,) = (text for name, text in texts.items() if name.endswith(".csv"))
    assert table.startswith("name,bmc,host,serial,domains.rack\ngpu-001,https://10.0.0.11,10.0.1.11,")
    assert fleet_of(texts).nodes.keys() == nodes.keys()


def test_the_pools_of_the_table_are_kept_and_odd_nodes_choose_for_themselves() -> None:
    nodes = eight()
    texts = files(written(nodes, rows(*nodes, pool="everything")), ACCESS)
    fleet = fleet_of(texts)
    assert {node.pool for node in fleet.nodes.values()} == {"everything"}
    assert [fleet.nodes[f"gpu-00{at}"].persona for at in (6, 7)] == ["train", "infer"]


def test_machines_that_lack_a_part_are_told_from_the_others() -> None:
    made = written(nodes := eight(n2={"inventory": {"dimms": 31}}), rows(*nodes))
    texts = files(made, ACCESS)
    assert "Like sys-821ge-tnhr, but for dimms 31 (there 32)" in texts["hardware.yaml"]
    assert fleet_of(texts).nodes["gpu-002"].profile.inventory.dimms == 31
    [told] = [line for line in summary(made) if "gpu-002" in line]
    assert "like sys-821ge-tnhr, but for dimms 31 (there 32)" in told


ONE_GPU, THREE_GPUS = ({"host": {"gpus": tuple(b.gpu(at) for at in range(few))}} for few in (1, 3))
PORT = o.Link("mlx5_0/1", up=True, rate_gbps=400.0, kind="infiniband")
LESS = {"inventory": {"dimms": 31, "memory_bytes": 2**41 - 2**36}}


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"n2": ONE_GPU}, {"gpu-002": "7 others of its model have gpus 2 (here 1)"}),
        ({"n2": LESS}, {"gpu-002": "7 others of its model have dimms 32 (here 31), memory 2TiB (here 1984GiB)"}),
        ({"n2": THREE_GPUS}, {}),
        ({"n2": {**THREE_GPUS, **LESS}}, {}),
        ({f"n{at}": ONE_GPU for at in range(1, 5)}, {}),
        (
            {f"n{at}": ONE_GPU for at in range(1, 4)},
            {f"gpu-00{at}": "5 others of its model have gpus 2 (here 1)" for at in range(1, 4)},
        ),
    ],
)
def test_nodes_that_only_lack_what_most_have_are_known(odd: dict[str, Any], why: dict[str, str]) -> None:
    """Where as many have less, or one has more of something, nobody can tell which are right."""
    assert lacking([found(seen, Asked()) for seen in eight(**odd).values()]) == why


def test_nodes_in_mig_mode_are_the_same_machines() -> None:
    """They give no NVLink status, as they use none."""
    mig = tuple(
        b.gpu(at, mig_current=True, mig_pending=True, mig_devices=(gpus.MigDevice(at, "3g.40gb", "u"),) * 2)
        for at in (0, 1)
    )
    nodes = eight(n7={"host": {"gpus": mig, "nvlinks_active": {}}}, n8={"host": {"gpus": mig, "nvlinks_active": {}}})
    fleet = fleet_of(files(written(nodes, rows(*nodes)), ACCESS))
    assert len({node.profile.inventory for node in fleet.nodes.values()}) == 1
    assert fleet.nodes["gpu-007"].profile.gpu is not None
    assert fleet.nodes["gpu-007"].profile.gpu.mig == {"3g.40gb": 2}


@pytest.mark.parametrize(
    ("part", "host"),
    [
        ("nvlinksPerGpu", {"nvlinks_active": {0: 18}}),
        ("nvlinksPerGpu", {"nvlinks_active": {0: 17}}),
        ("nvlinksPerGpu", {"nvlinks_active": {}}),
        ("rdmaPorts", {"links": (PORT, replace(PORT, name="mlx5_1/1", up=None))}),
    ],
)
def test_a_part_that_was_not_read_is_not_counted(part: str, host: dict[str, Any]) -> None:
    """The spec would ask for less than the node has, or for what nobody has seen."""
    seen = eight(n1={"host": host})["gpu-001"]
    assert part not in found(seen, Asked()).has


def test_a_lost_gpu_has_no_links_to_count() -> None:
    lost = {"gpus": (b.gpu(0), b.gpu(1, lost=True)), "nvlinks_active": {0: 18}}
    assert found(eight(n1={"host": lost})["gpu-001"], Asked()).has["nvlinksPerGpu"] == 18


@pytest.mark.parametrize("bad", ["x: {y\u202e", "x\n# z", "\x1b[2J"])
def test_what_no_spec_may_hold_is_left_out(bad: str) -> None:
    """With one such value the whole draft would be refused by `validate`."""
    nodes = {
        "gpu-001": b.observed(
            "gpu-001", hot=b.hot("gpu-001", model=bad, serial=bad), member=b.member("gpu-001", labels={}),
            host=b.facts("gpu-001", hostname=bad, serial=bad, sysctls={"vm.swappiness": bad}),
            inventory=b.inventory(bios={"SriovGlobalEnable": bad, "NumaNodesPerSocket": "NPS1"}, boot_order=(bad,)),
        )
    }  # fmt: skip
    node = fleet_of(files(written(nodes, rows("gpu-001")), ACCESS)).nodes["gpu-001"]
    assert node.profile.bios == {"NumaNodesPerSocket": "NPS1"}
    assert (node.serial, node.profile.inventory.model, node.profile.boot_order) == (None, None, None)


def test_hostile_strings_of_machines_stay_strings() -> None:
    bad = 'x: {y" # z'
    nodes = {
        "gpu-001": b.observed(
            "gpu-001", hot=b.hot("gpu-001", model=bad, manufacturer="- a"), host=b.facts("gpu-001", hostname="gpu-001"),
            inventory=b.inventory(bios={"SriovGlobalEnable": bad}), member=b.member("gpu-001", labels={}),
        )
    }  # fmt: skip
    fleet = fleet_of(files(written(nodes, rows("gpu-001")), ACCESS))
    assert fleet.nodes["gpu-001"].profile.bios == {"SriovGlobalEnable": bad}


def test_why_a_node_could_not_be_read() -> None:
    fleet = fleet_of(files(written(eight(), rows(*eight())), ACCESS))
    node = fleet.nodes["gpu-001"]
    assert unread(node, b.observed()) == ""
    assert unread(node, b.observed(host=b.silent("auth", "no key"))) == "SSH: no key"
    assert "names nodes as the cluster does" in unread(node, b.observed(member=None))


OFFERED = (
    "# remediation:", "# - {scope: rack", "# windows:", "#   - {kind", "# - {action: power_cycle", "# nodeConditions:",
    "#   - {type:", "# join:", "# thresholds:", "# rollout:",
)  # fmt: skip


def test_what_comments_offer_is_valid_as_it_stands() -> None:
    """Taking the `#` away is all that it takes."""
    texts = files(written(of_eight_gpus(), rows(*eight())), ACCESS)
    for offered in OFFERED:
        assert any(offered in text for text in texts.values()), offered
        texts = {
            name: text.replace(offered, offered.removeprefix("# ").removeprefix("#")) for name, text in texts.items()
        }
    fleet = fleet_of(texts)
    assert fleet.settings.windows
    assert len(fleet.settings.budgets) == 2
    node = fleet.nodes["gpu-001"].profile
    assert node.remediation is not None
    assert len(node.remediation.ladder) == 2
    assert node.remediation.node_conditions
    assert node.membership is not None
    assert node.membership.join
    assert node.acceptance is not None
    [test] = [test for phase in node.acceptance.phases for test in phase.tests if test.thresholds]
    assert test.args == {"collective": "all_reduce", "minBytes": "16G", "maxBytes": "16G"}
    assert [(bar.metric, bar.min) for bar in test.thresholds] == [("busbw_peak", 460.0)], "as published for this size"


def of_eight_gpus(**gpu: Any) -> dict[str, o.Observed]:
    facts = {"gpus": tuple(b.gpu(at, **gpu) for at in range(8)), "nvlinks_active": dict.fromkeys(range(8), 18)}
    return eight(**{f"n{at}": {"host": facts} for at in range(1, 9)})


@pytest.mark.parametrize("nodes", [eight(), of_eight_gpus(name="NVIDIA B200"), of_eight_gpus(name="NVIDIA H100 PCIe")])
def test_no_figure_of_other_gpus_or_another_number_of_them_is_offered(nodes: dict[str, o.Observed]) -> None:
    text = files(written(nodes, rows(*nodes)), ACCESS)["acceptance.yaml"]
    assert "minBytes: 8G" in text
    assert "thresholds" not in text
    assert "reconciler gate bars" in text


def test_a_machine_with_one_gpu_gets_no_collective() -> None:
    """The gate refuses one of one GPU, and would keep the node out."""
    one = {f"n{at}": {"host": {"gpus": (b.gpu(0),), "nvlinks_active": {}}} for at in range(1, 9)}
    text = files(written(nodes := eight(**one), rows(*nodes)), ACCESS)["acceptance.yaml"]
    assert "dcgmi-diag" in text
    assert "nccl-tests" not in text
