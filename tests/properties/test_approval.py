"""Invariant 19: whatever changes of a resolved node, and of the settings that actions use, makes its approval stale.

The walk here goes by the fields of the dataclasses and knows nothing of the one that binds them. A field that is added
tomorrow is changed too; where the sample says nothing of it, or the walk can't change its type, a test fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

import pytest

from reconciler.converge.approval import Shared, stale_because
from reconciler.model import desired as d
from reconciler.model.access import (
    ClusterAccess,
    EventListenerPolicy,
    HostKeyPolicy,
    InstallerPolicy,
    SlurmAccess,
    TlsPolicy,
)
from reconciler.model.backup import DesiredBackup
from reconciler.model.documents import DocumentError, dump, load
from reconciler.model.drain import QueueHold, Surge
from reconciler.model.errors import Position
from reconciler.model.forge import ForgeKind, SpecForge
from reconciler.model.inputs import fingerprint, sealed
from reconciler.model.inventory import InventoryKind, InventoryPolicy
from reconciler.model.k3s import Artifact, DesiredK3s, HostSecret, K3sFacts, K3sRole
from reconciler.model.limits import Reserve
from reconciler.model.measurements import (
    BootMeasurements,
    ComponentMeasurements,
    ComponentReference,
    FirmwareReference,
    PlatformMeasurements,
    SecureBootKeys,
)
from reconciler.model.network import DesiredLink, DesiredNetwork
from reconciler.model.notices import Channel
from reconciler.model.observed import Drive, Taint
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.releases import Chart, CrdPolicy, DesiredRelease, OperatorKind
from reconciler.model.serving import DesiredServing
from reconciler.model.serving_sync import DesiredSync
from reconciler.model.signal_changes import SignalChange
from reconciler.model.tickets import Tracker, TrackerKind
from reconciler.model.vocab import Activation, CheckpointWay, DrainProvider, LinkKind, Provision, StopPolicy
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.node.estimates import Estimate, Estimates
from reconciler.planner.node.fingerprint import EXEMPT, own_inputs, place_of, shared_inputs
from tests import builders as b
from tests.render.test_publish import observation as observation_of

# The exemptions as they were reviewed. Whoever adds one says here, too, that no action uses it.
REVIEWED: Mapping[type, set[str]] = {
    d.Desired: {"profile", "provenance", "domains", "asked", "uncut"},
    d.Profile: {"digest", "provenance", "health"},
    d.Settings: {
        "concurrency", "redfish_deadline_s", "ssh_deadline_s", "kubernetes_deadline_s", "inventory_max_age_s",
        "tolerate", "budgets", "floors", "windows", "break_glass", "guards", "brake", "drift_mode", "ignore",
        "insecure", "notifications", "tickets", "reserves", "user_ca", "health", "releases", "rotate_after_s",
        "bmc_events", "drift_forge", "inventory",
    },
}  # fmt: skip

# A node of which everything is said.
BARS = (d.Threshold("x", 1.0, 2.0, d.Cohort(0.03, 3.5, (d.Peers("3.1", 42, 1.5, 0.1),))),)
PROFILE = replace(
    b.PROFILE,
    image=replace(
        b.IMAGE, root_disk=d.RootDisk("D1", "w1", "PM9A3", 1, 2), preserve=("/data",), size=1,
        layout=d.DiskLayout(1, 2, 3), kernel_arguments=("quiet",),
        measurements=BootMeasurements(("e1", "e2"), {"start": "f1"}),
    ),
    measurements=PlatformMeasurements(
        SecureBootKeys(("p",), ("k",), ("d",), ("x", "y"), ("m",)),
        (FirmwareReference({"bios": "1"}, {"0": "r"}, ("a",)),),
        "-----BEGIN CERTIFICATE-----",
        (ComponentMeasurements(("GPU_0",), "-----BEGIN", (ComponentReference({"bios": "1"}, {"1": "r"}),)),),
    ),
    host=replace(b.PROFILE.host, user_ca=("ssh-ed25519 AAAA users",)),
    inventory=d.DesiredInventory(
        manufacturer="Supermicro", model="X", gpus=2, gpu_model="NVIDIA H100 80GB HBM3", nvlinks_per_gpu=18,
        rdma_ports=0, rdma_rate_gbps=0, nics=0, drives=1, dimms=32, memory_bytes=2**41, processors=2,
    ),
    gpu=d.DesiredGpu({"3g.40gb": 2}),
    membership=d.DesiredMembership(
        {"workload": "x"}, (Taint("gpu", "here", "NoSchedule"),), ("kubeadm", "join"), {"nvidia.com/gpu": 8}, True
    ),
    drain=d.DrainPolicy(
        DrainProvider.COMMAND, 600.0, 30.0, False, ("drain-it",),
        checkpoint=d.Checkpoint(CheckpointWay.HTTP, 60.0, ("ask",), ("look",), 8080, "/save"), wait_for_jobs_s=60.0,
        surge=Surge(every=True, timeout_s=60.0), hold=QueueHold(("training",), StopPolicy.HOLD, 60.0),
    ),
    acceptance=d.Acceptance(
        "standard",
        (d.GatePhase("burn", (d.GateTest("dcgm", "dcgmi-diag", {"level": 2, "fast": True, "mode": "a"},
                                         BARS, 600.0, ("3",), ("pcie",), 85 * 86400.0),)),),
        90 * 86400.0,
        {"bmc": ("dcgm",)},
        d.Revalidation(86400.0),
    ),
    remediation=d.Remediation(
        "standard", (d.Rung("power_cycle", 1),), 86400.0, (13,), 300.0, (d.NodeCondition("GpuUnhealthy", "True"),),
        most=3, most_of_class=(("persistent", 2),),
    ),
    k3s=DesiredK3s(
        K3sRole.SERVER, "v1.31.5+k3s1", "https://10.0.0.10:6443", Artifact("https://x/k3s", "00"),
        Artifact("https://x/images", "11"), {"/etc/rancher/k3s/config.yaml": "docker: true\n"},
        allow_deprecated=("policy/v1beta1/podsecuritypolicies",), allow_downtime=True,
        secrets={"datastore-endpoint": HostSecret("database", "db:5432")}, token=HostSecret("token", "db:5432"),
        bucket="k3s/main",
    ),
    backup=DesiredBackup(("/srv/models",), "rest:https://backup/", {"RESTIC_PASSWORD": "restic"}, ("engine:v1",)),
)  # fmt: skip
NETWORK = DesiredNetwork(
    (
        DesiredLink("eno1", LinkKind.ETHERNET, "m1", ("a",), "802.3ad", "b", 7, ("10.0.0.7/24",), "10.0.0.1", 9000),
        DesiredLink("eno2", LinkKind.VLAN, "m2", ("c",), "active-backup", "d", 8, ("10.0.1.7/24",), "10.0.1.1", 1500),
    ),
    ("10.0.0.53",),
    "eno1",
)
NODE = b.node(
    uuid="u", root_disk=d.RootDisk("D1", "w1", "PM9A3", 1, 2), profile=PROFILE, persona="training", network=NETWORK,
    erase=("D7", "D8"),
    outlets=(d.Outlet("https://pdu-a", "A1", ("other",)),),
    serving=DesiredServing(
        ("gpu-a001", "other"), ("serve", "less"), ("serve", "more"), 60.0, "http://127.0.0.1/health", 60.0,
        DesiredSync(("/srv/models",), "ib0", "10.30.0.1", 400.0, ("engine:v1",)),
    ),
)  # fmt: skip
SETTINGS = replace(
    b.SETTINGS,
    drift_forge=SpecForge(ForgeKind.GITHUB, "acme/fleet", "forge", "https://github.example.com/api/v3"),
    inventory=InventoryPolicy(
        InventoryKind.NETBOX, "https://netbox.example.com/api/dcim/devices/", "netbox",
        forge=SpecForge(ForgeKind.GITHUB, "acme/fleet", "forge", "https://github.example.com/api/v3"),
    ),
    pdu_credentials="pdu",
    rotate_after_s=90 * 86400.0,
    bmc_events=EventListenerPolicy("0.0.0.0:8090", "https://10.0.0.1:8090", "tls", "tls-key"),
    tls=TlsPolicy("-----BEGIN CERTIFICATE-----" + "A" * 400),
    host_keys=HostKeyPolicy(("ssh-ed25519 AAAA ca",)),
    user_ca=("ssh-ed25519 AAAA users",),
    cluster=ClusterAccess(
        "main", "kubeconfig", "admin", slurm=SlurmAccess("login:22", "slurm", "/opt/slurm", {"a": "b"}, ("NHC",))
    ),
    installer=InstallerPolicy(
        "10.0.0.1:80", "https://10.0.0.1", "http://10.0.0.1/i.iso", "tls", "tls-key", "host-ca", 60.0,
        BootMeasurements(("e1", "e2"), {"start": "f1"})
    ),
    budgets=(d.BudgetLimit("fleet", "2"),),
    floors=(d.Floor("training", "1"),),
    notifications=(Channel("oncall", "pager"),),
)  # fmt: skip


# --- every change of a value ---------------------------------------------------------------------------------------


def changes(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, the value with one thing changed), for everything in it."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for at, other in changes(getattr(value, field.name), f"{path}.{field.name}"):
                yield at, replace(value, **{field.name: other})
    elif isinstance(value, Mapping):
        for key in value:
            for at, other in changes(value[key], f"{path}.{key}"):
                yield at, {**value, key: other}
            yield f"{path} without {key}", {name: each for name, each in value.items() if name != key}
        yield f"{path} and more", {**value, "another": next(iter(value.values()), "x")}
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            for at, other in changes(item, f"{path}.{index}"):
                yield at, (*value[:index], other, *value[index + 1 :])
            yield f"{path} without {index}", (*value[:index], *value[index + 1 :])
            yield f"{path} and {index} again", (*value, item)
        if len(value) > 1 and len({type(item) for item in value} & ORDERLESS) == 0:
            yield f"{path} in another order", value[::-1]
    else:
        yield path, changed(value, path)


ORDERLESS = {d.DesiredFirmware, Taint, DesiredLink}  # a stage says when; taints are a set; links have names


def changed(value: Any, path: str) -> Any:
    match value:
        case Enum():
            return next(each for each in type(value) if each is not value)
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case None if path in NEVER_SAID:
            return NEVER_SAID[path]
    pytest.fail(f"{path} is {value!r}: give the sample a value of it, or teach this walk its type")


# Where None is the ordinary value even of a sample that says everything.
NEVER_SAID: Mapping[str, Any] = {
    "node.provision": Provision.BLANK,
    "node.asked": d.AskedGate(b.NOW - timedelta(days=365), "ops"),
    "settings.break_glass": d.BreakGlass("fire", "ops", "2026-11-21T13:00:00+00:00"),
    "settings.budgets.0.per_s": 60.0,
    "settings.budgets.0.during": d.Hours((0,), 0, 60, "UTC"),
}


def gone(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Whole parts that the spec stops to speak of."""
    for field in fields(value):
        if "None" in str(field.type) and getattr(value, field.name) is not None:
            yield f"{path}.{field.name} gone", replace(value, **{field.name: None})


def every_change() -> Iterator[tuple[str, d.Desired, d.Settings]]:
    for path, settings in (*changes(SETTINGS, "settings"), *gone(SETTINGS, "settings")):
        yield path, NODE, settings
    for path, node in (*changes(NODE, "node"), *gone(NODE, "node")):
        yield path, node, SETTINGS
    for path, profile in gone(PROFILE, "node.profile"):
        yield path, replace(NODE, profile=profile), SETTINGS


def is_exempt(path: str) -> bool:
    if path in ("node.domains.rack", "node.domains without rack"):
        return False  # without a leaf, the rack says where in the fabric it is, and so which tests its gate runs
    for prefix, kind in (("node.profile.", d.Profile), ("node.", d.Desired), ("settings.", d.Settings)):
        if path.startswith(prefix):
            name = path.removeprefix(prefix).partition(".")[0].partition(" ")[0]
            return name in REVIEWED[kind] and not (kind is d.Desired and name == "profile")
    pytest.fail(path)


# --- and what becomes of its approval ------------------------------------------------------------------------------

DISK = Drive("0", serial="D1", wwn="w1", model="PM9A3", capacity_bytes=2)
SEEN = b.observed(
    inventory=b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"}, drives=(DISK,)),
    host=b.facts(k3s=K3sFacts("v1.31.5+k3s1", {"k3s": True}, {}, ("11.tar.zst",), True)),
)
RECORD = b.record(NODE, SEEN)


class Approval:
    def __init__(self, node: d.Desired = NODE, settings: d.Settings = SETTINGS, endpoints: str = "") -> None:
        self.planner = b.planner(settings=settings, endpoints=endpoints)
        self.node, self.settings = node, settings
        self.plan = self.planner.plan(node, SEEN, RECORD)
        self.shared = {self.planner.key(node.profile): shared_inputs(node.profile, settings, endpoints)}

    def with_actions_of(self, other: NodePlan) -> NodePlan:
        """As if the change had led to no other action: the inputs alone decide."""
        [key] = self.shared
        inputs = own_inputs(self.node, SEEN, RECORD)
        made = replace(other, shared=key, inputs=inputs)
        return replace(made, fingerprint=fingerprint(key, inputs, made.drift, made.actions))


APPROVED = Approval()


def why_stale(now: Approval, plan: NodePlan, *, begun: bool = False) -> str:
    return stale_because(APPROVED.plan, plan, begun=begun, shared=Shared(APPROVED.shared, now.shared))


CHANGES = list(every_change())


def test_the_sample_has_something_to_do() -> None:
    assert b.actions(APPROVED.plan)[:4] == ["sync_serving", "degrade_serving", "mark", "drain"]
    assert set(APPROVED.plan.inputs) > {"machine.serial", "machine.root_disk"}
    assert len(CHANGES) > 150


@pytest.mark.parametrize("begun", [False, True])
def test_approval_binds_everything(begun: bool) -> None:
    """Invariant 19. Work that has begun goes on with nothing else than what was approved."""
    bound = [change for change in CHANGES if not is_exempt(change[0])]
    for path, node, settings in bound:
        now = Approval(node, settings)
        same_actions = now.with_actions_of(APPROVED.plan)
        assert why_stale(now, same_actions, begun=begun), path
        assert same_actions.fingerprint != APPROVED.plan.fingerprint, path
        if now.plan.actions:
            assert why_stale(now, now.plan, begun=begun), path
            assert now.plan.fingerprint != APPROVED.plan.fingerprint, path


def test_what_is_exempt_makes_no_plan_stale() -> None:
    exempt = [change for change in CHANGES if is_exempt(change[0])]
    found = {path.removeprefix("node.profile.").removeprefix("node.").removeprefix("settings.") for path, *_ in exempt}
    empty = {
        "provenance",
        "ignore",
        "windows",
        "insecure",
        "health",
        "tickets",
        "reserves",
        "releases",
    }  # nothing in them to change: given below
    assert {name.partition(".")[0].partition(" ")[0] for name in found} >= (
        set.union(*REVIEWED.values()) - {"profile"} - empty
    )
    at = Position("elsewhere.yaml", 3, 1)
    rows = (SignalChange("edac_ce", "this make corrects often", threshold=30),)
    more = {
        "provenance": (
            replace(NODE, provenance={"node": at}, profile=replace(PROFILE, provenance={"drain": at})),
            SETTINGS,
        ),
        "ignore": (NODE, replace(SETTINGS, ignore=(d.IgnoreRule("host.other", "the vendor's tool"),))),
        "health": (replace(NODE, profile=replace(PROFILE, health=rows)), replace(SETTINGS, health=rows)),
        "uncut": (replace(NODE, uncut="other has no BMC"), SETTINGS),
        "windows": (NODE, replace(SETTINGS, windows=())),
        "insecure": (NODE, replace(SETTINGS, insecure=("said on another line",))),
        "tickets": (NODE, replace(SETTINGS, tickets=(Tracker("parts", TrackerKind.GITHUB, "token"),))),
        "reserves": (NODE, replace(SETTINGS, reserves=(Reserve("another", "1"),))),
        "releases": (NODE, replace(SETTINGS, releases=(RELEASE,))),
    }
    for path, node, settings in (*exempt, *((name, *given) for name, given in more.items())):
        now = Approval(node, settings)
        assert why_stale(now, now.with_actions_of(APPROVED.plan)) == "", path
        assert why_stale(now, now.plan) == "", path
        assert now.plan.fingerprint == APPROVED.plan.fingerprint, path


RELEASE = DesiredRelease(
    "gpu-operator", "gpu", OperatorKind.GPU, Chart("oci://charts.example/gpu-operator", "gpu-operator", "v1", "0" * 64),
    "{}", CrdPolicy.CREATE, 600.0, Position("cluster.yaml", 3),
)  # fmt: skip


def test_the_exemptions_are_those_that_were_reviewed() -> None:
    assert {kind: set(found) for kind, found in EXEMPT.items()} == REVIEWED
    for kind, found in EXEMPT.items():
        assert found.keys() <= {field.name for field in fields(kind)}, "an exemption of nothing"
        assert all(found.values()), "with its reason"


def test_a_value_that_would_hide_another_one_is_refused() -> None:
    profile = replace(PROFILE, bios={"a.b": "1"}, boot_order=None)
    assert shared_inputs(profile, SETTINGS, "")["bios.a.b"] == '"1"'
    with pytest.raises(ValueError, match=r"two inputs are called bios\.a\.b"):
        shared_inputs(replace(profile, bios={"a": {"b": "1"}, "a.b": "2"}), SETTINGS, "")  # type: ignore[dict-item] # nested


# --- the machine, the way to it, and the actions -------------------------------------------------------------------


OTHER_DISK = Drive("0", serial="D2", wwn="w1", model="PM9A3", capacity_bytes=2)


@pytest.mark.parametrize(
    ("what", "changed"),
    [("machine.serial", {"hot": b.hot(serial="SN-OTHER")}), ("machine.root_disk", {"drives": (OTHER_DISK,)})],
)
def test_another_machine_or_disk_behind_the_same_address_is_not_approved(what: str, changed: Any) -> None:
    node = replace(NODE, root_disk=d.RootDisk(model="PM9A3"))
    drives = {"drives": changed.get("drives", (DISK,))}
    seen = b.observed(inventory=b.inventory(**drives), hot=changed.get("hot", b.hot()))
    approved = own_inputs(node, SEEN, RECORD)
    fresh = own_inputs(node, seen, RECORD)
    plan = APPROVED.plan
    why = stale_because(replace(plan, inputs=approved), replace(plan, inputs=fresh), begun=True)
    assert what in why
    hidden = stale_because(replace(plan, inputs=sealed(approved)), replace(plan, inputs=fresh), begun=True)
    assert what in hidden, "a redacted plan can still be compared"
    assert "SN-" not in hidden


def test_a_machine_that_does_not_answer_is_no_other_machine() -> None:
    """A BMC that restarts: the ledger still knows its serial number, and who writes to it proves it again."""
    silent = b.observed(hot=b.silent(), inventory=b.silent())
    fresh = replace(APPROVED.plan, inputs=own_inputs(NODE, silent, RECORD))
    assert stale_because(APPROVED.plan, fresh, begun=True) == ""
    hidden = replace(APPROVED.plan, inputs=sealed(APPROVED.plan.inputs))
    assert stale_because(hidden, fresh, begun=True) == ""


def test_another_endpoints_file_is_not_approved() -> None:
    now = Approval(endpoints="ab" * 32)
    assert "--endpoints: none ->" in why_stale(now, now.plan)


def test_secrets_are_bound_by_name_and_long_values_by_digest() -> None:
    table = shared_inputs(PROFILE, SETTINGS, "")
    assert (table["fleet.redfish.credentials"], table["fleet.ssh.credentials"]) == ('"bmc"', '"ssh"')
    assert table["image.key"] == '"release"'
    assert table["fleet.redfish.tls.ca"].startswith("sha256:")
    assert max(map(len, (*table.values(), *own_inputs(NODE, SEEN, RECORD).values()))) <= 72


FLEET = d.Fleet(SETTINGS, d.SpecSource("spec", "c0ffee"), {NODE.node: NODE}, "digest")


def plan_of(fleet: d.Fleet, **changes: Any) -> Plan:
    now = changes.pop("now", b.NOW)
    request = PlanRequest(**{"id": "one", "signatures": b.CONTEXT.signatures, **changes})
    return plan_fleet(fleet, observation_of(SEEN), LedgerSnapshot(b.LEDGER, {NODE.node: RECORD}), now, request)


def test_neither_time_nor_commit_nor_durations_make_a_plan_stale() -> None:
    plan = plan_of(FLEET)
    slow = Estimate(9000.0, 20_000.0, 7, same_hardware=False)
    slower = Estimates({}, {(action.name, action.target): slow for action in plan.nodes[NODE.node].actions})
    other = replace(FLEET, source=d.SpecSource("spec", "beefed"))
    later = plan_of(other, now=b.NOW + timedelta(days=80), id="two", estimates=slower)
    assert plan.nodes[NODE.node].actions
    assert plan.fingerprint == later.fingerprint
    node, again = plan.nodes[NODE.node], later.nodes[NODE.node]
    assert node.fingerprint == again.fingerprint
    assert stale_because(node, again, begun=False, shared=Shared(plan.shared, later.shared)) == ""


# --- a plan file is read, not trusted ------------------------------------------------------------------------------


def _without_actions(document: Any, node: Any) -> None:
    node["actions"] = []


def _harder(document: Any, node: Any) -> None:
    node["actions"][0]["disruption"] = "reimage"


def _other_drift(document: Any, node: Any) -> None:
    next(item for item in node["drift"] if item["path"].startswith("bios."))["desired"] = "Auto"


def _other_address(document: Any, node: Any) -> None:
    node["inputs"]["endpoints.bmc"] = '"https://10.0.0.66"'


def _other_drain(document: Any, node: Any) -> None:
    document["shared"][node["shared"]]["drain.command"] = '["wipe"]'


def _nothing_shared(document: Any, node: Any) -> None:
    document["shared"] = {}


def _of_another_node(document: Any, node: Any) -> None:
    document["nodes"] = {"gpu-a002": node}


def _another_plan(document: Any, node: Any) -> None:
    document["fingerprint"] = "0" * 64


def test_a_plan_file_reads_back_as_it_was_made() -> None:
    plan = plan_of(FLEET)
    assert load(Plan, dump(plan)) == plan
    told = replace(plan, nodes={name: replace(node, inputs=sealed(node.inputs)) for name, node in plan.nodes.items()})
    assert load(Plan, dump(told)) == told, "without what names a machine, too"
    assert "10.0.0" not in str(told.nodes[NODE.node].inputs)
    assert "SN-" not in str(told.nodes[NODE.node].inputs)


@pytest.mark.parametrize(
    "edit",
    [_without_actions, _harder, _other_drift, _other_address, _other_drain, _nothing_shared, _of_another_node,
     _another_plan],
    ids=lambda edit: edit.__name__,
)  # fmt: skip
def test_an_edited_plan_file_is_refused(edit: Callable[[Any, Any], None]) -> None:
    document = json.loads(dump(plan_of(FLEET)))
    edit(document, document["nodes"][NODE.node])
    with pytest.raises(DocumentError, match=r"plan\.json: plan: it was changed after it was made: .*make a new one"):
        load(Plan, json.dumps(document), name="plan.json")


def test_ten_thousand_equal_nodes_share_one_table() -> None:
    nodes = [replace(NODE, node=f"n{number}") for number in range(20)]
    fleet = replace(FLEET, nodes={node.node: node for node in nodes})
    seen = observation_of(*(replace(SEEN, node=node.node) for node in nodes))
    records = {node.node: replace(RECORD, node=node.node) for node in nodes}
    snapshot = LedgerSnapshot(b.LEDGER, records)
    plan = plan_fleet(fleet, seen, snapshot, b.NOW, PlanRequest("one", b.CONTEXT.signatures))
    assert sum(node.changes for node in plan.nodes.values()) == 20
    assert len(plan.shared) == 1


def test_stale_says_the_field_the_values_and_the_line() -> None:
    at = Position("fleet-spec/personas.yaml", 12, 17)
    profile = replace(
        PROFILE, drain=replace(PROFILE.drain, provider=DrainProvider.NONE), provenance={"drain.provider": at},
        firmware=(replace(PROFILE.firmware[0], activation=Activation.REBOOT), *PROFILE.firmware[1:]),
    )  # fmt: skip
    now = Approval(replace(NODE, profile=profile))
    shared = Shared(APPROVED.shared, now.shared, partial(place_of, desired=now.node, fleet=FLEET))
    why = stale_because(APPROVED.plan, now.plan, begun=False, shared=shared)
    assert 'drain.provider: "command" -> "none" (fleet-spec/personas.yaml:12:17)' in why
    assert 'firmware.bmc.activation: "bmc_reset" -> "reboot"' in why
