"""What may be shown to anybody: nothing that names a machine, and enough to plan by as if one had been there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.documents import dump, load
from reconciler.model.drift import DriftClass
from reconciler.model.observed import HIDDEN, Answered, Observation, Silent
from reconciler.model.plan import Plan
from reconciler.model.printable import SEALED
from reconciler.model.published import Published
from reconciler.model.records import Hold, LedgerPlace, NodeRecord, Rollout
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.publish import publish
from reconciler.render.restore import Restored, restore
from tests import builders as b

KEY = b"k" * 32


@dataclass
class Known:
    """A ledger's part of a plan."""

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    id: str = b.LEDGER
    place: LedgerPlace = field(
        default_factory=lambda: LedgerPlace("sqlite", "/home/alice/.local/state/reconciler/dc1.sqlite")
    )

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        return {name: self.records.get(name) or NodeRecord(name) for name in names}

    def known(self) -> Sequence[str]:
        return list(self.records)

    def holds(self) -> Sequence[Hold]:
        return [Hold(1, "gpu-z", "ticket 4711", "alice", b.NOW)]

    def rollouts(self) -> Mapping[str, Rollout]:
        return {}

    def durations(self, limit: int = 20_000) -> Sequence[tuple[str, str, str, float]]:
        return [("gpu-a001", "drain", "", 60.0)] * min(limit, 5)


def fleet(*nodes: d.Desired) -> d.Fleet:
    return d.Fleet(b.SETTINGS, d.SpecSource("fleet-spec", "c" * 40), {node.node: node for node in nodes}, "d")


def observation(*seen: o.Observed) -> Observation:
    return Observation("1.0", "test", "c" * 40, b.NOW, b.NOW, {one.node: one for one in seen})


def plan(wanted: d.Fleet, seen: Observation, records: Mapping[str, NodeRecord], ledger: str) -> Plan:
    snapshot = LedgerSnapshot(ledger, records, known=tuple(records))
    return plan_fleet(wanted, seen, snapshot, b.NOW, PlanRequest("p", b.CONTEXT.signatures))


def through(
    wanted: d.Fleet, seen: Observation, known: Known, *revisions: d.Fleet, then: d.Fleet | None = None
) -> tuple[Published, Restored]:
    """Published, written, read, and restored for who has the same spec."""
    made = load(Published, dump(publish(wanted, seen, known, KEY, {"release": "RWQ"})))
    return made, restore(made, then or wanted, revisions or (wanted,))


NAMES = ["gpu-a001", "gpu-a002", "gpu-a003"]
WANTED = fleet(*(b.node(name, uuid=f"U-{name}") for name in NAMES))


def world(**sources: Any) -> tuple[Observation, Known]:
    """The second of three nodes has these readings; all have passed their gate."""
    seen = [b.observed(name, **(sources if name == NAMES[1] else {})) for name in NAMES]
    return observation(*seen), Known({name: b.record(WANTED.nodes[name]) for name in NAMES})


@pytest.mark.parametrize(
    "sources",
    [
        {},
        {"hot": b.hot("another")},
        {"hot": b.silent("timeout", "https://10.20.0.11 does not answer")},
        {"host": b.facts("gpu-a002", hostname="other")},
        {"host": b.facts("gpu-a002", gpus=(b.gpu(0), b.gpu(1, serial="exchanged")))},
        {"host": b.facts("gpu-a002", sysctls={"vm.swappiness": "60"})},
        {"host": b.facts("gpu-a002", image=o.ImageIdentity("x", "1", b.SHA, "D1", "n", booted_disk="D2"))},
        {"host": b.silent("explained", "powered off")},
        {"member": b.member("gpu-a002", mark=b.our_mark())},
        {"member": b.member("gpu-a002", mark=b.our_mark(ledger="of somebody else"))},
        {"member": b.member("gpu-a002", labels={"workload": "other", "secret": "project"}, unschedulable=True)},
        {"member": None},
        {"inventory": b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"})},
    ],
    ids=str,
)
def test_an_offline_plan_is_that_of_the_nodes(sources: dict[str, Any]) -> None:
    seen, known = world(**sources)
    live = plan(WANTED, seen, known.records, known.id)
    published, found = through(WANTED, seen, known)
    offline = plan(WANTED, found.observation, found.records, published.ledger)
    assert found.unjudged == {}
    for name, node in offline.nodes.items():
        same = live.nodes[name]
        assert [action.id for action in node.actions] == [action.id for action in same.actions]
        assert (node.goal, node.in_service, node.disruption) == (same.goal, same.in_service, same.disruption)
        assert [(i.path, i.kind, i.desired) for i in node.drift] == [(i.path, i.kind, i.desired) for i in same.drift]
        assert (node.blocked and node.blocked.code) == (same.blocked and same.blocked.code)


# --- what the spec has come to say since --------------------------------------------------------------------------


def changed(**values: Any) -> d.Fleet:
    return fleet(*(replace(node, **values) if node.node == NAMES[1] else node for node in WANTED.nodes.values()))


def drift_of(found: Restored, wanted: d.Fleet, published: Published) -> dict[str, DriftClass]:
    made = plan(wanted, found.observation, found.records, published.ledger)
    return {item.path: item.kind for item in made.nodes[NAMES[1]].drift}


def test_a_name_that_a_change_edits_is_judged_where_the_old_one_was_found() -> None:
    seen, known = world()
    head = changed(serial="SN-new")
    published, found = through(WANTED, seen, known, WANTED, head)
    assert found.unjudged == {}
    assert drift_of(found, head, published)["identity.serial"] is DriftClass.DRIFTED


def test_a_name_that_nobody_can_tell_is_unknown_and_not_drift() -> None:
    """The board was exchanged, and the change says so: whether it is that board, its digest does not tell."""
    seen, known = world(hot=b.hot("gpu-a002", serial="SN-new"), host=b.facts("gpu-a002", serial="SN-new"))
    head = changed(serial="SN-new")
    published, found = through(WANTED, seen, known, WANTED, head)
    assert found.unjudged == {"identity.serial": ("gpu-a002",)}
    assert drift_of(found, head, published)["identity.serial"] is DriftClass.UNKNOWN
    assert not plan(head, found.observation, found.records, published.ledger).nodes[NAMES[1]].disruption
    published, found = through(WANTED, seen, known)
    assert drift_of(found, WANTED, published)["identity.serial"] is DriftClass.DRIFTED, "as the spec of then has it"


def test_without_the_spec_of_then_no_name_is_told() -> None:
    seen, known = world()
    published = publish(WANTED, seen, known, KEY, {})
    found = restore(published, None, (WANTED,))
    assert found.unjudged == {path: tuple(NAMES) for path in ("identity.serial", "host.hostname")}  # no UUID was read
    assert drift_of(found, WANTED, published)["identity.serial"] is DriftClass.UNKNOWN


def test_what_nobody_had_asked_for_is_not_taken_for_absent() -> None:
    profile = replace(
        b.profile(bios={**b.PROFILE.bios, "Other": 1}),
        membership=d.DesiredMembership({"secret": "project"}, (o.Taint("dedicated", "x", "NoSchedule"),)),
    )
    seen, known = world(member=b.member("gpu-a002", labels={"secret": "project"}))
    head = changed(profile=profile)
    published, found = through(WANTED, seen, known, WANTED, head)
    kinds = drift_of(found, head, published)
    for path in ("bios.Other", "cluster.labels.secret", "cluster.taints.dedicated"):
        assert kinds[path] is DriftClass.UNKNOWN, path


def test_nodes_that_joined_since_are_unknown() -> None:
    seen, known = world()
    later = fleet(*WANTED.nodes.values(), b.node("gpu-a004"))
    published, found = through(WANTED, seen, known, later)
    made = plan(later, found.observation, found.records, published.ledger)
    assert made.nodes["gpu-a004"].incomplete
    assert not made.nodes["gpu-a004"].actions


def test_one_key_for_each_document_and_one_digest_for_each_name() -> None:
    seen, known = world()
    one, same, other = (dump(publish(WANTED, seen, known, key, {})) for key in (KEY, KEY, b"o" * 32))
    assert one == same
    digests = [set(re.findall(rf"{SEALED}[0-9a-f]{{24}}", text)) for text in (one, other)]
    assert digests[0]
    assert not digests[0] & digests[1]
    made = publish(WANTED, seen, known, KEY, {}).nodes["gpu-a001"]
    assert isinstance(made.observed.hot, Answered)
    assert made.observed.hot.value.serial == made.record.serial == made.wanted["identity.serial"]
    assert made.record.certificate is not None
    assert made.record.certificate.binding.serial == made.record.serial


# --- nothing leaks ------------------------------------------------------------------------------------------------

WORD = re.compile(r"§[^§]*§")
# What is published of what a machine or a person says in so many words, and why it may be.
PUBLIC = {
    "RedfishHot": {"manufacturer", "model", "unknown key"},  # keys are ours
    "RedfishInventory": {"boot_order", "firmware key", "unknown key"},
    "Abilities": {  # words of the standard, and ours
        "boot_targets",
        "firmware_ways",
        "http_attributes",
        "http_attributes key",
        "lacks key",
        "reset_types",
    },
    "AmdGpu": {"model"},
    "BootOption": {"kind"},
    "DimmRecord": {"kind"},  # ours
    "FirmwareItem": {"version"},
    "BmcEvent": {"kind"},  # ours
    "Part": {"kind"},  # ours
    "MaintenanceRequest": {"who", "kind"},  # words of our own table
    "K3sFacts": {"version", "units key", "files key", "files", "images", "restart", "renewal"},  # paths and digests
    "HostFacts": {
        "kernel",
        "driver",
        "cuda",
        "nccl",
        "container_runtime",
        "kubelet",
        "unknown key",
        "services key",
        "sysctls key",
        "sysctls",  # keys that the spec named
    },
    "ImageIdentity": {"image", "version", "sha256", "os_release_id", "os_release_version"},
    "Gpu": {"pci", "name", "vbios"},
    "MigDevice": {"profile"},
    "GpuCells": {"recovery_action", "fabric_state", "unread"},  # words of the driver's own lists, and names of ours
    "Slot": {"name", "layout key", "newer", "lacks"},  # words of ours, and the name of an image
    "Xid": {"device"},
    "XidBurst": {"place"},  # "GPC 0, TPC 4"
    "DcgmIncident": {"entity", "system", "health"},  # "GPU 3", and words of DCGM's own lists
    "PlacedPart": {"kind"},  # ours
    "Repair": {"node"},
    "KernelEvent": {"device"},
    "Link": {"kind"},
    "Member": {"conditions key", "conditions", "kubelet_version"},
    "Pod": {"phase", "owner_kind", "operand"},  # of two names of NVIDIA's, or none
    "DeprecatedApi": {"group", "version", "resource", "removed"},  # of Kubernetes' own alone
    "NodeRecord": {"node", "applied key", "silent_since key"},
    "Attestation": {"phase", "reference"},  # ours: a digest of what the spec declares, and a name in it
    "Applied": {"spec_digest", "commit", "value"},  # what the spec once said, but for names
    "Attempt": {"action", "target", "cause", "outcome"},
    "Hold": {"subject"},
    "Certificate": {"format_version", "node"},
    "Binding": {
        "image_sha256",
        "firmware key",
        "firmware",
        "bios_digest",
        "tests_digest",
        "tests key",
        "tests",
        "software key",
        "software",  # as of HostFacts
        "fabric key",
        "fabric",  # names of switches and racks as the spec has them, like those of a budget
    },
    "Proof": {"tests"},
    "FirstResult": {"test", "key", "metrics key"},  # as TestResult; the key is a digest of what is published anyway
    "TestResult": {"test", "tool", "metrics key", "tool_version"},
}


def filled(kind: Any, at: str, *, silent: bool, bound: Mapping[Any, Any] | None = None) -> Any:
    """A value of that type in which every text says where it stands."""
    kind = (bound or {}).get(kind, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str or kind is Any:
        return f"§{at}§"
    if kind in (int, float, bool):
        return kind(1)
    if kind is datetime:
        return b.NOW
    if kind is timedelta:
        return timedelta(seconds=1)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return UnknownReason.TIMEOUT if kind is UnknownReason else next(iter(kind))
    if origin in (Union, UnionType):
        options = [one for one in arguments if one is not type(None)]
        return filled(options[-1 if silent and options[-1] is Silent else 0], at, silent=silent, bound=bound)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(filled(one, at, silent=silent) for one in arguments)
    if origin in (tuple, frozenset):
        return origin([filled(arguments[0], at, silent=silent)])
    if origin in (dict, Mapping):
        return {filled(arguments[0], f"{at} key", silent=silent): filled(arguments[1], at, silent=silent)}
    own: Any = origin or kind
    assert is_dataclass(own), kind
    made: Any = own
    hints = get_type_hints(own)
    inner = dict(zip(getattr(own, "__parameters__", ()), arguments, strict=False))
    return made(**{f.name: filled(hints[f.name], f"{made.__name__}.{f.name}", silent=silent, bound=inner)
                  for f in fields(own)})  # fmt: skip


def words_of(value: Any) -> Iterator[str]:
    yield from WORD.findall(dump(value).replace("\\u00a7", "§"))


@pytest.mark.parametrize("silent", [False, True])
def test_no_word_leaves_that_is_not_meant_to(silent: bool) -> None:
    """By type: whatever field of an observation or a record is added later, it is not among these."""
    seen = replace(filled(o.Observed, "", silent=silent), node=NAMES[0])
    record = replace(filled(NodeRecord, "", silent=silent), node=NAMES[0], paths=None)
    made = publish(WANTED, observation(seen), Known({NAMES[0]: record}), KEY, {})
    allowed = {f"§{kind}.{name}§" for kind, names in PUBLIC.items() for name in names}
    found = set(words_of(replace(made, known=())))
    assert found <= allowed, found - allowed
    told = dump(made)
    assert "4711" not in told
    assert "alice" not in told
    assert HIDDEN in told


def test_addresses_in_what_went_wrong_are_kept_back() -> None:
    seen, known = world(
        hot=b.silent("unreachable", "https://10.20.0.12: refused"), host=b.silent("auth", "root@10.20.1.12"),
        member=b.member("gpu-a002", annotations={"x": "10.20.1.12"}, labels={"topology": "10.20.1.12"}),
    )  # fmt: skip
    text = dump(publish(WANTED, seen, known, KEY, {}))
    assert "10.20." not in text
    for word in ("SN-gpu", '"G0"', '"D1"', "GPU-0"):
        assert word not in text
