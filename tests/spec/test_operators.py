"""Helm releases of a Cluster: their charts and values, and who owns what of the nodes."""

from __future__ import annotations

import hashlib
import json

import pytest

from reconciler.model.releases import CrdPolicy, OperatorKind
from tests.spec.example import FILES, Edit, changed, load, messages

[OLD] = [line for line in FILES["fleet.yaml"].splitlines() if line.startswith("spec: {type: kubernetes")]
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
GPU = f"""\
spec:
  type: kubernetes
  operators:
  - name: gpu-operator
    namespace: gpu
    kind: gpu-operator
    chart: {{repository: "https://helm.ngc.nvidia.com/nvidia", name: gpu-operator, version: v25.3.0, sha256: {DIGEST}}}
    values:
      driver:
        enabled: false
      migManager:
        enabled: false
      daemonsets: {{tolerations: [{{operator: Exists}}]}}
      node-feature-discovery: {{worker: {{tolerations: [{{operator: Exists}}]}}}}
"""
TOLERANT = (
    "daemonsets: {tolerations: [{operator: Exists}]}, "
    "node-feature-discovery: {worker: {tolerations: [{operator: Exists}]}}"
)
TOLERANT_FILE = TOLERANT.replace(", node", "\nnode") + "\n"
K3S = f"""\
spec:
  type: k3s
  k3s:
    servers: train
    endpoint: https://10.0.0.10:6443
    release: {{version: v1.31.5+k3s1, binary: {{url: "https://x/k3s", sha256: {DIGEST}}}}}
"""
PERSONA = "persona.yaml"
NETWORK = f"""\
  - name: network-operator
    namespace: network
    kind: network-operator
    chart: {{repository: "oci://nvcr.io/nvidia", name: network-operator, version: 25.4.0, sha256: {DIGEST}}}
    values: {{nfd: {{enabled: false}}}}
"""


def edits(cluster: str) -> list[Edit]:
    return [("fleet.yaml", OLD, cluster)]


def told(cluster: str, *more: Edit) -> list[str]:
    return [line for line in messages(*edits(cluster), *more) if not line.startswith("warning")]


def with_values(text: str, owns: str = "") -> str:
    """The GPU Operator with other values; those that are left out are the chart's own."""
    text = f"{text[:-1]}, {TOLERANT}}}"
    return GPU[: GPU.index("    values:")] + (f"    owns: [{owns}]\n" if owns else "") + f"    values: {text}\n"


def test_releases_arrive_in_order_with_what_the_digest_of_their_inputs_binds() -> None:
    gpu, network = load(*edits(GPU + NETWORK)).settings.releases
    assert (gpu.name, gpu.namespace, gpu.kind, gpu.crds) == (
        "gpu-operator", "gpu", OperatorKind.GPU, CrdPolicy.CREATE,
    )  # fmt: skip
    assert network.chart.source == "oci://nvcr.io/nvidia/network-operator"
    assert json.loads(gpu.values)["driver"] == {"enabled": False}
    assert gpu.position.file == "fleet.yaml"
    other = load(*edits(GPU.replace("        enabled: false", "        enabled: false\n        version: x", 1)))
    assert other.settings.releases[0].inputs != gpu.inputs


def test_values_and_the_chart_may_be_files_of_the_spec() -> None:
    archive = b"an archive"
    digest = hashlib.sha256(archive).hexdigest()
    text = GPU[: GPU.index("    values:")].replace(
        'repository: "https://helm.ngc.nvidia.com/nvidia"', "file: charts/gpu.tgz"
    ).replace(DIGEST, digest) + "    valuesFile: gpu.values.yaml\n"  # fmt: skip
    values = ("gpu.values.yaml", "", f"driver: {{enabled: false}}\nmigManager: {{enabled: false}}\n{TOLERANT_FILE}")
    fleet = load(*edits(text), values, ("charts/gpu.tgz", "", "an archive"))
    assert json.loads(fleet.settings.releases[0].values)["driver"] == {"enabled": False}
    assert fleet.settings.releases[0].chart.archive
    [problem] = told(text, values, ("charts/gpu.tgz", "", "another archive"))
    assert "has another digest" in problem
    [problem] = told(text, ("charts/gpu.tgz", "", "an archive"))
    assert "'gpu.values.yaml': no such file" in problem
    wrong = ("gpu.values.yaml", "", f"driver: {{enabled: false}}\nmigManager:\n  enabled: true\n{TOLERANT_FILE}")
    [problem] = told(text, wrong, ("charts/gpu.tgz", "", "an archive"))
    assert problem.startswith("gpu.values.yaml:3:12 values.migManager.enabled: `migManager.enabled` is true")


@pytest.mark.parametrize(
    ("values", "line", "path"),
    [
        ("{migManager: {enabled: false}}", "driver", "driver.enabled"),
        ("{driver: {enabled: false}}", "mig", "migManager.enabled"),
    ],
)
def test_what_the_chart_does_by_default_is_refused_with_its_value(values: str, line: str, path: str) -> None:
    [problem] = [one for one in told(with_values(values)) if f"values.{path}:" in one]
    assert "is true unless the values say otherwise" in problem
    assert f"owns: [{line}]" in problem


def test_upgrades_of_the_drivers_by_the_operator_are_cordons() -> None:
    found = told(with_values("{driver: {enabled: true}, migManager: {enabled: false}}", "driver"))
    assert any("driver.upgradePolicy.autoUpgrade` is true" in one and "cordons nodes" in one for one in found)
    quiet = "{driver: {enabled: true, upgradePolicy: {autoUpgrade: false}}, migManager: {enabled: false}}"
    assert not any("autoUpgrade" in one for one in told(with_values(quiet, "driver")))


def test_nothing_has_two_owners_and_nothing_has_none() -> None:
    """The example's image carries a driver and its persona sets MIG."""
    both = "{driver: {enabled: true, upgradePolicy: {autoUpgrade: false}}, migManager: {enabled: true}}"
    found = told(with_values(both, "driver, mig"))
    assert any("`driver` would have two owners: image ubuntu-gpu" in one for one in found)
    assert any("`mig` would have two owners: persona" in one for one in found)
    none = told(with_values("{driver: {enabled: false}, migManager: {enabled: false}}", "driver"))
    assert any("nobody would own it" in one for one in none)


def test_feature_discovery_runs_once() -> None:
    [problem] = told(GPU + NETWORK.replace("{nfd: {enabled: false}}", f"{{nfd: {{enabled: true}}, {TOLERANT}}}"))
    assert "Node Feature Discovery would run twice: gpu-operator brings it, too" in problem


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    kind: gpu-operator\n", "", "add `kind: gpu-operator`"),
        (", name: gpu-operator,", ", file: charts/x.tgz, name: gpu-operator,", "a repository or a file, and not both"),
        (DIGEST, "latest", "is not a SHA-256 digest"),
        ("    values:", "    valuesFile: other.values.yaml\n    values:", "here or in a file, and not both"),
        ("name: gpu-operator\n", "name: GPU\n", "is not a release name"),
        ("type: kubernetes", "type: slurm\n  slurm: {login: 10.0.0.1}", "Helm installs into Kubernetes"),
    ],
)
def test_entries_that_make_no_sense(old: str, new: str, said: str) -> None:
    text = GPU.replace(old, new, 1)
    assert text != GPU
    assert any(said in one for one in told(text)), told(text)


def test_names_of_releases_are_unique() -> None:
    twice = GPU + NETWORK.replace("name: network-operator\n", "name: gpu-operator\n", 1)
    assert any("there are two releases 'gpu-operator'" in one for one in told(twice))


def test_files_of_values_are_no_resources() -> None:
    files = changed(*edits(GPU)) | {"unused.values.yaml": b"replicas: 1\n"}
    assert "unused.values.yaml" in files
    assert not any("unused" in one for one in messages(*edits(GPU), ("unused.values.yaml", "", "replicas: 1\n")))


# --- what admission waits for ---


def waits(cluster: str, *more: Edit) -> dict[str, tuple[dict[str, int], bool]]:
    """By node of the example, which has eight GPUs: what it is to offer, and whether it is validated before."""
    fleet = load(*edits(cluster), *more)
    found = {name: node.profile.membership for name, node in fleet.nodes.items()}
    return {name: (dict(one.allocatable), one.validated) for name, one in found.items() if one is not None}


def test_a_node_waits_for_the_operator_and_for_the_gpus_that_its_hardware_declares() -> None:
    found = waits(GPU)
    assert found["gpu-a001"] == ({"nvidia.com/gpu": 8}, True)
    assert found["gpu-a009"] == ({"nvidia.com/gpu": 16}, True), "two MIG devices of each, by mig.strategy single"
    assert set(load().nodes) == set(found)


def test_where_no_gpu_operator_is_declared_nobody_waits() -> None:
    assert set(map(str, waits("spec: {type: kubernetes}").values())) == {"({}, False)"}
    assert set(map(str, waits("spec:\n  type: kubernetes\n  operators:\n" + NETWORK).values())) == {"({}, False)"}


@pytest.mark.parametrize(
    ("values", "whole", "mig"),
    [
        ("mig: {strategy: mixed}", {"nvidia.com/gpu": 8}, {"nvidia.com/mig-3g.40gb": 16}),
        ("mig: {strategy: none}", {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}),
        ("devicePlugin: {enabled: false}", {}, {}),
        ("devicePlugin: {config: {name: shared}}", {}, {}),
        ("sandboxWorkloads: {enabled: true}", {}, {}),
    ],
)
def test_values_decide_which_resources_gpus_become(values: str, whole: dict[str, int], mig: dict[str, int]) -> None:
    found = waits(with_values(f"{{driver: {{enabled: false}}, migManager: {{enabled: false}}, {values}}}"))
    assert found["gpu-a001"] == (whole, True)
    assert found["gpu-a009"] == (mig, True)


def test_a_persona_declares_what_else_a_node_offers_and_overrides_what_follows() -> None:
    own = "  allocatable: {nvidia.com/gpu: 32, rdma/rdma_shared_device_a: 63}\n  gpu: {mig: disabled}"
    fleet = load(*edits(GPU), (PERSONA, "  gpu: {mig: disabled}", own))
    profile = fleet.nodes["gpu-a001"].profile
    assert profile.membership is not None
    assert profile.membership.allocatable == {"nvidia.com/gpu": 32, "rdma/rdma_shared_device_a": 63}
    line = profile.provenance["cluster.allocatable.nvidia.com/gpu"].line
    assert "allocatable" in changed((PERSONA, "  gpu: {mig: disabled}", own))[PERSONA].decode().split("\n")[line - 1]


@pytest.mark.parametrize("name", ["gpu", "memory", "kubernetes.io/x", "a.kubernetes.io/x", "nvidia.com/", "/gpu"])
def test_only_resources_of_device_plugins_can_be_declared(name: str) -> None:
    own = f"  allocatable: {{{name}: 8}}\n  gpu: {{mig: disabled}}"
    found = told(GPU, (PERSONA, "  gpu: {mig: disabled}", own))
    assert any("is not the name of a resource of a device plugin" in one for one in found), found


def test_an_operator_whose_pods_do_not_come_to_a_waiting_node_is_refused() -> None:
    """DaemonSets tolerate a cordon by themselves, and not our taint: admission would wait for ever."""
    found = told(GPU.replace("      daemonsets: {tolerations: [{operator: Exists}]}\n", ""))
    [problem] = found
    assert "values.daemonsets.tolerations: its pods would not come to a node that waits for them" in problem
    assert "add `{key: reconciler.dev/maintenance, operator: Exists, effect: NoSchedule}`" in problem
    others = "{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}"
    for toleration, refused in (
        ("{key: reconciler.dev/maintenance, operator: Exists}", False),
        (others, True),
        ("{operator: Exists, effect: NoExecute}", True),
        (f"{others}, {{key: reconciler.dev/maintenance, operator: Exists, effect: NoSchedule}}", False),
    ):
        text = GPU.replace(
            "daemonsets: {tolerations: [{operator: Exists}]}", f"daemonsets: {{tolerations: [{toleration}]}}"
        )
        assert bool(told(text)) is refused, toleration
    found = told(GPU.replace("{worker: {tolerations: [{operator: Exists}]}}", "{}"))
    assert any("values.node-feature-discovery.worker.tolerations" in one for one in found)


def test_feature_discovery_has_to_come_to_a_waiting_node_also_where_the_network_operator_brings_it() -> None:
    """Without its labels, the GPU Operator does not know that the node has GPUs. The chart's list lacks our mark."""
    gpu = GPU.replace("      driver:", "      nfd: {enabled: false}\n      driver:", 1)
    bringing = NETWORK.replace("{nfd: {enabled: false}}", "{}")
    [problem] = told(gpu + bringing)
    assert "values.node-feature-discovery.worker.tolerations: its pods would not come to a node" in problem
    tolerant = bringing.replace("{}", "{node-feature-discovery: {worker: {tolerations: [{operator: Exists}]}}}")
    assert told(gpu + tolerant) == []
    alone = gpu[: gpu.index("  - name: gpu-operator")] + bringing
    assert told(alone) == [], "no operator waits for the labels"


def test_the_operator_itself_may_run_on_nodes_that_wait_for_it() -> None:
    assert not load(*edits(GPU)).settings.releases[0].out_of_service
    keys = ("reconciler.dev/maintenance", "node.kubernetes.io/unschedulable")
    anywhere = "{tolerations: [" + ", ".join(f"{{key: {key}, operator: Exists}}" for key in keys) + "]}"
    values = (
        f"      operator: {anywhere}\n"
        f"      node-feature-discovery: {{worker: {anywhere}, master: {anywhere}, gc: {anywhere}}}\n"
    )
    text = GPU[: GPU.index("      node-feature")] + values
    assert load(*edits(text)).settings.releases[0].out_of_service
    # In a K3s all of whose nodes wait, it has to: nothing else could run it.
    k3s = K3S + GPU[GPU.index("  operators:") :]
    found = [one for one in told(k3s) if "which could run on none of them" in one]
    assert sorted(one.split("values.")[1].split(":")[0] for one in found) == [
        "node-feature-discovery.gc.tolerations", "node-feature-discovery.master.tolerations", "operator.tolerations",
    ]  # fmt: skip
    assert not any("run on none" in one for one in told(K3S + text[text.index("  operators:") :]))
