"""How a NodePool says which nodes serve together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconciler.model.serving import DesiredServing, command_for, command_name
from reconciler.model.serving_sync import DesiredSync
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


def networked(node: str, number: int) -> dict[str, Any]:
    link = {"name": "ib0", "mac": f"02:00:00:00:00:0{number}", "addresses": [f"10.30.0.{number}/24"]}
    return {"name": node, "host": f"10.9.0.{number}", "network": {"links": [link]}}


def test_what_is_copied_arrives_with_the_address_of_each_node() -> None:
    more = "".join(f"  - {json.dumps(networked(f'tp-{at}', at))}\n" for at in (1, 2))
    image = "registry.example:5000/engine/vllm:v0.11.0"
    sync = {"paths": ["/srv/models"], "link": "ib0", "gbps": 400, "images": [image]}
    edit = said(groups=[["tp-[1-2]"]], sync=sync)
    nodes = load(edit, ("pool.yaml", "  - name: gpu-a009\n", f"{more}  - name: gpu-a009\n")).nodes
    found = [nodes[name].serving for name in ("tp-1", "tp-2")]
    assert [one.sync if one else None for one in found] == [
        DesiredSync(("/srv/models",), "ib0", "10.30.0.1", 400.0, (image,)),
        DesiredSync(("/srv/models",), "ib0", "10.30.0.2", 400.0, (image,)),
    ]


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
        (
            {"sync": {"paths": ["/srv/models"], "link": "ib0"}},
            "node 'gpu-a001' has no address on link 'ib0', by which its data are copied",
        ),
        ({"sync": {"paths": ["models"], "link": "ib0"}}, "an absolute path"),
        ({"sync": {"link": "ib0"}}, "say what is copied: paths or images"),
        ({"sync": {"images": ["vllm-openai"], "link": "ib0"}}, "the name of a container image with its tag or digest"),
        ({"sync": {"images": ['x" v:1'], "link": "ib0"}}, "the name of a container image with its tag or digest"),
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
