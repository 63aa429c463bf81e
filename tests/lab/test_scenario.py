"""Scenarios are deterministic, invalid ones are refused, and fleets differ as they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.lab.drifts import DRIFTS, older
from reconciler.lab.fleet import build_lab
from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.pki import ImageKey, SshAuthority, TlsAuthority
from reconciler.lab.scenario import BUILT_IN, End, load_scenario
from reconciler.model.errors import UsageError
from reconciler.spec import load_spec
from tests.lab.machines import Time, example_fleet, example_lab


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_scenarios_fit_the_worked_example(clock: Time, name: str) -> None:
    lab = example_lab(name, clock)
    assert len(lab.machines) == 12
    assert len(lab.dump()["nodes"]) == 12


def test_the_same_seed_plays_the_same_and_another_does_not(clock: Time) -> None:
    first, again, other = (example_lab("drifted", clock, seed).dump()["nodes"] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    serials = [{name: node["serial"] for name, node in nodes.items()} for nodes in (first, other)]
    assert serials[0] == serials[1]  # a machine keeps its identity under any scenario


def test_clean_is_as_the_spec_says(clock: Time) -> None:
    lab = example_lab("clean", clock)
    for name, machine in lab.machines.items():
        desired, state = lab.fleet.nodes[name].profile, machine.state
        assert desired.bios.items() <= state.bios.items()
        assert {item.inventory_id: item.version for item in desired.firmware} == {
            key: item.version for key, item in state.firmware.items()
        }
        assert desired.image is not None
        assert machine.disk().version == desired.image.version
        assert machine.kubelet_ready
        assert state.booted_disk == state.drives[0].serial
        [fitting] = [drive for drive in state.drives if drive.capacity_bytes <= 10**12]
        assert fitting is state.drives[0]  # the image's rule fits exactly one


def test_the_demo_tells_one_story_each(clock: Time) -> None:
    lab = example_lab("demo", clock)
    states = {name: machine.state for name, machine in lab.machines.items()}
    wanted = lab.fleet.nodes["gpu-a001"].profile
    assert wanted.image is not None
    assert lab.machines["gpu-a001"].disk().version != wanted.image.version
    assert sum(states["gpu-a002"].bios[name] != value for name, value in wanted.bios.items()) == 2
    assert states["gpu-a003"].firmware["NIC0"].version == "28.43.1013"
    assert states["gpu-a005"].power == "off"
    assert states["gpu-a007"].gpus[3].lost
    assert not lab.machines["gpu-a008"].bmc_up
    assert not any(gpu.mig_enabled for gpu in states["gpu-b001"].gpus)
    assert not lab.machines["gpu-b002"].system().services_active["nvidia-fabricmanager"] or (
        not lab.machines["gpu-b002"].system().services_active["containerd"]
    )
    assert lab.cluster is not None
    assert lab.cluster.node("gpu-b003").unschedulable
    assert not lab.cluster.node("gpu-b003").annotations
    ends = {name: lab.scenario.expect(name) for name in lab.machines}
    assert {name: end for name, end in ends.items() if end is not End.CONVERGED} == {
        "gpu-a007": End.ISOLATED, "gpu-a008": End.LEFT_ALONE, "gpu-b003": End.CORDONED,
    }  # fmt: skip


def test_blank_machines_have_never_run(clock: Time) -> None:
    lab = example_lab("blank", clock)
    assert {(m.state.power, m.state.os, len(m.state.disks)) for m in lab.machines.values()} == {("off", None, 0)}
    assert lab.cluster is not None
    assert [node.name for node in lab.cluster.nodes()] == ["control-1"]


@pytest.mark.parametrize("kind", DRIFTS)
def test_every_drift_changes_what_it_says_and_nothing_else(clock: Time, tmp_path: Path, kind: str) -> None:
    scenario = load_scenario(write(tmp_path, f"nodes: {{gpu-a001: {{drift: [{kind}]}}}}"))
    drifted = build_lab(example_fleet(), scenario, clock, seed=1).dump()
    clean = example_lab("clean", clock).dump()
    different = {name for name in clean["nodes"] if drifted["nodes"][name] != clean["nodes"][name]}
    if kind in ("missing_label", "foreign_cordon"):
        assert different == set()
        assert drifted["cluster"]["nodes"]["gpu-a001"] != clean["cluster"]["nodes"]["gpu-a001"]
    else:
        assert different == {"gpu-a001"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: {'gpu-z*': {}}", "'gpu-z*' matches no node"),
        ("nodes: {gpu-a01: {}}", "did you mean 'gpu-a001'"),
        ("nodes: {'*': {drift: [old_imag]}}", "did you mean 'old_image'"),
        ("nodes: {'*': {drift: [{bios_off: {cout: 2}}]}}", "takes count: int, attributes: str"),
        ("nodes: {'*': {drift: [{bios_off: {count: two}}]}}", "takes count: int"),
        ("nodes: {'*': {faults: {xid_80: {}}}}", "did you mean 'xid_79'"),
        ("nodes: {'*': {expect: fine}}", "converged"),
        ("nodes: {'*': {drifts: []}}", "drifts"),
        ("nodes: {'*': {pick: {of: [powered_off], least: 2, most: 1}}}", "least is more than most"),
        ("nodes: [", "not YAML"),
        ("[]", "dictionary"),
    ],
)
def test_nonsense_is_refused_by_name(clock: Time, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        build_lab(example_fleet(), load_scenario(write(tmp_path, text)), clock)
    assert words in str(refused.value)


def test_a_scenario_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="built in are clean, drifted, demo, blank"):
        load_scenario(str(tmp_path / "none.yaml"))


def test_a_drift_needs_something_to_differ_from(clock: Time, tmp_path: Path) -> None:
    fleet = example_fleet()
    node = fleet.nodes["gpu-a001"]
    bare = replace(node, profile=replace(node.profile, membership=None, digest="bare"))
    fleet = replace(fleet, nodes={**fleet.nodes, "gpu-a001": bare})
    scenario = load_scenario(write(tmp_path, "nodes: {gpu-a001: {drift: [missing_label]}}"))
    with pytest.raises(UsageError, match="gpu-a001: the spec gives the drift 'missing_label' nothing"):
        build_lab(fleet, scenario, clock)


@pytest.mark.parametrize(
    ("version", "before"),
    [
        ("2026.11.1", "2026.11.0"),
        ("2.4", "2.3"),
        ("01.05.00", "01.04.00"),
        ("28.43.1014", "28.43.1013"),
        ("v", "v~rc1"),
    ],
)
def test_the_version_before(version: str, before: str) -> None:
    assert older(version) == before


@pytest.mark.parametrize("nodes", [1, 3, 12, 51, 230])
def test_generated_specs_load_and_are_played(clock: Time, tmp_path: Path, nodes: int) -> None:
    ports = [(20000 + 2 * at, 20001 + 2 * at) for at in range(nodes)]
    addresses, tls, ssh = Addresses(ports, 19998, 19999), TlsAuthority(), SshAuthority()
    generate_spec(tmp_path, addresses, tls_ca=tls.pem, ssh_ca=ssh.public_key, image_key=ImageKey())
    fleet = load_spec(tmp_path, directory="fleet-spec")
    assert len(fleet.nodes) == nodes
    assert len({node.domains["rack"] for node in fleet.nodes.values()}) == min(nodes, 6)
    assert {node.endpoints.bmc for node in fleet.nodes.values()} == {f"https://127.0.0.1:{bmc}" for bmc, _ in ports}
    lab = build_lab(fleet, load_scenario("drifted"), clock, seed=3)
    assert len(lab.machines) == nodes
