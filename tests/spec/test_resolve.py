"""A spec resolved for its nodes: inheritance, what null takes back, provenance, digests."""

from __future__ import annotations

import random
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.access import EventListenerPolicy
from reconciler.model.desired import DesiredFirmware, DesiredGpu, DiskLayout, Fleet, RootDisk, SpecSource
from reconciler.model.errors import Position, SpecError
from reconciler.model.measurements import ComponentMeasurements, ComponentReference, PlatformMeasurements
from reconciler.model.observed import Taint
from reconciler.model.vocab import Activation, DriftMode, ImageFormat, NodeState, VerifiedBy
from reconciler.spec import load_spec
from tests.spec.example import FILES, Edit, load, messages


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load()


def test_nodes_of_ranges_entries_and_csv(fleet: Fleet) -> None:
    assert list(fleet.nodes) == [f"gpu-a{number:03d}" for number in range(1, 12)]
    third, ninth, tenth, last = (fleet.nodes[f"gpu-a{number:03d}"] for number in (3, 9, 10, 11))
    assert (third.endpoints.bmc, third.endpoints.host) == ("https://10.20.0.13", "10.20.1.13:22")
    assert third.domains == {"rack": "r1", "nvlink-domain": "d1"}
    assert (third.state, third.hostname, third.serial, third.root_disk) == (NodeState.ACTIVE, "gpu-a003", None, None)
    assert (ninth.state, ninth.hostname, ninth.serial) == (NodeState.QUARANTINED, "nine", "S123")
    assert ninth.endpoints.host == "10.20.1.19:2222"
    assert ninth.root_disk == RootDisk(serial="D9")
    assert (tenth.serial, tenth.hostname, tenth.root_disk) == ("S010", "ten", RootDisk(serial="D10"))
    assert (last.state, last.hostname, last.domains["rack"]) == (NodeState.RETIRED, "gpu-a011", "r2")


def test_later_layers_override_earlier_ones(fleet: Fleet) -> None:
    shared, own = fleet.nodes["gpu-a001"].profile, fleet.nodes["gpu-a009"].profile
    assert shared.bios == {"BootTimeout": 5, "NumaNodesPerSocket": "NPS2", "SriovGlobalEnable": "Enabled"}
    assert own.bios == {"BootTimeout": 5, "SriovGlobalEnable": "Enabled"}, "null leaves it unmanaged"
    assert shared.host.sysctls == {"kernel.numa_balancing": "0", "vm.swappiness": "1"}
    assert own.host.sysctls == {"kernel.numa_balancing": "0", "vm.swappiness": "60"}
    assert (shared.gpu, own.gpu) == (DesiredGpu(None), DesiredGpu({"3g.40gb": 2}))
    assert shared.firmware[1] == DesiredFirmware(
        "bios", "BIOS", "2.5", "min", Activation.REBOOT, 2, 0.0, None, None, minutes=10.0
    )
    assert shared.membership is not None
    assert own.membership is not None
    assert shared.membership.labels == {"tier": "gold", "workload": "training"}
    assert own.membership.labels == {"tier": "gold"}
    assert shared.membership.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert shared.membership.join == ("systemctl", "enable", "--now", "kubelet")
    assert shared.acceptance is not None
    assert own.acceptance is None
    assert shared.remediation == own.remediation


def test_what_a_drain_may_evict(fleet: Fleet) -> None:
    plain = fleet.nodes["gpu-a001"].profile.drain
    assert (plain.evict_unmanaged, plain.delete_empty_dir_data) == (False, False), "as kubectl drain"
    allowed = load(("persona.yaml", "force: false", "evictUnmanaged: true, deleteEmptyDirData: true"))
    drain = allowed.nodes["gpu-a001"].profile.drain
    assert (drain.evict_unmanaged, drain.delete_empty_dir_data) == (True, True)


def test_an_objective_is_the_fleet_s_and_changes_no_node(fleet: Fleet) -> None:
    asked = load(("persona.yaml", "  acceptance: standard", "  acceptance: standard\n  availability: 99.95%"))
    assert asked.objectives == {"training": pytest.approx(0.9995)}
    assert fleet.objectives == {}
    assert asked.nodes["gpu-a001"].profile.digest == fleet.nodes["gpu-a001"].profile.digest, "no approval is stale"
    assert asked.digest == fleet.digest


def test_settings_of_the_fleet(fleet: Fleet) -> None:
    settings = fleet.settings
    assert settings.tls.ca == FILES["pki/bmc-ca.pem"]
    assert settings.host_keys.authorities == (FILES["pki/ssh-host-ca.pub"].strip(),)
    assert settings.insecure == ()
    assert settings.rotate_after_s is None
    assert settings.drift_mode is DriftMode.CORRECT
    assert [(budget.scope, budget.nodes) for budget in settings.budgets] == [("fleet", "25%"), ("rack", "2")]
    assert (settings.tolerate, settings.inventory_max_age_s) == ("0", 86400.0)
    assert settings.ignore[0].expires == "2027-06-30"
    installer = settings.installer
    assert installer is not None
    assert (installer.certificate, installer.key, installer.host_ca) == ("tls", "tls-key", "host-ca")
    assert installer.host_certificate_s == 30 * 86400.0


@pytest.mark.parametrize(
    "installer",
    [
        '{listen: "127.0.0.1:0", iso: "/srv/installer.iso"}',
        '{listen: "[::1]:8443", url: "http://localhost:8443", iso: "https://images.example.com/installer.iso"}',
        '{listen: "127.0.0.1:8089", url: "https://proxy.example.com", iso: "/srv/installer.iso"}',
    ],
    ids=["loopback", "loopback by name", "behind a proxy that encrypts"],
)
def test_plain_http_is_for_loopback(installer: str) -> None:
    whole = FILES["fleet.yaml"].partition("  installer: ")[2].partition("\n")[0]
    measured = whole[whole.index(", measurements: ") :]
    fleet = load(("fleet.yaml", whole, installer.removesuffix("}") + measured))
    assert fleet.settings.installer is not None
    assert fleet.settings.installer.certificate is None


def test_passwords_of_bmcs_are_changed_after_a_week_at_the_soonest() -> None:
    def after(text: str) -> float | None:
        fleet = load(
            ("fleet.yaml", "tls: {ca: pki/bmc-ca.pem}", f"tls: {{ca: pki/bmc-ca.pem}}\n    rotateAfter: {text}")
        )
        return fleet.settings.rotate_after_s

    assert after("90d") == 90 * 86400.0
    with pytest.raises(SpecError, match="rotateAfter is less than 7d"):
        after("6d")


def test_where_bmcs_post_their_events_arrives() -> None:
    assert load().settings.bmc_events is None
    given = 'events: {listen: "0.0.0.0:8090", url: "https://10.20.0.2:8090", certificate: tls, key: tls-key}'
    found = load(("fleet.yaml", "tls: {ca: pki/bmc-ca.pem}", f"tls: {{ca: pki/bmc-ca.pem}}\n    {given}"))
    assert found.settings.bmc_events == EventListenerPolicy("0.0.0.0:8090", "https://10.20.0.2:8090", "tls", "tls-key")
    assert found.nodes["gpu-a001"].profile.digest == load().nodes["gpu-a001"].profile.digest, "no approval is stale"


def test_insecure_access_is_put_in_words() -> None:
    fleet = load(
        ("fleet.yaml", "{ca: pki/bmc-ca.pem}", "{insecure: true}"),
        ("fleet.yaml", "{authorities: [pki/ssh-host-ca.pub]}", "{insecure: true}"),
    )
    assert fleet.settings.insecure == (
        "TLS certificates of BMCs are not verified (fleet.yaml:8:21)",
        "SSH host keys are not verified (fleet.yaml:12:26)",
    )


def test_firmware_that_only_the_bmc_verifies_is_put_in_words_and_arrives() -> None:
    file = "url: https://fw.example.com/bmc.bin, sha256: " + "a" * 64
    fleet = load(("hardware.yaml", "minutes: 10}", f"minutes: 10, {file}, verifiedBy: bmc}}"))
    assert fleet.settings.insecure == ("the digest of firmware bmc is not verified (hardware.yaml:8:243)",)
    assert fleet.nodes["gpu-a001"].profile.firmware[0].verified_by is VerifiedBy.BMC
    assert fleet.nodes["gpu-a001"].profile.firmware[1].verified_by is VerifiedBy.RECONCILER


def test_defaults_are_safe() -> None:
    fleet = load_spec(
        {
            "a.yaml": b"apiVersion: reconciler.dev/v1alpha1\nkind: Fleet\nmetadata: {name: f}\nspec:\n"
            b"  redfish: {credentials: bmc, tls: {insecure: true}}\n---\n"
            b"apiVersion: reconciler.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\n"
            b"spec: {nodes: [{name: n1, bmc: 'https://10.0.0.1'}]}\n"
        },
        directory="fleet-spec",
        origin=SpecSource("fleet-spec", commit="abc", rev="main"),
    )
    assert [(budget.scope, budget.nodes) for budget in fleet.settings.budgets] == [("fleet", "1")]
    assert fleet.settings.drift_mode is DriftMode.OBSERVE
    assert fleet.source.commit == "abc"
    profile = fleet.nodes["n1"].profile
    assert (profile.image, profile.gpu, profile.membership, profile.secure_boot) == (None, None, None, None)
    assert (profile.bios, profile.firmware, profile.boot_order, profile.remediation) == ({}, (), None, None)
    assert fleet.nodes["n1"].hostname is None
    places = {"node": Position("fleet-spec/a.yaml", 10, 23), "endpoints.bmc": Position("fleet-spec/a.yaml", 10, 32)}
    assert fleet.nodes["n1"].provenance == places


# --- provenance ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "path", "text"),
    [
        ("gpu-a001", "bios.BootTimeout", "5}}"),
        ("gpu-a001", "bios.NumaNodesPerSocket", "NPS2"),
        ("gpu-a001", "bios.SriovGlobalEnable", "Enabled"),
        ("gpu-a001", "boot.order", "[Hdd, Pxe]"),
        ("gpu-a001", "boot.secure_boot", "true"),
        ("gpu-a001", "cluster.labels.tier", "gold"),
        ("gpu-a001", "cluster.labels.workload", "training}"),
        ("gpu-a001", "cluster.member", "main"),
        ("gpu-a001", "cluster.taints.nvidia.com/gpu", "{key: nvidia.com/gpu"),
        ("gpu-a001", "firmware.bios", '"2.5"'),
        ("gpu-a001", "firmware.bmc", '"01.05.03"'),
        ("gpu-a001", "gate.certificate", "standard"),
        ("gpu-a001", "gpu.mig", "disabled"),
        ("gpu-a009", "gpu.mig", "{3g.40gb: 2}"),
        ("gpu-a001", "hardware.memory_bytes", "2TiB"),
        ("gpu-a001", "hardware.manufacturer", "Supermicro"),
        ("gpu-a001", "health", "standard"),
        ("gpu-a001", "host.services.kubelet", "running}"),
        ("gpu-a001", "host.sysctls.vm.swappiness", '"1"'),
        ("gpu-a009", "host.sysctls.vm.swappiness", '"60"'),
        ("gpu-a001", "image.kernel", "6.8.0-48-generic"),
        ("gpu-a001", "image.name", "ubuntu-gpu"),
        ("gpu-a001", "image.root_disk", "{model:"),
        ("gpu-a001", "image.sha256", "8ad0c"),
        ("gpu-a001", "image.version", '"2026.11.1"'),
        ("gpu-a001", "image.layout", "{esp: 1GiB"),
        ("gpu-a001", "image.preserve", "[/state"),
        ("gpu-a001", "trust.firmware", "hgx-h100"),
        ("gpu-a001", "trust.image", "key: release"),
        ("gpu-a001", "trust.secure_boot", "true"),
    ],
)
def test_provenance_points_at_the_value(fleet: Fleet, node: str, path: str, text: str) -> None:
    assert _text_at(fleet.nodes[node].profile.provenance[path]).startswith(text)


@pytest.mark.parametrize(
    ("node", "path", "text"),
    [
        ("gpu-a004", "node", '"gpu-a[001-008]"'),
        ("gpu-a004", "host.hostname", "fromName"),
        ("gpu-a009", "node", "gpu-a009"),
        ("gpu-a009", "identity.serial", "S123"),
        ("gpu-a009", "identity.uuid", "7f0c2a1e"),
        ("gpu-a009", "host.hostname", "nine"),
        ("gpu-a009", "image.root_disk", "{serial: D9}"),
        ("gpu-a010", "node", "gpu-a010"),
        ("gpu-a010", "identity.serial", "S010"),
        ("gpu-a010", "host.hostname", "ten"),
        ("gpu-a010", "image.root_disk", "D10"),
        ("gpu-a011", "host.hostname", "fromName"),
    ],
)
def test_provenance_of_a_nodes_own_values(fleet: Fleet, node: str, path: str, text: str) -> None:
    assert _text_at(fleet.nodes[node].provenance[path]).startswith(text)


def _text_at(at: Position) -> str:
    return FILES[at.file].split("\n")[at.line - 1][at.column - 1 :]


def test_every_managed_value_has_a_provenance(fleet: Fleet) -> None:
    for node in fleet.nodes.values():
        profile = node.profile
        assert profile.image is not None
        assert profile.membership is not None
        paths = {
            *(f"bios.{name}" for name in profile.bios),
            *(f"firmware.{item.component}" for item in profile.firmware),
            *(f"hardware.{name}" for name, value in asdict(profile.inventory).items() if value is not None),
            *(f"image.{name}" for name in ("name", "version", "sha256", *profile.image.contents)),
            *(f"host.sysctls.{name}" for name in profile.host.sysctls),
            *(f"host.services.{name}" for name in profile.host.services),
            *(f"cluster.labels.{name}" for name in profile.membership.labels),
            *(f"cluster.taints.{taint.key}" for taint in profile.membership.taints),
        }
        assert paths <= profile.provenance.keys()


# --- digests -------------------------------------------------------------------------------------------------------


def test_how_an_image_is_written_arrives() -> None:
    more = "    kernelArguments: [quiet, iommu=pt]\n    format: raw\n    size: 812345678B\n"
    digest = "8ad0c6257dc8c56ec68084e5edddba514f86f147e26bbba9a1995c2b0e245262"
    url = f"oci://r.example.com/gpu@sha256:{digest}"
    fleet = load(
        ("image.yaml", "    preserve: [/state, /data]", f"    preserve: [/state]\n{more}"),
        ("image.yaml", "https://images.example.com/ubuntu-gpu-2026.11.1.raw.zst", url),
    )
    image = fleet.nodes["gpu-a001"].profile.image
    assert image is not None
    assert (image.format, image.size, image.kernel_arguments) == (ImageFormat.RAW, 812345678, ("quiet", "iommu=pt"))
    assert (image.layout, image.preserve) == (DiskLayout(2**30, 2**35, 2**34, data=True), ("/state",))
    assert image.url == url


def test_the_cas_of_users_are_of_hosts_that_get_an_image() -> None:
    where = (
        "fleet.yaml",
        "{authorities: [pki/ssh-host-ca.pub]}",
        "{authorities: [pki/ssh-host-ca.pub]}\n    userCa: pki/ssh-host-ca.pub",
    )
    fleet = load(where)
    key = FILES["pki/ssh-host-ca.pub"].strip()
    profile = fleet.nodes["gpu-a001"].profile
    assert profile.host.user_ca == (key,)
    assert str(profile.provenance["installed.user_ca"]).startswith("fleet.yaml:")
    assert {node.profile.host.user_ca for node in fleet.nodes.values() if node.profile.image is None} <= {()}


def test_equal_nodes_share_one_profile(fleet: Fleet) -> None:
    first = fleet.nodes["gpu-a001"].profile
    assert all(fleet.nodes[name].profile is first for name in fleet.nodes if name != "gpu-a009")
    assert fleet.nodes["gpu-a009"].profile.digest != first.digest


@given(st.randoms(use_true_random=False))
def test_resolution_does_not_depend_on_the_order_of_files(rng: random.Random) -> None:
    names = list(FILES)
    rng.shuffle(names)
    shuffled = load_spec({name: FILES[name].encode() for name in names}, directory="")
    assert shuffled == load()


def test_resolution_does_not_depend_on_the_order_of_documents_or_names_of_files(fleet: Fleet) -> None:
    documents = [text for name, text in FILES.items() if name.endswith(".yaml")]
    parts = [part for text in documents for part in text.split("---\n")]
    others = {name: text.encode() for name, text in FILES.items() if not name.endswith(".yaml")}
    one_file = {**others, "all.yml": "---\n".join(reversed(parts)).encode()}
    resolved = load_spec(one_file, directory="")
    assert resolved.digest == fleet.digest
    assert {node.profile.digest for node in resolved.nodes.values()} == {
        node.profile.digest for node in fleet.nodes.values()
    }


@pytest.mark.parametrize(
    "edit",
    [
        ("pool.yaml", "apiVersion", "# a comment\napiVersion"),
        (
            "pool.yaml",
            "bios: {attributes: {NumaNodesPerSocket: NPS2}}",
            "bios:\n    attributes:\n      NumaNodesPerSocket: NPS2",
        ),
        ("hardware.yaml", "NumaNodesPerSocket: NPS1", "NumaNodesPerSocket: NPS4"),
        ("persona.yaml", "timeout: 10m, force", "timeout: 600s, force"),
        ("hardware.yaml", "memory: 2TiB", "memory: 2048GiB"),
    ],
)
def test_the_digest_is_of_values_and_not_of_text(fleet: Fleet, edit: Edit) -> None:
    assert load(edit).digest == fleet.digest


@pytest.mark.parametrize(
    ("edit", "profile_changes"),
    [
        (("pool.yaml", "NumaNodesPerSocket: NPS2", "NumaNodesPerSocket: NPS1"), True),
        (("persona.yaml", "busbw_peak, min: 440", "busbw_peak, min: 441"), True),
        (("persona.yaml", "timeout: 10m, force", "timeout: 11m, force"), True),
        (("pool.yaml", "https://10.20.0.19", "https://10.20.0.99"), False),
        (("fleet.yaml", 'nodes: "25%"', 'nodes: "26%"'), False),
        (("nodes.csv", "retired", "active"), False),
    ],
)
def test_the_digest_changes_with_a_value(fleet: Fleet, edit: Edit, profile_changes: bool) -> None:
    after = load(edit)
    assert after.digest != fleet.digest
    digests = [one.nodes["gpu-a001"].profile.digest for one in (fleet, after)]
    assert (digests[0] != digests[1]) is profile_changes


def test_equal_pools_share_the_digest_and_keep_their_own_provenance() -> None:
    twin = FILES["pool.yaml"].replace("name: train", "name: twin").replace("gpu-a", "gpu-b").replace("10.20.", "10.21.")
    twin = twin.replace("S123", "S999").replace("7f0c2a1e", "7f0c2a1f").replace("nine", "neun")
    fleet = load(("twin.yaml", "", twin.replace("  inventory: nodes.csv\n", "")))
    one, other = fleet.nodes["gpu-a001"].profile, fleet.nodes["gpu-b001"].profile
    assert one.digest == other.digest
    assert one.provenance["image.version"].file == "pool.yaml"
    assert other.provenance["image.version"].file == "twin.yaml"


def test_an_invalid_spec_raises_with_every_diagnostic() -> None:
    with pytest.raises(SpecError) as caught:
        load(("fleet.yaml", "mode: correct", "mode: corect"), ("pool.yaml", "persona: training", "persona: x"))
    assert [found.path for found in caught.value.diagnostics] == ["spec.drift.mode", "spec.persona"]


# --- the worked example --------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]


def test_the_worked_example_is_valid() -> None:
    fleet = load_spec(ROOT / "fleet-spec", directory="fleet-spec")
    assert len(fleet.nodes) == 12
    assert {node.pool for node in fleet.nodes.values()} == {"train", "infer"}
    assert len({node.profile.digest for node in fleet.nodes.values()}) == 2
    assert fleet.nodes["gpu-b001"].profile.gpu == DesiredGpu({"3g.40gb": 2})


def test_where_insecurity_is_said_does_not_change_the_digest() -> None:
    insecure = ("fleet.yaml", "{ca: pki/bmc-ca.pem}", "{insecure: true}")
    moved = ("fleet.yaml", "metadata: {name: demo}", "metadata:\n  name: demo")
    assert load(insecure).settings.insecure != load(insecure, moved).settings.insecure
    assert load(insecure).digest == load(insecure, moved).digest


def test_csv_cells_may_be_quoted_and_lines_may_end_as_on_windows() -> None:
    quoted = 'gpu-a010,"https://10.20.0.20","10.20.1.20","S ""0"", 10",,ten,D10,,r2\r'
    fleet = load(("nodes.csv", "gpu-a010,https://10.20.0.20,10.20.1.20,S010,,ten,D10,,r2", quoted))
    node = fleet.nodes["gpu-a010"]
    assert (node.serial, node.domains["rack"]) == ('S "0", 10', "r2")
    assert node.provenance["identity.serial"] == Position("nodes.csv", 2, 44)


def test_measurements_arrive_with_their_lines(fleet: Fleet) -> None:
    desired = fleet.nodes["gpu-a001"]
    image, platform = desired.profile.image, desired.profile.measurements
    assert image is not None
    assert image.measurements is not None
    assert platform is not None
    assert platform.secure_boot is not None
    assert fleet.settings.installer is not None
    assert image.measurements.applications == ("c" * 64, "d" * 64)
    assert image.measurements.pcr11 == {"enter-initrd": "e" * 64, "enter-initrd:leave-initrd": "f" * 64}
    assert platform.secure_boot.dbx == ("4" * 64, "5" * 64)
    assert platform.firmware[1].pcrs == {"0": "7" * 64, "2": "8" * 64}
    assert fleet.settings.installer.measurements is not None
    assert fleet.settings.installer.measurements.pcr11 == {"start": "b" * 64}
    places = desired.profile.provenance
    assert str(places["image.measurements"]) == "image.yaml:22:7"
    assert str(places["measurements"]) == "hardware.yaml:14:5"


def test_measurements_of_components_arrive_without_those_of_a_boot() -> None:
    pem = "-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n"
    references = '[{versions: {bios: "2.5"}, values: {"2": "ab"}}]'
    group = f'ids: [HGX_IRoT_GPU_0], authorities: "{pem}", references: {references}'
    whole = FILES["hardware.yaml"].partition("  measurements:\n")[2].partition("---")[0]
    image = FILES["image.yaml"]
    boot = image[image.index("    measurements:\n") : image.index("}\n", image.index("pcr11:")) + 2]
    found = load(("hardware.yaml", whole, f"    components: [{{{group}}}]\n"), ("image.yaml", boot, ""))
    profile = found.nodes["gpu-a001"].profile
    assert profile.measurements == PlatformMeasurements(
        None,
        components=(
            ComponentMeasurements(
                ("HGX_IRoT_GPU_0",), pem.replace("\\n", "\n"), (ComponentReference({"bios": "2.5"}, {"2": "ab"}),)
            ),
        ),
    )
    assert str(profile.provenance["measurements.components"]) == "hardware.yaml:14:17"


def test_a_limit_that_is_a_share_is_one_of_the_declared_rate() -> None:
    share: Edit = ("persona.yaml", "busbw_peak, min: 440", "busbw_peak, min: 92% of lineRate")
    rates: Edit = ("hardware.yaml", "  inventory:", "  rates: {lineRate: 500}\n  inventory:")
    acceptance = load(share, rates).nodes["gpu-a001"].profile.acceptance
    assert acceptance is not None
    assert acceptance.phases[1].tests[1].thresholds[0].min == pytest.approx(460.0)


def test_a_persona_keeps_partitions_beside_those_of_the_image() -> None:
    persona = ("persona.yaml", "  gpu: {mig: {3g.40gb: 2}}", "  gpu: {mig: {3g.40gb: 2}}\n  preserve: [/data]")
    image = ("image.yaml", "    preserve: [/state, /data]", "    preserve: [/state]")
    fleet = load(persona, image)
    node = next(one for one in fleet.nodes.values() if one.persona == "inference")
    assert node.profile.image is not None
    assert node.profile.image.preserve == ("/state", "/data")
    assert node.profile.provenance["image.preserve"].file == "persona.yaml"
    plain = load(image)
    assert {one.profile.image.preserve for one in plain.nodes.values() if one.profile.image} == {("/state",)}
    assert node.profile.digest != plain.nodes[node.node].profile.digest, "an approval of before is stale"


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("data: false", "the layout of image ubuntu-gpu 2026.11.1 has no data partition"),
        ("", "image ubuntu-gpu 2026.11.1 has no layout: an install writes the whole disk"),
    ],
)
def test_what_an_install_would_not_keep_is_refused(image: str, why: str) -> None:
    persona = ("persona.yaml", "  gpu: {mig: {3g.40gb: 2}}", "  gpu: {mig: {3g.40gb: 2}}\n  preserve: [/data]")
    text = FILES["image.yaml"]
    [layout] = re.findall(r"    layout: .*\n", text)
    new = "" if not image else f"    layout: {{esp: 1GiB, root: 32GiB, state: 16GiB, {image}}}\n"
    told = messages(persona, ("image.yaml", layout, new), ("image.yaml", "    preserve: [/state, /data]\n", ""))
    assert [line for line in told if why in line], told


@pytest.mark.parametrize(
    ("said", "most"),
    [("", 3), ("  limit: {attempts: 9}\n", 9)],
)
def test_without_a_limit_a_node_goes_up_its_ladder_once_a_week(said: str, most: int) -> None:
    ladder = "  ladder: [{action: power_cycle, attempts: 1}]\n"
    longer = "  ladder: [{action: soft_restart, attempts: 2}, {action: power_cycle}]\n"
    (policy,) = {node.profile.remediation for node in load(("persona.yaml", ladder, longer + said)).nodes.values()}
    assert policy is not None
    assert (policy.most, policy.most_within_s) == (most, 7 * 86400)
