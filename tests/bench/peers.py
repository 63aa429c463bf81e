"""Floors and peers for `scale`: the minimum for the same task, and the task with usual libraries."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepdiff import DeepDiff
from ruamel.yaml import YAML

from reconciler.diff.facts import managed
from reconciler.model.desired import Desired, Endpoints, Fleet
from reconciler.model.errors import Position
from reconciler.model.observed import Observed, Silent


def read_csv(spec: Path, fleet: Fleet) -> int:
    """Read all inventories' rows as `Desired` values, without checks and without positions for diagnostics."""
    nodes, one_of = {}, {node.pool: node for node in fleet.nodes.values()}
    for file in sorted((spec / "pools").glob("*.csv")):
        like = one_of[file.stem]
        profile = like.profile
        with file.open(encoding="utf-8", newline="") as text:
            for line, row in enumerate(csv.DictReader(text), start=2):
                nodes[row["name"]] = Desired(
                    node=row["name"], pool=file.stem, state=like.state,
                    endpoints=Endpoints(row["bmc"], row["host"]), domains={"rack": row["domains.rack"]},
                    hostname=row["hostname"], serial=row["serial"], uuid=row["uuid"], root_disk=None, profile=profile,
                    provenance={"node": Position(file.name, line, 1)},
                )  # fmt: skip
    return len(nodes)


def as_yaml(spec: Path, nodes: int) -> str:
    """Return the first `nodes` rows of the inventories as entries of a NodePool."""
    entries: list[Mapping[str, Any]] = []
    for file in sorted((spec / "pools").glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as text:
            for row in csv.DictReader(text):
                entry = {name: value for name, value in row.items() if not name.startswith("domains.")}
                entries.append(entry | {"domains": {"rack": row["domains.rack"]}})
    out = io.StringIO()
    YAML(typ="rt", pure=True).dump({"kind": "NodePool", "spec": {"nodes": entries[:nodes]}}, out)
    return out.getvalue()


def read_yaml(text: str) -> int:
    """Read YAML with the positions that diagnostics need, by ruamel's round-trip loader."""
    return len(YAML(typ="rt", pure=True).load(text)["spec"]["nodes"])


def deep_diff(fleet: Fleet, nodes: Mapping[str, Observed]) -> int:
    """Compare the desired and observed values of each node, as dicts by value path, with DeepDiff."""
    different = 0
    for name, observed in nodes.items():
        table = managed(fleet.nodes[name].profile)
        wanted = {row.path: row.wanted for row in table}
        different += bool(DeepDiff(wanted, {row.path: row.read(observed) for row in table}))
    return different


def compare_by_hand(fleet: Fleet, nodes: Mapping[str, Observed]) -> int:
    """Compare the most frequent values of a spec directly, attribute by attribute, only for equality."""
    different = 0
    for name, observed in nodes.items():
        desired = fleet.nodes[name]
        want, hot, inventory = desired.profile, observed.hot, observed.inventory
        host, member = observed.host, observed.member
        if isinstance(hot, Silent) or isinstance(inventory, Silent) or isinstance(host, Silent):
            continue
        has, holds, image = host.value, inventory.value, want.image
        if isinstance(member, Silent) or member.value is None or image is None or has.image is None:
            continue
        labels, services = member.value.labels, has.services or {}
        firmware, bios, sysctls = holds.firmware or {}, holds.bios or {}, has.sysctls or {}
        membership = want.membership
        different += not (
            hot.value.serial == desired.serial
            and hot.value.uuid == desired.uuid
            and hot.value.model == want.inventory.model
            and len(has.gpus or ()) == want.inventory.gpus
            and holds.dimms == want.inventory.dimms
            and holds.memory_bytes == want.inventory.memory_bytes
            and all(firmware[row.inventory_id].version == row.version for row in want.firmware)
            and all(bios.get(key) == value for key, value in want.bios.items())
            and holds.boot_order == want.boot_order
            and has.image.version == image.version
            and has.image.sha256 == image.sha256
            and has.driver == image.contents["driver"]
            and has.hostname == desired.hostname
            and all(sysctls.get(key) == value for key, value in want.host.sysctls.items())
            and all(services[key].active for key in want.host.services)
            and (membership is None or all(labels.get(key) == value for key, value in membership.labels.items()))
        )
    return different


def write_json(values: Any) -> int:
    return len(json.dumps(values))
