"""Which parts of lists, mappings and sets differ, and how drift says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deepdiff import DeepDiff
from hypothesis import given
from hypothesis import strategies as st

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.diff.structure import ChangeKind, changed_keys, compare_structures, describe
from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.desired import DesiredGpu
from reconciler.model.records import NodeRecord
from reconciler.render.drift import human
from reconciler.render.explanation import Value
from tests import builders as b
from tests.diff.test_compare import drift
from tests.render.test_text import report

SYSCTLS = {"vm.swappiness": "10", "vm.nr_hugepages": "0"}
MIG = {"1g.10gb": 4, "3g.40gb": 1}


@pytest.mark.parametrize(
    ("wanted", "found", "words"),
    [
        pytest.param(
            SYSCTLS,
            {"vm.swappiness": "60", "net.core.somaxconn": "4096"},
            "added: net.core.somaxconn (4096); removed: vm.nr_hugepages (0); changed: vm.swappiness (60 instead of 10)",
            id="sysctls",
        ),
        pytest.param(
            {"kubelet": "running", "nvidia-persistenced": "running"},
            {"kubelet": "stopped", "nvidia-persistenced": "running"},
            "changed: kubelet (stopped instead of running)",
            id="services",
        ),
        pytest.param(
            {"value": "gpu", "effect": "NoSchedule"},
            {"value": "gpu", "effect": "NoExecute"},
            "changed: effect (NoExecute instead of NoSchedule)",
            id="taint",
        ),
        pytest.param({"NoSchedule"}, {"NoExecute"}, "added: NoExecute; removed: NoSchedule", id="effects"),
        pytest.param({"tier": "train"}, {}, "removed: tier (train)", id="labels"),
        pytest.param(
            ["Pxe", "Hdd"], ["Hdd", "Pxe"], "moved: Hdd (place 1 instead of 2), Pxe (place 2 instead of 1)", id="swap"
        ),
        pytest.param(["Pxe", "Hdd"], ["Usb", "Pxe", "Hdd"], "added: Usb", id="made room"),
        pytest.param(["Pxe", "Hdd", "Cd"], ["Pxe", "Cd"], "removed: Hdd", id="moved up"),
        pytest.param(["a", "a"], ["a"], "removed: a", id="once too few"),
        pytest.param(
            {"GPU 0": MIG, "GPU 1": MIG},
            {"GPU 0": MIG, "GPU 1": {"1g.10gb": 3, "2g.20gb": 1}},
            "added: GPU 1 2g.20gb (1); removed: GPU 1 3g.40gb (1); changed: GPU 1 1g.10gb (3 instead of 4)",
            id="MIG layouts",
        ),
        pytest.param(
            {"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": 1, "Smt": True},
            {"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": 1, "Smt": False},
            "changed: Smt (false instead of true), SriovGlobalEnable (Disabled instead of Enabled)",
            id="BIOS attributes",
        ),
        pytest.param({"order": ["a", "b"]}, {"order": ["b", "a", "c"]}, "added: order c; "
            "moved: order b (place 1 instead of 2), order a (place 2 instead of 1)", id="a list in a mapping"),
    ],
)  # fmt: skip
def test_words(wanted: Any, found: Any, words: str) -> None:
    assert describe(compare_structures(wanted, found)) == words
    assert compare_structures(wanted, wanted) == compare_structures(found, found) == ()


_VALUES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["a", "b"]) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), _VALUES), st.dictionaries(st.sampled_from("abc"), _VALUES))
def test_mappings_that_differ_are_described(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    changes = compare_structures(wanted, found)
    assert (describe(changes) == "") == (not changes)
    top = {name for name in wanted.keys() | found.keys() if (name in wanted) != (name in found)}
    assert top == {c.name for c in changes if c.kind in (ChangeKind.ADDED, ChangeKind.REMOVED) and c.name in "abc"}


def test_drift_of_a_boot_order_names_what_moved() -> None:
    def words(*order: str) -> str:
        return str(drift(b.observed(inventory=b.inventory(boot_order=order)))["boot.order"].detail)

    assert b.PROFILE.boot_order == ("Hdd", "Pxe")
    assert words("Pxe", "Hdd") == "moved: Pxe (place 1 instead of 2), Hdd (place 2 instead of 1)"
    assert words("HDD", "Usb", "pxe", "Cd") == "added: Usb", "entries behind the declared ones are unmanaged"
    assert words("Hdd") == "removed: Pxe"


def test_drift_of_a_mig_layout_names_the_gpu() -> None:
    def mig(index: int, count: int) -> gpus.Gpu:
        devices = tuple(gpus.MigDevice(index, "3g.40gb", f"u{index}{n}") for n in range(count))
        return b.gpu(index, mig_current=True, mig_pending=True, mig_devices=devices)

    seen = b.observed(host=b.facts(gpus=(mig(0, 2), mig(1, 1)), nvlinks_active={}))
    assert drift(seen, wanted=b.profile(gpu=DesiredGpu({"3g.40gb": 2})))["gpu.mig"].detail == (
        "changed: GPU 1 3g.40gb (1 instead of 2)"
    )
    assert drift(seen, wanted=b.profile(gpu=DesiredGpu(None)))["gpu.mig"].detail == "", "on and off have no parts"


def test_drift_of_a_taint_names_its_part() -> None:
    membership = b.PROFILE.membership
    assert membership is not None
    wanted = b.profile(membership=replace(membership, taints=(o.Taint("gpu", "yes", "NoSchedule"),)))
    for taints, words in (
        ((o.Taint("gpu", "yes", "NoExecute"),), "changed: effect (NoExecute instead of NoSchedule)"),
        ((), ""),
    ):
        found = drift(b.observed(member=b.member(taints=taints)), wanted=wanted)["cluster.taints.gpu"]
        assert found.detail == words


def test_a_plain_value_needs_no_words() -> None:
    assert drift(b.observed(host=b.facts(sysctls={"vm.swappiness": "60"})))["host.sysctls.vm.swappiness"].detail == ""


def test_drift_and_explain_show_the_words() -> None:
    items = drift(b.observed(inventory=b.inventory(boot_order=("Pxe", "Hdd"))))
    words = "moved: Pxe (place 1 instead of 2), Hdd (place 2 instead of 1)"
    assert words in human(report(*items.values()))
    item = items["boot.order"]
    assert words in Value("boot.order", item.desired, None, None, item.observed, item, item.source, None).verdict


def test_nodes_that_share_a_comparison_share_its_words() -> None:
    """The words depend only on values that are compared, so no node gets the words of another."""
    orders = [("Hdd", "Usb"), ("Hdd", "Usb", "Pxe"), ("Hdd", "Usb", "Cd", "Pxe"), ("Hdd", "Usb", "Pxe", "Cd")]
    comparer = Comparer(IgnoreRules((), b.NOW))
    found = [
        comparer.compare(b.node(), b.observed(inventory=b.inventory(boot_order=order)), NodeRecord("gpu-a001"))
        for order in orders
    ]
    assert [items[0].detail for items in found] == [
        "added: Usb; removed: Pxe",
        "added: Usb",
        "added: Cd, Usb",
        "added: Usb",
    ]
    assert len(comparer._shared) == 3, "entries behind the declared ones do not keep nodes from sharing"


PLAIN = st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 2, allow_nan=False) | st.text("ab", max_size=2)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=2), st.tuples(VALUES, VALUES), max_size=6))
def test_the_keys_that_changed_are_those_of_deepdiff(both: dict[str, tuple[Any, Any]]) -> None:
    """What is alike at a glance is not given to DeepDiff, and nothing else is left out."""
    wanted, found = {key: one for key, (one, _) in both.items()}, {key: other for key, (_, other) in both.items()}
    assert changed_keys(wanted, found) == frozenset(DeepDiff(wanted, found).affected_root_keys)
    assert changed_keys(wanted, wanted) == frozenset()
