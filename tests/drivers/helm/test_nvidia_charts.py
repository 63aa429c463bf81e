"""NVIDIA's own charts, rendered by the real helm: what `validate` says of their values is so.

`NVIDIA_CHARTS` names a folder with `gpu-operator`, which is deployments/gpu-operator of github.com/NVIDIA/gpu-operator
with the charts that it depends on, and `network-operator`, which is deployment/network-operator of
github.com/Mellanox/network-operator. Seen to pass with commits a22dbf67 and b06827e0.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.helm.readiness import POLICIES, policies_not_ready
from reconciler.model.records import MARK_TAINT
from reconciler.model.releases import OperatorKind
from reconciler.spec.ownership import _CLAIMS, _NFD, _Claim
from reconciler.spec.tolerations import _CORDON, _OF_OPERATOR, _ON_NODES
from tests.conftest import ROOT
from tests.drivers.helm.real_helm import helm

CHARTS: Final = Path(os.environ.get("NVIDIA_CHARTS", "/nonexistent"))
pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(not CHARTS.is_dir(), reason="NVIDIA_CHARTS names no folder with NVIDIA's charts"),
]
PAGE: Final = (ROOT / "docs/how-to/operators.md").read_text()
EVERYTHING: Final = [{"operator": "Exists"}]
# The values of tolerations that are looked at -> the object whose pods they are of.
PODS_OF: Final = {
    "daemonsets.tolerations": "ClusterPolicy cluster-policy",  # from which the operator makes its DaemonSets
    "node-feature-discovery.worker.tolerations": "DaemonSet x-node-feature-discovery-worker",
    "node-feature-discovery.master.tolerations": "Deployment x-node-feature-discovery-master",
    "node-feature-discovery.gc.tolerations": "Deployment x-node-feature-discovery-gc",
    "operator.tolerations": "Deployment gpu-operator",
}


def read(text: str) -> list[Any]:
    return [one for one in YAML(typ="safe").load_all(text) if one]


def documented() -> dict[str, Any]:
    """The values of the GPU Operator as the guide has them."""
    shown = re.search(r"```yaml\n# a Cluster[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    [cluster] = read(shown[1])
    return dict(cluster["spec"]["operators"][0]["values"])


def rendered(values: Mapping[str, Any], chart: str = "gpu-operator") -> dict[str, Any]:
    """What a chart makes of values, but for its hooks: kind and name -> object."""
    ran = subprocess.run(
        [helm(), "template", "x", str(CHARTS / chart), "--namespace", chart, "--values", "-", "--no-hooks"],
        input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return {f"{one['kind']} {one['metadata']['name']}": one for one in read(ran.stdout)}


def tolerated(thing: Mapping[str, Any], key: str) -> bool:
    """Whether pods of an object come to a node with a taint of this key, of no value and the effect NoSchedule.

    Written after "Taints and Tolerations" of kubernetes.io: an empty key with Exists matches everything.
    """
    spec = thing["spec"]
    found = spec["daemonsets"]["tolerations"] if thing["kind"] == "ClusterPolicy" else None
    if found is None:
        found = spec["template"]["spec"].get("tolerations", [])
    for one in found:
        same_key = one.get("key") == key or (not one.get("key") and one.get("operator") == "Exists")
        same_value = one.get("operator") == "Exists" or one.get("value", "") == ""
        if same_key and same_value and one.get("effect") in (None, "", "NoSchedule"):
            return True
    return False


def with_value(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    new = copy.deepcopy(dict(values))
    holder = new
    for name in path[:-1]:
        holder = holder.setdefault(name, {})
    holder[path[-1]] = value
    return new


def without(values: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    new = with_value(values, path, None)
    del at(new, path[:-1])[path[-1]]
    return new


@cache
def defaults(chart: str) -> dict[str, Any]:
    [values] = read((CHARTS / chart / "values.yaml").read_text())
    return dict(values)


def at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    return reduce(lambda holder, name: holder.get(name, {}) if isinstance(holder, dict) else {}, path, values)


def test_the_values_of_the_guide_leave_drivers_and_mig_to_us_and_let_pods_come_to_a_node_that_waits() -> None:
    made = rendered(documented())
    policy = made["ClusterPolicy cluster-policy"]["spec"]
    assert (policy["driver"]["enabled"], policy["migManager"]["enabled"]) == (False, False)
    for path in _ON_NODES:
        assert tolerated(made[PODS_OF[".".join(path)]], MARK_TAINT), path


@pytest.mark.parametrize("path", [*_ON_NODES, *_OF_OPERATOR], ids=".".join)
def test_a_list_of_tolerations_that_is_asked_for_is_that_of_those_pods(path: tuple[str, ...]) -> None:
    """Without it their pods would stay away, as the chart's own lists have nothing for our mark; with it they come."""
    name = PODS_OF[".".join(path)]
    bare = without(documented(), path)
    assert not tolerated(rendered(bare)[name], MARK_TAINT)
    only_ours = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (MARK_TAINT, _CORDON)]
    for given in (EVERYTHING, only_ours):
        made = rendered(with_value(bare, path, given))[name]
        assert tolerated(made, MARK_TAINT)
        assert tolerated(made, _CORDON)


def test_every_pod_of_the_chart_is_one_that_is_looked_at() -> None:
    made = rendered({})
    with_pods = {
        name for name, one in made.items() if "template" in one.get("spec", {}) or one["kind"] == "ClusterPolicy"
    }
    assert with_pods == set(PODS_OF.values())
    assert set(PODS_OF) == {".".join(path) for path in (*_ON_NODES, *_OF_OPERATOR)}


def test_without_feature_discovery_its_pods_are_not_there() -> None:
    made = rendered({"nfd": {"enabled": False}})
    assert not [name for name in made if "node-feature-discovery" in name]


@pytest.mark.parametrize("claim", _CLAIMS, ids=lambda claim: ".".join(claim.path))
def test_a_value_that_is_left_out_is_taken_as_the_chart_has_it(claim: _Claim) -> None:
    """Values that newer charts do not have any more count as false there, as Helm ignores them."""
    chart = claim.kind.value
    found = at(defaults(chart), claim.path)
    assert (found if isinstance(found, bool) else False) is claim.default
    assert defaults(chart)["nfd"]["enabled"] is at({"nfd": {"enabled": True}}, _NFD)


def test_what_the_charts_own_values_take_is_what_we_refuse_without_an_owner() -> None:
    policy = rendered({})["ClusterPolicy cluster-policy"]["spec"]
    taken = {
        claim.path: at(policy, claim.path) for claim in _CLAIMS if claim.kind is OperatorKind.GPU and claim.default
    }
    assert taken == dict.fromkeys(taken, True)
    assert len(taken) == 3


# --- the Network Operator --------------------------------------------------------------------------------------------

NETWORK: Final = "network-operator"


def workloads(values: Mapping[str, Any]) -> set[str]:
    return {name for name, one in rendered(values, NETWORK).items() if "template" in one.get("spec", {})}


def test_by_its_own_values_it_takes_nothing_of_the_nodes() -> None:
    """Its policies are objects of the user's own, without which it installs no driver."""
    made = rendered({}, NETWORK)
    assert not [name for name in made if name.startswith(("NicClusterPolicy", "NicNodePolicy"))]
    assert workloads({"nfd": {"enabled": False}}) == {"Deployment x-network-operator"}


@pytest.mark.parametrize(
    "claim", [one for one in _CLAIMS if one.kind is OperatorKind.NETWORK], ids=lambda claim: ".".join(claim.path)
)
def test_a_value_of_the_network_operator_that_is_claimed_does_what_is_said(claim: _Claim) -> None:
    """Those that drain bring an operator that does. The others are of charts that made the policy themselves."""
    given = with_value({"nfd": {"enabled": False}}, claim.path, True)
    more = workloads(given) - {"Deployment x-network-operator"}
    if claim.path[-1] == "enabled":
        assert len(more) == 1, "an operator of its own"
        assert "operator" in next(iter(more))
    else:
        assert not more
        assert at(defaults(NETWORK), claim.path) == {}, "this chart knows the value"


def test_its_feature_discovery_stays_away_from_our_mark_unless_it_is_told_to_tolerate_it() -> None:
    worker = "DaemonSet x-node-feature-discovery-worker"
    assert not tolerated(rendered({}, NETWORK)[worker], MARK_TAINT)
    path = ("node-feature-discovery", "worker", "tolerations")
    assert tolerated(rendered(with_value({}, path, EVERYTHING), NETWORK)[worker], MARK_TAINT)


@pytest.mark.parametrize("kind", POLICIES[OperatorKind.NETWORK])
def test_the_states_of_its_policies_are_those_that_are_read(kind: str) -> None:
    """By their definitions: the words of `state` and `appliedStates`, and the path."""
    definitions = [read(path.read_text())[0] for path in (CHARTS / NETWORK / "crds").glob("mellanox.com_*.yaml")]
    spec = next(one["spec"] for one in definitions if one["spec"]["names"]["kind"] == kind)
    [version] = [one for one in spec["versions"] if one["served"]]
    path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
    assert (spec["scope"], POLICIES[OperatorKind.NETWORK][kind]) == ("Cluster", path)
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    part = status["appliedStates"]["items"]["properties"]
    assert status.keys() >= {"state", "reason", "appliedStates"}
    assert part.keys() == {"name", "state", "message"}
    for words in (status["state"]["enum"], part["state"]["enum"]):
        told = {
            word: list(policies_not_ready(OperatorKind.NETWORK, {kind: [{"status": {"state": word}}]}))
            for word in words
        }
        assert {word: bool(why) for word, why in told.items()} == {
            "ready": False, "notReady": True, "error": True, "ignore": True,
        }  # fmt: skip
        assert "is ignored" in told["ignore"][0]
