"""How a NodePool says which nodes serve together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.model.serving import DesiredServing, command_for, command_name
from tests.spec.example import Edit, load, messages

SAID: dict[str, Any] = {
    "groups": [["gpu-a[001-002]"]],
    "degrade": {"command": ["serve", "--only={nodes}", "--without={node}"]},
    "restore": {"command": ["serve", "{nodes}"]},
    "ready": {"url": "http://127.0.0.1:8000/health"},
}
GROUP = ("gpu-a001", "gpu-a002")


def said(**changes: Any) -> Edit:
    wanted = {key: value for key, value in (SAID | changes).items() if value is not None}
    return ("pool.yaml", "spec:\n", f"spec:\n  serving: {json.dumps(wanted)}\n")


def test_it_arrives_at_each_node_of_a_group_with_its_line() -> None:
    nodes = load(said(timeout="5m")).nodes
    wanted = DesiredServing(
        GROUP, ("serve", "--only={nodes}", "--without={node}"), ("serve", "{nodes}"), 300.0,
        "http://127.0.0.1:8000/health", 600.0,
    )  # fmt: skip
    assert {name: node.serving for name, node in nodes.items() if node.serving} == dict.fromkeys(GROUP, wanted)
    assert str(nodes["gpu-a001"].provenance["serving"]).startswith("pool.yaml:")


def test_nodes_of_one_failure_domain_serve_together() -> None:
    groups = {
        node.serving.group for node in load(said(groups=None, domain="rack")).nodes.values() if node.serving is not None
    }
    assert groups
    for group in groups:
        racks = {node.domains["rack"] for name, node in load().nodes.items() if name in group}
        assert len(racks) == 1


def test_another_group_is_another_fleet() -> None:
    assert len({load().digest, load(said()).digest, load(said(timeout="5m")).digest}) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"groups": None}, "in one way: groups or domain"),
        ({"domain": "rack"}, "in one way: groups or domain"),
        ({"groups": [["gpu-a001"]]}, "gpu-a001 is alone in its serving group"),
        ({"groups": [["gpu-a001", "gpu-a001"]]}, "node 'gpu-a001' is named twice"),
        ({"groups": [["gpu-a[001-002]"], ["gpu-a[002-003]"]]}, "node 'gpu-a002' is named twice"),
        ({"groups": [["gpu-a001", "gpu-x"]]}, "the pool has no node 'gpu-x'"),
        ({"groups": [["gpu-a[002-001]"]]}, "counts from 002 down to 001"),
        ({"groups": None, "domain": "tp-group"}, "no node of the pool serves in a group"),
        ({"ready": {"url": "ftp://127.0.0.1/"}}, "a URL like https://host/path"),
    ],
)
def test_what_nobody_could_be_told_is_refused(changes: dict[str, Any], why: str) -> None:
    found = [message for message in messages(said(**changes)) if why in message]
    assert found
    assert found[0].startswith("pool.yaml:")


def test_a_command_is_told_with_names_and_known_by_what_it_is() -> None:
    argv = command_for(("serve", "--only={nodes}", "--without={node}"), "a", ("b", "c"))
    assert argv == ("serve", "--only=b,c", "--without=a")
    assert command_name("ledger", 7, argv) == command_name("ledger", 7, argv)
    names = {
        command_name("ledger", 7, argv), command_name("ledger", 8, argv), command_name("other", 7, argv),
        command_name("ledger", 7, argv[:2]),
    }  # fmt: skip
    assert len(names) == 4
