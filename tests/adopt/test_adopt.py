"""What `adopt` writes, word for word, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.adopt import ObservedValues, edit_spec, read_tree, split_target, unadoptable_nodes, write_files
from reconciler.diff.ignore import IgnoreRules
from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.desired import IgnoreRule
from reconciler.model.errors import ReconcilerError, Refused, UsageError
from reconciler.model.records import NodeRecord
from reconciler.spec.edit.accept import WriteLevel
from reconciler.spec.edit.files import SpecFiles
from tests import builders as b
from tests.adopt.fleets import BASE, HEAD, entry, load

RULES = IgnoreRules((), b.NOW)
STAGED: dict[str, Any] = {
    "hot": {"pending_bios": {"SriovGlobalEnable": "Enabled"}},
    "inventory": {"bios": {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}},
}
EIGHT = HEAD.format(name="train") + "  nodes:\n" + entry(0, "gpu-[001-008]", "[11-18]", "r1")
CSV = "name,bmc,host,serial,domains.rack\n" + "".join(
    f"gpu-{at:03d},https://10.0.0.{at},10.0.1.{at}, SN{at} ,r1\n" for at in (1, 2, 3)
)
TABLE = HEAD.format(name="train") + "  inventory: nodes.csv\n"


def spec(pool: str = EIGHT, **more: str) -> dict[str, str]:
    return {**BASE, "train.yaml": pool, **{name.replace("_", "."): text for name, text in more.items()}}


def seen(
    name: str = "gpu-003", *, inventory: Any = None, member: Any = None, hot: Any = None, **facts: Any
) -> o.Observed:
    """A node as the spec has it but for this."""
    labels = {"labels": {"workload": "training"}} | (member or {})
    return b.observed(
        name, inventory=b.inventory(**(inventory or {})), member=b.member(name, **labels),
        hot=b.hot(name, **(hot or {})), host=b.facts(name, **facts),
    )  # fmt: skip


def diff(
    files: Mapping[str, str], path: str, *observed: o.Observed, at: WriteLevel = WriteLevel.AUTO,
    rules: IgnoreRules = RULES,
    records: Mapping[str, NodeRecord] | None = None, acting: Collection[str] = (),
) -> str:  # fmt: skip
    """Lines that go and come; of all of these nodes, that path."""
    fleet = load(files)
    sources = SpecFiles({name: text.encode() for name, text in files.items()}, "fleet-spec")
    nodes = {one.node: one for one in observed}
    excluded = unadoptable_nodes(fleet, list(nodes), path, nodes, records or {}, acting)
    edit_spec(ObservedValues(fleet, list(nodes), path, nodes, rules, excluded), sources, at)
    lines = "".join(sources.diff("")).splitlines()
    return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def test_one_node_of_a_range_gets_an_entry_and_the_others_stay_together() -> None:
    assert diff(spec(), "host.sysctls.vm.swappiness", seen(sysctls={"vm.swappiness": "60"})) == (
        "-    - name: gpu-[001-008]  # as labelled\n"
        "-      bmc: https://10.0.0.[11-18]\n"
        "-      host: 10.0.1.[11-18]\n"
        "+    - name: gpu-[001-002,004-008]  # as labelled\n"
        "+      bmc: https://10.0.0.[11-12,14-18]\n"
        "+      host: 10.0.1.[11-12,14-18]\n"
        "+    - name: gpu-003  # as labelled\n"
        "+      bmc: https://10.0.0.13\n"
        "+      host: 10.0.1.13\n"
        "+\n"
        "+      domains: {rack: r1}\n"
        '+      sysctls: {vm.swappiness: "60"}'
    )


def test_the_line_that_says_it_is_changed_where_it_is_for_just_these_nodes() -> None:
    everyone = [seen(f"gpu-00{at}", inventory={"boot_order": ("Pxe", "Hdd")}) for at in range(1, 9)]
    assert diff(spec(), "boot.order", *everyone) == "-  bootOrder: [Hdd, Pxe]\n+  bootOrder: [Pxe, Hdd]"
    firmware = {"BMC": o.FirmwareItem("2.0"), "BIOS": o.FirmwareItem("2.1")}
    everyone = [seen(f"gpu-00{at}", inventory={"firmware": firmware}) for at in range(1, 9)]
    assert diff(spec(), "firmware", *everyone) == (
        "-      version:   '2.0'    # in odd quotes\n+      version:   '2.1'    # in odd quotes"
    )
    mig = {
        "gpus": tuple(
            b.gpu(at, mig_current=True, mig_pending=True, mig_devices=(gpus.MigDevice(at, "3g.40gb", "u"),) * 2)
            for at in (0, 1)
        )
    }
    everyone = [seen(f"gpu-00{at}", **mig) for at in range(1, 9)]
    assert diff(spec(), "gpu.mig", *everyone) == "-    mig: disabled\n+    mig: {3g.40gb: 2}"


def test_a_whole_pool_says_it_in_one_line() -> None:
    files = spec(infer_yaml=HEAD.format(name="infer") + "  nodes:\n" + entry(0, "gpu-009", "19", "r2"))
    changed = {"inventory": {"bios": {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}}}
    everyone = [seen(f"gpu-00{at}", **changed) for at in range(1, 9)]
    assert diff(files, "bios", *everyone) == "+  bios: {attributes: {SriovGlobalEnable: Disabled}}"


def test_where_it_is_written_can_be_chosen() -> None:
    everyone = [seen(f"gpu-00{at}", sysctls={"vm.swappiness": "60"}) for at in range(1, 9)]
    path = "host.sysctls.vm.swappiness"
    assert diff(spec(), path, *everyone, at=WriteLevel.POOL) == '+  host: {sysctls: {vm.swappiness: "60"}}'
    assert diff(spec(), path, *everyone, at=WriteLevel.NODE) == '+      sysctls: {vm.swappiness: "60"}'
    with pytest.raises(Refused, match="applies to 8 nodes"):
        diff(spec(), path, everyone[0], at=WriteLevel.ORIGIN)
    with pytest.raises(Refused, match="desired values of gpu-001 would change, too"):
        diff(spec(), path, everyone[2], at=WriteLevel.POOL)


def test_a_label_that_is_not_there_is_no_longer_asked_for() -> None:
    assert "+      labels: {workload: null}" in diff(spec(), "cluster.labels", seen(member={"labels": {}}))


def test_an_image_is_adopted_as_a_whole_when_its_digest_is_that_of_the_spec() -> None:
    other = o.ImageIdentity("ubuntu-gpu", "2026.10.2", "cd" * 32, "D1", None, booted_disk="D1")
    assert diff(spec(), "image.version", seen(image=other)).endswith(
        '+      image: {name: ubuntu-gpu, version: "2026.10.2"}'
    )
    with pytest.raises(Refused, match="an image with another digest is never adopted"):
        diff(spec(), "image.version", seen(image=replace(other, sha256="ee" * 32)))
    with pytest.raises(Refused, match="declare that version first"):
        diff(spec(), "image.version", seen(image=replace(other, version="2025.1")))


def test_rows_of_an_inventory() -> None:
    """What a row can say is changed in it; a node with settings of its own becomes an entry."""
    files = spec(TABLE, nodes_csv=CSV)
    moved = seen("gpu-002", hot={"serial": "XYZ,1"}, serial="XYZ,1")
    assert diff(files, "identity.serial", moved) == (
        '-gpu-002,https://10.0.0.2,10.0.1.2, SN2 ,r1\n+gpu-002,https://10.0.0.2,10.0.1.2,"XYZ,1",r1'
    )
    plain = seen("gpu-002", hot={"serial": "XYZ"}, serial="XYZ")
    assert "+gpu-002,https://10.0.0.2,10.0.1.2, XYZ ,r1" in diff(files, "identity.serial", plain)
    assert diff(
        files, "host", seen("gpu-002", hot={"serial": "SN2"}, serial="SN2", sysctls={"vm.swappiness": "60"})
    ) == (
        "-gpu-002,https://10.0.0.2,10.0.1.2, SN2 ,r1\n"
        "+  nodes:\n"
        "+    - {name: gpu-002, bmc: https://10.0.0.2, host: 10.0.1.2, serial: SN2, domains: {rack: r1}, "
        'sysctls: {vm.swappiness: "60"}}'
    )


def test_an_alias_is_written_out_where_it_is_used() -> None:
    pool = HEAD.format(name="train") + (
        "  nodes:\n    - {name: gpu-001, bmc: https://10.0.0.1, sysctls: &a {vm.swappiness: '1'}}\n"
        "    - {name: gpu-003, bmc: https://10.0.0.3, host: 10.0.1.3, sysctls: *a}\n"
    )
    found = diff(spec(pool), "host.sysctls", seen(sysctls={"vm.swappiness": "60"}))
    assert found.endswith('sysctls: {vm.swappiness: "60"}}')
    assert "&a" not in found


@pytest.mark.parametrize(
    ("path", "observed", "why"),
    [
        ("trust.image", seen(), "never adopted: trust must be proved"),
        ("health.xid_79", seen(), "never adopted: a fault must be repaired"),
        ("gate.certificate", seen(), "never adopted: a node must pass its tests"),
        ("cluster.member", seen(member={"ready": False}), "never adopted: a node that is not Ready must be repaired"),
        ("host.hostname", b.observed("gpu-003", host=b.silent()), "could not be read .unreachable.: an unknown value"),
        ("boot.order", seen(inventory={"boot_order": ("Pxe", "Hdd")}), "neither a node nor a pool has a place for it"),
        ("hardware.gpus", seen(gpus=(b.gpu(0), b.gpu(1), b.gpu(2))), "a HardwareProfile of their own"),
        ("hardware.gpus", seen(gpus=(b.gpu(0),)), "less than the spec asks for: repair the node"),
        ("host.hostname", seen(hostname="Not A Name"), "would not be valid"),
        ("cluster.taints", seen(member={"taints": ()}), "remove the taint from the persona by hand"),
        ("bios", seen(**STAGED), "is about to change"),
    ],
)  # fmt: skip
def test_what_is_never_adopted_is_refused_with_what_to_do(path: str, observed: o.Observed, why: str) -> None:
    with pytest.raises(Refused, match=why):
        diff(spec(), path, observed)


def test_secure_boot_that_all_nodes_lost_is_not_given_up() -> None:
    """The way back is open: a node that has it may be asked to keep it."""
    off = [seen(f"gpu-00{at}", inventory={"secure_boot": False}, secure_boot=False) for at in range(1, 9)]
    with pytest.raises(Refused, match="switch it on, or remove secureBoot from the spec by hand"):
        diff(spec() | {"hardware.yaml": BASE["hardware.yaml"] + "  secureBoot: true\n"}, "boot.secure_boot", *off)
    on = [seen(f"gpu-00{at}") for at in range(1, 9)]
    found = diff(spec() | {"hardware.yaml": BASE["hardware.yaml"] + "  secureBoot: false\n"}, "boot.secure_boot", *on)
    assert found == "-  secureBoot: false\n+  secureBoot: true"


@pytest.mark.parametrize(
    ("inventory", "less", "more"),
    [
        ("gpus: 2", {"gpus": (b.gpu(0),)}, {"gpus": (b.gpu(0), b.gpu(1), b.gpu(2))}),
        ("dimms: 32", {"inventory": {"dimms": 31}}, {"inventory": {"dimms": 33}}),
        ("memory: 2TiB", {"inventory": {"memory_bytes": 2**40}}, {"inventory": {"memory_bytes": 2**42}}),
    ],
)
def test_parts_that_all_nodes_lack_are_still_what_the_gate_must_find(
    inventory: str, less: dict[str, Any], more: dict[str, Any]
) -> None:
    """More of them is what somebody has built in."""
    files = spec() | {"hardware.yaml": BASE["hardware.yaml"].replace("gpus: 2", inventory)}
    with pytest.raises(Refused, match="less than the spec asks for: repair the node"):
        diff(files, "hardware", *(seen(f"gpu-00{at}", **less) for at in range(1, 9)))
    found = diff(files, "hardware", *(seen(f"gpu-00{at}", **more) for at in range(1, 9)))
    assert found.startswith(f"-  inventory: {{{inventory}}}\n+  inventory: {{")


def test_an_identity_that_two_witnesses_contradict_is_refused() -> None:
    files = spec(TABLE, nodes_csv=CSV)
    with pytest.raises(Refused, match="find out which machine this is first"):
        diff(files, "identity.serial", seen("gpu-002", hot={"serial": "A"}, serial="B"))


def test_what_is_ignored_is_left_alone() -> None:
    rules = IgnoreRules((IgnoreRule("host.sysctls.*", "tuned by hand"),), b.NOW)
    with pytest.raises(Refused, match="tuned by hand"):
        diff(spec(), "host.sysctls", seen(sysctls={"vm.swappiness": "60"}), rules=rules)


def test_a_path_that_the_spec_does_not_mention() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'bios\.SriovGlobalEnable'"):
        diff(spec(), "bios.SriovGlobalEnabled", seen())


def test_without_a_path_what_can_be_adopted_is_and_the_rest_is_told() -> None:
    fleet, files = load(spec()), SpecFiles({name: text.encode() for name, text in spec().items()}, "fleet-spec")
    node = seen(inventory={"boot_order": ("Pxe", "Hdd")}, sysctls={"vm.swappiness": "60"})
    made = edit_spec(ObservedValues(fleet, ["gpu-003"], "", {"gpu-003": node}, RULES), files, WriteLevel.AUTO)
    assert [item.path for item in made.items] == ["host.sysctls.vm.swappiness"]
    assert len(made.left) == 1
    assert "boot.order" in made.left[0]


def test_names_with_dots_are_told_from_paths() -> None:
    fleet = load(spec(EIGHT.replace("gpu-[001-008]", "gpu-[001-008].bios.example.com")))
    assert split_target("gpu-001.bios.example.com", fleet) == ("gpu-001.bios.example.com", "")
    assert split_target("gpu-001.bios.example.com.bios.X", fleet) == ("gpu-001.bios.example.com", "bios.X")
    assert split_target("pool=train.host.sysctls.vm.swappiness", fleet) == ("pool=train", "host.sysctls.vm.swappiness")
    assert split_target("gpu-*", fleet) == ("gpu-*", "")


def test_files_are_written_whole_and_keep_their_mode(tmp_path: Path) -> None:
    for name, text in spec().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.yaml").chmod(0o640)
    files = SpecFiles(read_tree(tmp_path), str(tmp_path))
    files.write("train.yaml", EIGHT + "# more\r\n")
    write_files(tmp_path, files)
    assert (tmp_path / "train.yaml").read_bytes() == (EIGHT + "# more\r\n").encode()
    assert (tmp_path / "train.yaml").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(spec())


def test_a_file_that_somebody_else_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    for name, text in spec().items():
        (tmp_path / name).write_text(text)
    files = SpecFiles(read_tree(tmp_path), str(tmp_path))
    files.write("train.yaml", EIGHT + "# ours\n")
    (tmp_path / "train.yaml").write_text(EIGHT + "# theirs\n")
    with pytest.raises(ReconcilerError, match="changed meanwhile"):
        write_files(tmp_path, files)
    assert (tmp_path / "train.yaml").read_text().endswith("# theirs\n")


def test_a_machine_that_was_exchanged_is_known_by_its_new_serial() -> None:
    pool = EIGHT.replace("      host: 10", "      serial: SN-[001-008]\n      host: 10")
    found = diff(spec(pool), "identity.serial", seen(hot={"serial": "NEW-7"}, serial="NEW-7"))
    assert "+      serial: SN-[001-002,004-008]\n" in found
    assert "+    - name: gpu-003  # as labelled\n" in found
    assert "+      serial: NEW-7\n" in found


BIOS = {"bios": {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}}
OTHERS: dict[str, Any] = {"hot": {"serial": "NEW-7"}, "serial": "NEW-7"}


@pytest.mark.parametrize(
    ("path", "records", "observed", "why"),
    [
        ("", {}, {"hot": {"serial": "NEW-7"}}, "the BMC answers for serial NEW-7, the host says SN-gpu-003"),
        ("bios", {}, {"hot": {"serial": None}}, "the BMC gives neither serial number nor UUID"),
        ("", {"serial": "SN-gpu-003"}, {"hot": {"serial": "NEW-7"}, "serial": None}, "the ledger says SN-gpu-003"),
        ("bios", {}, {"serial": None}, "nothing to compare the serial number with"),
    ],
)
def test_nothing_is_adopted_of_what_may_be_another_machine(
    path: str, records: dict[str, Any], observed: dict[str, Any], why: str
) -> None:
    node = seen(inventory=BIOS, **observed)
    known = {"gpu-003": NodeRecord("gpu-003", **records)}
    found = unadoptable_nodes(load(spec()), ["gpu-003"], path, {"gpu-003": node}, known, ())
    assert why in found["gpu-003"]
    if path:
        with pytest.raises(Refused, match=why):
            diff(spec(), path, node, records=known)
    else:
        assert diff(spec(), path, node, records=known) == ""
    if records:
        assert "Disabled" in diff(spec(), path, seen(**{**observed, "hot": {}}, inventory=BIOS), records=known)


def test_which_machine_it_is_is_for_people_to_say() -> None:
    """With what the spec declares exchanged, nothing of it is taken over before somebody has named its identity."""
    pool = EIGHT.replace("      host: 10", "      serial: SN-gpu-[001-008]\n      host: 10")
    node = seen(**OTHERS, sysctls={"vm.swappiness": "60"})
    assert diff(spec(pool), "", node) == ""
    with pytest.raises(Refused, match=r"the spec says SN-gpu-003.*adopt gpu-003\.identity first"):
        diff(spec(pool), "host", node)
    assert "+      serial: NEW-7" in diff(spec(pool), "identity", node)


def test_nothing_is_adopted_of_a_node_that_is_worked_on() -> None:
    node = seen(sysctls={"vm.swappiness": "60"})
    assert diff(spec(), "", node, acting={"gpu-003"}) == ""
    assert diff(spec(), "", node, acting={"gpu-004"}) != ""
    with pytest.raises(Refused, match="an action is under way, or was cut short"):
        diff(spec(), "host", node, acting={"gpu-003"})


PLAIN = "    - name: gpu-[001-008]\n      bmc: https://10.0.0.[11-18]\n      host: 10.0.1.[11-18]\n"
QUOTED = '{name: "gpu-[001-008]", bmc: "https://10.0.0.[11-18]",\n     host: "10.0.1.[11-18]"}'
STYLES = {
    "a list on one line": f"  nodes: [{QUOTED}]\n",
    "a list in brackets, with a comma too many": f"  nodes: [\n    {QUOTED},  # eight\n  ]\n",
    "a dash on a line of its own": "  nodes:\n  -\n"
    + PLAIN.replace("    - ", "    ").replace("      ", "    ")
    + "  # after\n",
    "not indented": "  nodes:\n"
    + PLAIN.replace("    - ", "  - ").replace("      ", "    ")
    + "  rollout: {bake: 1m}\n",
    "a block below": f"  nodes:\n{PLAIN}      sysctls:   # own\n        vm.swappiness: '1'   # one\n",
    "anchors": f"  labels: &l {{workload: training}}\n  nodes:\n{PLAIN}      labels: *l\n"
    "      domains: &d {rack: r1}\n    - {name: gpu-009, bmc: https://10.0.0.9, domains: *d}\n",
    "no end of line at the end": f"  nodes:\n{PLAIN}".rstrip(),
    "empty mappings": f"  nodes:\n{PLAIN}      labels: {{}}\n      sysctls: {{   }}\n",
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_whatever_style_a_file_is_written_in(style: str, newline: str) -> None:
    """`adopt` proves what it writes; here, that it finds its way."""
    pool = (HEAD.format(name="train") + STYLES[style]).replace("\n", newline)
    found = diff(spec(pool), "", seen(sysctls={"vm.swappiness": "60"}, member={"labels": {"workload": "other"}}))
    added = [line for line in found.splitlines() if line.startswith("+")]
    assert sum("60" in line for line in added) == 1
    assert sum("workload: other" in line for line in added) == 1
    assert len(added) <= 10
