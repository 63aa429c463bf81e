"""Versions of what an image has: a spec may give them in part, and a tool may tell less than is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.model.drift import DriftClass
from reconciler.model.records import NodeRecord
from tests import builders as b

FOUND = {"cuda": "12.8.1", "nccl": "2.26.2", "container_runtime": "containerd 1.7.24", "kubelet": "1.31.4"}


def kind(part: str, asked: str, **facts: Any) -> tuple[DriftClass, Any] | None:
    image = replace(b.IMAGE, contents={part: asked})
    node = b.node(profile=b.profile(image=image))
    items = Comparer(IgnoreRules((), b.NOW)).compare(
        node, b.observed(host=b.facts(**(FOUND | facts))), NodeRecord("gpu-a001")
    )
    found = [item for item in items if item.path == f"image.{part}"]
    return (found[0].kind, found[0].observed) if found else None


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("cuda", "12.8"), ("cuda", "12.8.1"), ("nccl", "2.26"), ("nccl", "2.26.2-1+cuda12.8"), ("kubelet", "v1.31.4"),
        ("kubelet", "1.31"), ("containerRuntime", "1.7"), ("containerRuntime", "containerd://1.7.24"),
        ("containerRuntime", "containerd 1.7.24"),
    ],
)  # fmt: skip
def test_a_version_that_is_there_is_no_drift(part: str, asked: str) -> None:
    assert kind(part, asked) is None


@pytest.mark.parametrize(
    ("part", "asked", "found"),
    [
        ("cuda", "13.9", "12.8.1"), ("cuda", "12.80", "12.8.1"), ("cuda", "12.8.0", "12.8.1"),
        ("nccl", "2.27.3", "2.26.2"), ("kubelet", "1.30", "1.31.4"), ("containerRuntime", "2.0", "containerd 1.7.24"),
        ("containerRuntime", "cri-o 1.7.24", "containerd 1.7.24"),
    ],
)  # fmt: skip
def test_another_version_is_drift_that_a_new_image_heals(part: str, asked: str, found: str) -> None:
    assert kind(part, asked) == (DriftClass.DRIFTED, found)
    node = b.node(profile=b.profile(image=replace(b.IMAGE, contents={part: asked})))
    seen = b.observed(host=b.facts(**FOUND))
    plan = b.planner().plan(node, seen, b.record(node))
    [reimage] = [action for action in plan.actions if action.name == "reimage"]
    assert reimage.because == (f"image.{part}",)


def test_what_is_not_told_is_unknown() -> None:
    assert kind("cuda", "12.8.1", cuda="12.8") == (DriftClass.UNKNOWN, None)
    assert kind("cuda", "12.8", cuda=None, unknown={"cuda": "unsupported: not found"}) == (DriftClass.UNKNOWN, None)
