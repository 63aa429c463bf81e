"""A golden plan: a fragment of a spec, what its machines and its ledger are like, and the plan that people then read.

The spec is loaded, the machines are a lab's, read as ever; only the ledger is made up. Keys of a case:

    rule      what the plan shows
    now       the time at which it is made
    fleet     keys of Fleet.spec, beside those that the base needs
    pools     name -> keys of NodePool.spec; `nodes`: a range of names, or a list of these and of entries as in a spec
    lab       node pattern -> what a lab plays on it, as in a scenario
    control   nodes that are the cluster's control plane
    marked    nodes that an earlier run took out of service
    attempts  node -> attempts, oldest first: {action, target, cause, outcome, detail, ago}
    applied   node pattern -> values that it was last converged to, by path; null: never. Else as the spec says
    settled   node pattern -> how long ago it was, and its certificate was issued; a week, if not said
    void      node patterns: no certificate
    failed    node -> what its acceptance tests found, of which the certificate is
    bad       node pattern -> how long ago it was first seen to be bad, of those that are; just now, if not said
    holds     what the ledger holds, node or pool/name -> {reason, owner, until}
    rollouts  what the ledger has of rollouts, pool -> {values, before, members, ago, rollback}
    limit     nodes that are planned for, if not all
    left      nodes that the ledger knows and the spec names no more
    plan      what `reconciler plan` prints
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from reconciler.converge.brake import OWNER
from reconciler.converge.observe import observe
from reconciler.gate.asked import kept_values
from reconciler.gate.certificate import binding_of, digest_of, tests_digest
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.scenario import Scenario
from reconciler.model.desired import Desired, Fleet
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Answered, Observation, Taint
from reconciler.model.plan import Plan, Scope
from reconciler.model.records import (
    BAD,
    MARK_TAINT,
    OWNER_ANNOTATION,
    STORM,
    Applied,
    Attempt,
    Hold,
    Mark,
    NodeRecord,
    Rollout,
    write_mark,
)
from reconciler.model.units import parse_duration
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.storm import bad_nodes, storm
from reconciler.planner.node.holds import by_subject
from reconciler.render.plan import human
from reconciler.spec import load_spec

HERE = Path(__file__).parent
BASE = (HERE / "base.yaml").read_text()
FLEET: Mapping[str, Any] = {
    "cluster": "main",
    "redfish": {"credentials": "bmc", "tls": {"insecure": True}},
    "ssh": {"credentials": "ssh", "hostKeys": {"insecure": True}},
    "installer": {
        "listen": "10.0.0.1:8089",
        "iso": "https://images.example.com/installer.iso",
        "certificate": "tls",
        "hostCa": "host-ca",
    },
    "guards": {"reimage": "100%", "reboot": "100%", "forget": "100%"},
    "defaults": {"remediation": "standard"},
}
POOL: Mapping[str, Any] = {
    "image": {"name": "ubuntu-gpu", "version": "2026.11.1"},
    "hardware": "hgx",
    "persona": "training",
}


@dataclass(frozen=True)
class Case:
    path: Path
    said: Mapping[str, Any]

    @property
    def now(self) -> datetime:
        return datetime.fromisoformat(self.said["now"])

    def plan(self) -> Plan:
        fleet = load_spec(self._files(), directory="")
        clock = VirtualClock(self.now - timedelta(hours=1))
        lab = build_lab(fleet, Scenario.model_validate({"nodes": self.said.get("lab", {})}), clock.seconds)
        self._elect(lab)
        self._mark(lab)
        clock.elapsed = 3600.0
        seen = run_virtual(observe(fleet, list(fleet.nodes), LabFabric(lab, clock), clock), clock)
        image, limit = ("ubuntu-gpu", "2026.11.1"), self.said.get("limit")
        records = self._records(fleet, seen)
        snapshot = LedgerSnapshot(
            "golden", records, known=(*fleet.nodes, *self.said.get("left", ())),
            holds=(*self._holds(), *self._brake(fleet, seen, records)), rollouts=self._rollouts(),
        )  # fmt: skip
        scope = None if limit is None else Scope(tuple(limit), (), len(limit), len(fleet.nodes))
        made = plan_fleet(fleet, seen, snapshot, self.now, PlanRequest("golden", {image: True}, limit, scope))
        return replace(made, insecure=())

    def text(self) -> str:
        return re.sub(r"; fingerprint [0-9a-f]+", "", human(self.plan()))

    def _files(self) -> dict[str, bytes]:
        fleet = {**FLEET, **self.said.get("fleet", {})}
        files = {"base.yaml": BASE.encode(), "fleet.yaml": _document("Fleet", "golden", fleet)}
        for at, (name, given) in enumerate(self.said["pools"].items(), 1):
            nodes = given["nodes"]
            nodes = [
                {"name": entry} if isinstance(entry, str) else entry
                for entry in ([nodes] if isinstance(nodes, str) else nodes)
            ]
            entries = [_addresses(entry["name"], at, number) | entry for number, entry in enumerate(nodes, 1)]
            files[f"{name}.yaml"] = _document("NodePool", name, {**POOL, **given, "nodes": entries})
        return files

    def _elect(self, lab: Lab) -> None:
        cluster, elected = lab.cluster, self.said.get("control", ())
        assert cluster is not None
        for name in elected:
            cluster.node(name).control_plane = True
        if elected:
            [own] = [node.name for node in cluster.nodes() if node.control_plane and node.name not in elected]
            cluster.node(own).control_plane = False

    def _mark(self, lab: Lab) -> None:
        assert lab.cluster is not None
        mark = write_mark(Mark("golden", "earlier", "test", "2026-11-24T00:00:00Z", cordoned=True))
        for name in self.said.get("marked", ()):
            node = lab.cluster.node(name)
            taints = (*node.taints, Taint(MARK_TAINT, "", "NoSchedule"))
            lab.cluster.update_node(name, annotations={OWNER_ANNOTATION: mark}, taints=taints, unschedulable=True)

    def _records(self, fleet: Fleet, seen: Observation) -> dict[str, NodeRecord]:
        return {name: self._record(node, seen) for name, node in fleet.nodes.items()}

    def _record(self, node: Desired, seen: Observation) -> NodeRecord:
        assert node.profile.acceptance is not None
        own, issued = seen.nodes[node.node], self._ago(self._of("settled", node.node) or "7d")
        binding = binding_of(node, own, tests_digest(node.profile.acceptance))
        certificate = None
        if isinstance(binding, Binding) and not any(fnmatchcase(node.node, one) for one in self.said.get("void", ())):
            found = self.said.get("failed", {}).get(node.node)
            test = TestResult("dcgm", "dcgmi-diag", Verdict.FAIL, (found,), {})
            certificate = Certificate("1.0", node.node, issued, binding, (test,) if found else (), adopted=not found)
        serial = own.hot.value.serial if isinstance(own.hot, Answered) else None
        attempts = [self._attempt(one) for one in self.said.get("attempts", {}).get(node.node, ())]
        values = kept_values(node.profile) | (self._of("applied", node.node) or {})
        applied = {path: Applied(value, "", "", issued) for path, value in values.items() if value is not None}
        noted = self._of("bad", node.node)
        return NodeRecord(
            node.node, serial, applied=applied, attempts=tuple(attempts), certificate=certificate,
            silent_since={} if noted is None else {BAD: self._ago(noted)},
        )  # fmt: skip

    def _of(self, key: str, node: str) -> Any:
        """What is said of the first pattern that the node matches."""
        return next((given for pattern, given in self.said.get(key, {}).items() if fnmatchcase(node, pattern)), None)

    def _ago(self, duration: str) -> datetime:
        return self.now - timedelta(seconds=parse_duration(duration))

    def _attempt(self, said: Mapping[str, Any]) -> Attempt:
        at = self._ago(said["ago"])
        outcome, cause = said.get("outcome", "done"), said.get("cause", "drift")
        return Attempt(said["action"], said.get("target", ""), cause, at, outcome, said.get("detail", ""), at)

    def _holds(self) -> tuple[Hold, ...]:
        return tuple(
            Hold(at, subject, one["reason"], one["owner"], self._ago("1d"), _moment(one.get("until")))
            for at, (subject, one) in enumerate(self.said.get("holds", {}).items(), 1)
        )

    def _brake(self, fleet: Fleet, seen: Observation, records: Mapping[str, NodeRecord]) -> tuple[Hold, ...]:
        """As a pass sets it."""
        holds = by_subject(fleet.holds, self._holds())
        found = storm(fleet, seen, bad_nodes(fleet, seen), records, holds, self.now)
        return () if found is None else (Hold(0, STORM, found.sentence, OWNER, self.now),)

    def _rollouts(self) -> dict[str, Rollout]:
        return {
            pool: Rollout(
                pool, digest_of(one["values"]), _each(one["values"]), _each(one["before"]), tuple(one["members"]),
                one.get("rollback", False), self._ago(one["ago"]), "",
            )
            for pool, one in self.said.get("rollouts", {}).items()
        }  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _each(values: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """One value a path, as a rollout keeps them."""
    return {path: (value,) for path, value in values.items()}


def _addresses(name: str, pool: int, entry: int) -> dict[str, str]:
    span = re.search(r"\[.*\]", name)
    last = span[0] if span else "1"
    return {"bmc": f"https://10.{pool}.{entry}.{last}", "host": f"10.{100 + pool}.{entry}.{last}"}


def _document(kind: str, name: str, spec: Mapping[str, Any]) -> bytes:
    out = io.StringIO()
    document = {"apiVersion": "reconciler.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
    _yaml().dump(document, out)
    return out.getvalue().encode()


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.width, yaml.preserve_quotes = 4096, True
    return yaml


def cases() -> list[Path]:
    return sorted(path for path in HERE.glob("*.yaml") if path.name != "base.yaml")


def read(path: Path) -> Case:
    return Case(path, YAML(typ="safe", pure=True).load(path.read_text()))


def update(case: Case) -> None:
    """Write the plan of now into the case; the rest of the file stays as it is."""
    yaml = _yaml()
    data = yaml.load(case.path.read_text())
    data["plan"] = LiteralScalarString(case.text())
    with case.path.open("w") as out:
        yaml.dump(data, out)
