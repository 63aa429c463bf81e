"""The patches of our writes, applied to any node object by an independent JSON Patch."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.kube import objects, patches
from reconciler.lab.wire.kube_patch import json_patch
from reconciler.model.observed import Taint
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark

KEYS = st.sampled_from(["a", "b.example.com/c", "d~e/f", MARK_TAINT, "nvidia.com/gpu"])
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    """Encode taints as a server does: without empty fields, and with the time of a NoExecute taint."""
    taints = draw(
        st.lists(
            st.fixed_dictionaries(
                {"key": KEYS, "effect": EFFECTS},
                optional={"value": st.just("v"), "timeAdded": st.just("2026-11-21T12:00:00Z")},
            ),
            max_size=4,
            unique_by=lambda taint: (taint["key"], taint["effect"]),
        )
    )
    taints = [taint for taint in taints if (taint["key"], taint["effect"]) != (MARK_TAINT, "NoSchedule")]
    metadata = {"name": "n", "uid": "u", "resourceVersion": "7"}
    for field in ("labels", "annotations"):
        if entries := draw(st.dictionaries(KEYS, st.sampled_from(["", "x"]), max_size=3)):
            metadata[field] = entries  # type: ignore[assignment]  # JSON
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24"}
    if taints:
        spec["taints"] = taints
    if draw(st.booleans()):
        spec["unschedulable"] = True
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}


def served(node: dict[str, Any]) -> dict[str, Any]:
    """Without the empty fields that a patch may leave, as the server stores nothing of them."""
    node = copy.deepcopy(node)
    for part, field in (("metadata", "labels"), ("metadata", "annotations"), ("spec", "taints")):
        if not node[part].get(field, True):
            del node[part][field]
    return node


def mark_for(node: dict[str, Any]) -> Mark:
    return Mark("ledger", "plan", "why", "2026-11-21T12:00:00Z", cordoned="unschedulable" not in node["spec"])


@given(nodes())
def test_mark_and_unmark_leave_the_node_as_it_was(node: dict[str, Any]) -> None:
    mark = mark_for(node)
    marked = json_patch(node, patches.mark(objects.member(node), mark))
    assert marked["spec"]["unschedulable"] is True
    assert {"key": MARK_TAINT, "effect": "NoSchedule"} in marked["spec"]["taints"]
    again = json_patch(marked, patches.mark(objects.member(marked), replace(mark, plan="next")))
    for each in (marked, again):
        assert served(json_patch(each, patches.unmark(objects.member(each), uncordon=mark.cordoned))) == node


@given(nodes())
def test_a_mark_that_claims_no_cordon_sets_none(node: dict[str, Any]) -> None:
    marked = json_patch(node, patches.mark(objects.member(node), replace(mark_for(node), cordoned=False)))
    assert marked["spec"].get("unschedulable") == node["spec"].get("unschedulable")


@given(nodes(), nodes())
def test_what_others_write_meanwhile_is_kept(node: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Between mark and unmark somebody replaces every taint, label and annotation of theirs, and cordons."""
    marked = json_patch(node, patches.mark(objects.member(node), mark_for(node)))
    changed = copy.deepcopy(theirs)
    changed["spec"].setdefault("taints", []).insert(0, marked["spec"]["taints"][-1])
    owner = marked["metadata"]["annotations"][OWNER_ANNOTATION]
    changed["metadata"]["annotations"] = {OWNER_ANNOTATION: owner} | theirs["metadata"].get("annotations", {})
    assert served(json_patch(changed, patches.unmark(objects.member(changed), uncordon=False))) == theirs


@given(nodes(), st.dictionaries(KEYS, st.sampled_from(["", "x", "y"]), max_size=3), st.lists(st.tuples(KEYS, EFFECTS)))
def test_labels_and_taints_are_set_once_and_others_stay(
    node: dict[str, Any], labels: dict[str, str], taints: list[tuple[str, str]]
) -> None:
    wanted = [Taint(key, "w", effect) for key, effect in taints]
    before = objects.member(node)
    after = objects.member(json_patch(node, patches.set_labels(before, labels, wanted)))
    assert after.labels == {**before.labels, **labels}
    assert set(wanted) <= set(after.taints)
    known = [(taint.key, taint.effect) for taint in after.taints]
    assert len(known) == len(set(known))
    assert {taint for taint in before.taints if (taint.key, taint.effect) not in taints} <= set(after.taints)
    assert patches.set_labels(after, labels, wanted) == []


@given(nodes())
def test_every_patch_is_guarded_by_the_version_that_was_read(node: dict[str, Any]) -> None:
    member = objects.member(node)
    for patch in (patches.mark(member, mark_for(node)), patches.set_labels(member, {"new": "1"}, [])):
        assert json_patch({**node, "metadata": {**node["metadata"], "resourceVersion": "8"}}, patch)["metadata"][
            "resourceVersion"
        ] == ("7")
