"""The nodes of a spec are brought in step with an inventory: for any spec, and any answer of the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.app.inventory.compare import compare
from reconciler.app.inventory.fields import InventoryRow
from reconciler.app.inventory.sources import READERS
from reconciler.model.desired import Fleet
from reconciler.model.errors import Refused
from reconciler.model.inventory import InventoryDifference, InventoryKind, InventoryPolicy
from reconciler.model.records import Applied, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.render.proposal import inventory_text
from reconciler.spec.edit import table
from reconciler.spec.edit.files import SpecFiles
from reconciler.spec.edit.nodes import write_steps
from tests import builders as b
from tests.adopt.fleets import BASE, HEAD, load, specs
from tests.spec.example import changed, told

POLICY = InventoryPolicy(InventoryKind.NETBOX, "/netbox.json", pool="train", retire="100%", change="100%")


def row(name: str, bmc: str, host: str, **more: str) -> InventoryRow:
    return InventoryRow({"name": name, "bmc": bmc, "host": host, **more}, f"NetBox: device {name}")


def rows_of(fleet: Fleet) -> dict[str, InventoryRow]:
    """What an inventory says that is in step."""
    return {
        name: row(name, node.endpoints.bmc or "", node.endpoints.host or "", rack=node.domains["rack"])
        for name, node in fleet.nodes.items()
    }


def written(files: Mapping[str, str], fleet: Fleet, found: InventoryDifference) -> dict[str, str]:
    made = SpecFiles({name: text.encode() for name, text in files.items()}, "fleet-spec")
    write_steps(made, fleet, found)
    return {**files, **made.edited}


@given(specs(), st.data())
def test_merging_it_brings_the_spec_in_step_and_touches_nothing_else(
    files: dict[str, str], data: st.DataObject
) -> None:
    fleet = load(files)
    said = rows_of(fleet)
    gone = data.draw(st.sets(st.sampled_from(sorted(said)), max_size=len(said) - 1), label="gone")
    moved = data.draw(st.sets(st.sampled_from(sorted(said))), label="moved") - gone
    for number, name in enumerate(sorted(moved)):
        what = data.draw(st.sampled_from(["bmc", "host", "rack"]))
        value = {"bmc": f"https://10.9.0.{number + 1}", "host": f"10.9.1.{number + 1}", "rack": "moved"}[what]
        said[name] = InventoryRow({**said[name].cells, what: value}, said[name].where)
    new = [
        row(f"new-{n}", f"https://10.8.0.{n}", f"10.8.1.{n}", rack="r9") for n in range(1, data.draw(st.integers(1, 3)))
    ]
    known = [*(one for name, one in said.items() if name not in gone), *new]
    found = compare(fleet, POLICY, known, {})
    assert {one.node for one in found.added} == {one.cells["name"] for one in new}
    assert ({one.node for one in found.changed}, {one.node for one in found.retired}) == (moved, gone)
    after = load(written(files, fleet, found))
    assert after.nodes.keys() == fleet.nodes.keys() | {one.cells["name"] for one in new}, "no node is taken out"
    assert {name for name, node in after.nodes.items() if node.state is NodeState.RETIRED} == gone
    again = compare(after, POLICY, known, {})
    assert again.steps == (), "merged, nothing is left to propose"
    for name in fleet.nodes.keys() - gone - moved:
        old, now = fleet.nodes[name], after.nodes[name]
        assert replace(now, provenance={}, profile=old.profile) == replace(old, provenance={})


POOL = HEAD.format(name="train") + (
    "  nodes:\n    - {name: 'gpu-[01-20]', bmc: 'https://10.0.0.[1-20]', host: '10.0.1.[1-20]', domains: {rack: r1}}\n"
)
FILES = {**BASE, "train.yaml": POOL}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load(FILES)


def test_an_answer_of_nothing_or_of_half_retires_nobody(fleet: Fleet) -> None:
    said = list(rows_of(fleet).values())
    with pytest.raises(Refused, match="answers with no node at all"):
        compare(fleet, POLICY, [], {})
    strict = replace(POLICY, retire="5%")
    assert [one.node for one in compare(fleet, strict, said[1:], {}).retired] == ["gpu-01"]
    with pytest.raises(Refused, match=r"lacks 2 of 20 nodes .*gpu-01, gpu-02.* retires 1 at most .*retire: 5%"):
        compare(fleet, strict, said[2:], {})
    with pytest.raises(Refused, match="lacks 10 of 20"):
        compare(fleet, strict, said[:10], {})
    assert len(compare(fleet, replace(POLICY, retire="10"), said[:10], {}).retired) == 10
    with pytest.raises(Refused, match="retires 0 at most"):
        compare(fleet, replace(POLICY, retire="0"), said[1:], {})


def test_no_more_nodes_are_changed_at_once_than_the_spec_allows(fleet: Fleet) -> None:
    said = rows_of(fleet)
    for n in (5, 6):
        said[f"gpu-0{n}"] = row(f"gpu-0{n}", f"https://10.7.0.{n}", f"10.0.1.{n}", rack="r1")
    with pytest.raises(Refused, match=r"for 2 of 20 nodes .*gpu-05, gpu-06; endpoints.bmc of .* changes 1 at most"):
        compare(fleet, replace(POLICY, change="5%"), list(said.values()), {})
    assert len(compare(fleet, replace(POLICY, change="2"), list(said.values()), {}).changed) == 2


NAMED = [f"gpu-{n:02}" for n in range(1, 21)]
BMCS = dict(zip(NAMED, (f"https://10.0.0.{n}" for n in range(1, 21)), strict=True))
GUESSED: dict[InventoryKind, Any] = {
    InventoryKind.ANSIBLE: {"_meta": {"hostvars": {name: {"bmc": bmc} for name, bmc in BMCS.items()}}},
    InventoryKind.IRONIC: [{"name": name, "driver_info": {"redfish_address": bmc}} for name, bmc in BMCS.items()],
    InventoryKind.METAL3: [
        {
            "kind": "BareMetalHost", "metadata": {"name": name}, "status": {"hardware": {"hostname": f"{name}-a"}},
            "spec": {"bmc": {"address": bmc.replace("https", "redfish")}},
        }
        for name, bmc in BMCS.items()
    ],
    InventoryKind.TERRAFORM: {
        "values": {"root_module": {"resources": [
            {"mode": "managed", "values": {"name": name, "ipmi": bmc}} for name, bmc in BMCS.items()
        ]}}
    },
    InventoryKind.MAAS: [
        {
            "hostname": name, "power_type": "redfish", "power_address": bmc,
            "ip_addresses": [bmc[8:].replace("10.0", "10.9"), "::1"],
        }
        for name, bmc in BMCS.items()
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", GUESSED)
def test_a_host_that_the_inventory_does_not_name_changes_no_node(fleet: Fleet, kind: InventoryKind) -> None:
    names = {"bmc": "ipmi"} if kind is InventoryKind.TERRAFORM else {}
    rows = READERS[kind](GUESSED[kind], "file", names)
    assert {one.cells["name"] for one in rows if one.cells["host"]} == set(NAMED), "new nodes have it"
    assert compare(fleet, POLICY, rows, {}).steps == ()


def test_an_address_that_the_inventory_names_changes_the_node(fleet: Fleet) -> None:
    [known] = READERS[InventoryKind.MAAS]([GUESSED[InventoryKind.MAAS][0] | {"ip_addresses": ["10.9.0.1"]}], "file", {})
    others = [one for name, one in rows_of(fleet).items() if name != "gpu-01"]
    [step] = compare(fleet, POLICY, [known, *others], {}).steps
    assert [(edit.path, edit.after) for edit in step.edits] == [("endpoints.host", "10.9.0.1:22")]


def test_what_only_a_person_can_settle_is_left_with_its_reason(fleet: Fleet) -> None:
    said = rows_of(fleet)
    mine = [one for name, one in said.items() if name not in ("gpu-01", "gpu-02", "gpu-03")]
    known = [
        *mine,
        row("renamed", "https://10.0.0.1", "10.0.1.1"),
        InventoryRow({"name": "gpu-02"}, "NetBox: device gpu-02"),
        row("gpu-03", "http://10.0.0.3", "10.0.1.3"),
        InventoryRow({"bmc": "https://10.7.0.1"}, "NetBox: device 77"),
        row("twin", "https://10.7.0.2", "10.7.1.2"),
        row("twin", "https://10.7.0.3", "10.7.1.3"),
        row("elsewhere", "https://10.7.0.4", "10.7.1.4", pool="render"),
        row("twice", "https://10.0.0.9", "10.7.1.5"),
    ]
    found = compare(fleet, POLICY, known, {})
    assert found.steps == ()
    left = dict(found.left)
    assert "has the BMC of gpu-01 of the spec: if it was renamed" in left["renamed"]
    assert "no address" in left["gpu-02"]
    assert "NetBox: device gpu-03: 'http://10.0.0.3'" in left["gpu-03"]
    assert "no name" in left["NetBox: device 77"]
    assert "2 of the inventory have this name" in left["twin"]
    assert "no such pool" in left["elsewhere"]
    assert "BMC of gpu-09, which the inventory names too" in left["twice"]
    [(node, why)] = compare(
        fleet, replace(POLICY, pool=""), [*said.values(), row("n", "https://10.7.0.9", "h")], {}
    ).left
    assert (node, "names no pool for it" in why) == ("n", True)


@pytest.mark.parametrize(
    "other",
    [
        row("GPU_05", "https://10.0.0.5", "10.0.1.55"),
        row("gpu_05", "http://10.0.0.5", "10.0.1.5"),
        InventoryRow({"bmc": "https://10.0.0.5:443"}, "NetBox: device 5"),
        row("gpu-55", "https://10.7.0.5", "10.0.1.5"),
        row("gpu-55", "https://10.7.0.5", "10.0.1.5", pool="elsewhere"),
    ],
    ids=["no name of a node", "its host alone", "no name", "another name at its host", "another pool, too"],
)
def test_a_renamed_node_is_not_retired(fleet: Fleet, other: InventoryRow) -> None:
    """Its name may be none that a node can have; then its addresses tell that it is still there."""
    said = [one for name, one in rows_of(fleet).items() if name not in ("gpu-05", "gpu-06")]
    found = compare(fleet, POLICY, [*said, other], {})
    assert [step.node for step in found.steps] == ["gpu-06"], "which has left, alone is retired"
    assert f"the inventory lacks this name, and {other.where} has its address" in dict(found.left)["gpu-05"]


def test_one_address_of_two_nodes_keeps_no_other_step_back(fleet: Fleet) -> None:
    retired = load({**FILES, "train.yaml": POOL.replace("[01-20]", "[01-19]").replace("[1-20]", "[1-19]") + (
        "    - {name: gpu-20, bmc: 'https://10.0.0.20', host: 10.0.1.20, domains: {rack: r1}, state: retired}\n"
    )})  # fmt: skip
    said = {name: one for name, one in rows_of(fleet).items() if name != "gpu-20"}
    said["gpu-07"] = row("gpu-07", "https://10.0.0.8", "10.0.1.7", rack="r1")
    said["gpu-08"] = row("gpu-08", "https://10.0.0.7", "10.0.1.8", rack="r1")
    said["gpu-06"] = row("gpu-06", "https://10.0.0.6", "10.0.1.20", rack="r1")
    known = [
        *said.values(),
        row("gpu-21", "https://10.0.0.20", "10.7.1.21"),
        row("gpu-22", "https://10.7.0.22", "10.0.1.6"),
        row("gpu-23", "https://10.7.0.23", "10.7.1.23"),
        row("gpu-24", "https://10.7.0.24", "10.7.1.24"),
        row("gpu-25", "https://10.7.0.25", "10.7.1.24"),
        row("gpu-26", "https://10.7.0.26", "10.7.1.26", rack="r\u202e1"),
    ]
    found = compare(retired, POLICY, known, {})
    assert [step.node for step in found.steps] == ["gpu-23", "gpu-07", "gpu-08"], "two that exchange addresses may"
    left = dict(found.left)
    out = "which is retired in the spec: take gpu-20 out of it once nothing on it is wanted"
    assert (left["gpu-21"], left["gpu-06"]) == (f"it has the BMC of gpu-20, {out}", f"it has the host of gpu-20, {out}")
    assert left["gpu-22"] == "it has the host of gpu-06, which keeps it for now: see to gpu-06 first"
    assert "host of gpu-25, which the inventory names too" in left["gpu-24"]
    assert "host of gpu-24, which the inventory names too" in left["gpu-25"]
    assert "one line without control characters" in left["gpu-26"]
    files = SpecFiles({name: text.encode() for name, text in {**FILES, "train.yaml": POOL}.items()}, "fleet-spec")
    write_steps(files, fleet, compare(fleet, POLICY, [*said.values(), *known[-5:]], {}))


@pytest.mark.parametrize("columns", ["name,bmc,host,domains.rack,state", "name,bmc,host,domains.rack"])
def test_each_row_of_the_file_is_parsed_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """Else 10,000 rows take minutes, while the loop waits for its share of the processor."""
    blank = "," * (columns.count(",") - 3)
    lines = [f"gpu-{n:03},https://10.0.{n // 100}.{n % 100},10.1.{n // 100}.{n % 100},r1{blank}" for n in range(300)]
    pool = HEAD.format(name="train") + "  inventory: nodes.csv\n"
    files = {**BASE, "train.yaml": pool, "nodes.csv": "\n".join([columns, *lines, "", ""])}
    fleet = load(files)
    said = list(rows_of(fleet).values())[:200]
    moved = [InventoryRow({**one.cells, "rack": "r2"}, one.where) for one in said]
    new = [row(f"new-{n:03}", f"https://10.2.0.{n}", f"10.3.0.{n}", rack="r3") for n in range(100)]
    parsed: list[str] = []
    cells = table._cells

    def counted(line: str) -> list[str]:
        parsed.append(line)
        return cells(line)

    monkeypatch.setattr(table, "_cells", counted)
    after = load(written(files, fleet, compare(fleet, POLICY, [*moved, *new], {})))
    assert len(parsed) < 5 * 300
    assert len(after.nodes) == 400
    assert sum(node.state is NodeState.RETIRED for node in after.nodes.values()) == 100
    assert sum(node.domains["rack"] == "r2" for node in after.nodes.values()) == 200


@given(
    st.lists(
        st.builds(
            row,
            st.sampled_from(["gpu-01", "gpu-02", "gpu-03", "new-1", "new-2"]),
            st.integers(1, 5).map(lambda n: f"https://10.0.0.{n}"),
            st.integers(1, 5).map(lambda n: f"10.0.1.{n}"),
        ),
        min_size=1,
    )
)
def test_whatever_addresses_it_names_the_edited_spec_is_valid(said: list[InventoryRow]) -> None:
    files = {**BASE, "train.yaml": POOL.replace("[01-20]", "[01-03]").replace("[1-20]", "[1-3]")}
    fleet = load(files)
    written(files, fleet, compare(fleet, POLICY, said, {}))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("bmc", "http://root:calvin@10.0.0.5"),
        ("bmc", "redfish://root:calvin@10.0.0.5/redfish/v1"),
        ("bmc", "https://root:calvin@10.0.0.5"),
        ("host", "root:calvin@10.0.1.5"),
        ("host", "root:calvin@"),
    ],
)
def test_a_password_in_an_address_is_in_no_text(fleet: Fleet, column: str, value: str) -> None:
    said = rows_of(fleet)
    said["gpu-05"] = InventoryRow({**said["gpu-05"].cells, column: value}, said["gpu-05"].where)
    found = compare(fleet, POLICY, [*said.values(), row("gpu-21", "https://10.7.0.9", "10.7.1.9")], {})
    text = inventory_text(found, POLICY)
    assert ("gpu-21" in text, "NetBox: device gpu-05" in text, "calvin" in text) == (True, True, False)


def test_a_node_that_is_to_leave_is_told_with_what_it_holds(fleet: Fleet) -> None:
    said = list(rows_of(fleet).values())[1:]
    applied = {"image.version": Applied("2026.11.1", "", "", b.NOW)}
    record = NodeRecord("gpu-01", applied=applied, certificate=b.certificate(b.node(), b.observed()))
    found = compare(fleet, POLICY, said, {"gpu-01": record})
    text = inventory_text(found, POLICY)
    assert "gpu-01" in text
    assert "runs 2026.11.1, is certified for work, and its drives keep their data" in text
    assert "state: decommissioned" in text
    after = load(written(FILES, fleet, found))
    assert after.nodes["gpu-01"].state is NodeState.RETIRED
    assert "erase" not in written(FILES, fleet, found)["train.yaml"]
    settled = compare(after, POLICY, [*said, rows_of(fleet)["gpu-01"]], {})
    assert dict(settled.left)["gpu-01"] == "it is retired in the spec, and the inventory still has it"


def test_pools_that_the_inventory_does_not_know_are_left_alone(fleet: Fleet) -> None:
    found = compare(fleet, replace(POLICY, pools=("render",)), [row("n", "https://10.7.0.9", "h")], {})
    assert (found.steps, dict(found.left)["n"]) == (
        (),
        "its pool is train, which is not among `pools` of Fleet.inventory",
    )


NETBOX = "kind: netbox, url: 'https://n.example/api/dcim/devices/', token: netbox"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{kind: netbox}", "url and file exclude each other"),
        (f"{{{NETBOX}, file: /x.json}}", "url and file exclude each other"),
        ("{kind: netbox, url: 'https://n.example/x'}", "url and token go together"),
        ("{kind: maas, file: /x.json, token: netbox}", "url and token go together"),
        ("{kind: maas, url: 'https://n.example/x', token: t}", "url is for netbox alone"),
        ("{kind: maas, file: x.json}", "is not an absolute path"),
        ("{kind: terraform, file: /x.json}", "columns must have bmc"),
        ("{kind: terraform, file: /x.json, columns: {bcm: x}}", "is not a column that nodes have"),
        (f"{{{NETBOX}, pool: trian}}", "there is no NodePool 'trian'"),
        (f"{{{NETBOX}, pools: [train, infr]}}", "there is no NodePool 'infr'"),
        (f"{{{NETBOX}, retire: 120%}}", "120%"),
        (f"{{{NETBOX}, change: 120%}}", "120%"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_line(text: str, said: str) -> None:
    edit: Any = ("fleet.yaml", "  drift: {mode: correct}\n", f"  drift: {{mode: correct}}\n  inventory: {text}\n")
    lines = told(changed(edit))
    assert [line for line in lines if said in line and line.startswith("fleet.yaml:")], lines
