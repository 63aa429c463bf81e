"""Find the positions of what a node gets by choosing resources by name: drain, tests, ladder, firmware.

Positions are under the paths of `Profile`, field by field. A key that a resource lacks has the position of the mapping
or list around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from reconciler.model.errors import Position
from reconciler.spec.kinds.settings import NodeSettings
from reconciler.spec.layers import Layer, Setting
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.strict_yaml.parse import Steps

_DRAIN: Final = {
    "provider": "provider", "timeout_s": "timeout", "grace_s": "grace", "force": "force", "command": "command",
    "evict_unmanaged": "evictUnmanaged", "delete_empty_dir_data": "deleteEmptyDirData",
    "checkpoint": "checkpoint", "wait_for_jobs_s": "waitForJobs", "surge": "surge", "hold": "kueue",
}  # fmt: skip
_REMEDIATION: Final = {
    "ladder": "ladder", "window_s": "window", "ignore_xids": "ignoreXids", "host_down_after_s": "hostDownAfter",
    "node_conditions": "nodeConditions", "most": "limit", "most_of_class": "limit", "most_within_s": "limit",
}  # fmt: skip
_TEST: Final = {
    "name": "name", "tool": "tool", "args": "args", "timeout_s": "timeout", "versions": "versions",
    "allow_skip": "allowSkip", "thresholds": "thresholds",
    "validity_s": "validity",
}  # fmt: skip
_FIRMWARE: Final = {
    "inventory_id": "inventoryId", "policy": "policy", "activation": "activation", "stage": "stage",
    "settle_s": "settle", "url": "url", "sha256": "sha256", "minutes": "minutes",
    "verified_by": "verifiedBy",
}  # fmt: skip


def policy_positions(
    declared: Declarations,
    chosen: Layer,
    merged: Layer,
    overrides: Iterable[tuple[DeclaredResource[Any], NodeSettings, Steps]],
) -> dict[str, Position]:
    """Return the positions by path. `overrides` are the settings laid over the resources, each over the one before."""
    found: dict[str, Position] = {}
    if "persona" in chosen:
        persona = declared.personas[chosen["persona"].value]
        found |= {f"drain.{field}": persona.at("drain", key) for field, key in _DRAIN.items()}
        found["backup"] = persona.at("backup")
    if "remediation" in chosen:
        policy = declared.remediation[chosen["remediation"].value]
        found |= {f"remediation.{field}": policy.at(key) for field, key in _REMEDIATION.items()}
    if "gate.certificate" in merged:
        found |= _of_acceptance(declared, merged["gate.certificate"])
    if "hardware" in chosen:
        hardware = declared.hardware[chosen["hardware"].value]
        found["measurements"] = hardware.at("measurements")
        found["measurements.components"] = hardware.at("measurements", "components")
        for index, item in enumerate(hardware.spec.firmware):
            found |= {
                f"firmware.{item.component}.{f}": hardware.at("firmware", index, key) for f, key in _FIRMWARE.items()
            }
    for resource, settings, steps in overrides:
        for index, override in enumerate(settings.firmware):
            given = [key for key in ("policy", "url", "sha256") if getattr(override, key) is not None]
            at = (*steps, "firmware", index)
            found |= {f"firmware.{override.component}.{key}": resource.at(*at, key) for key in given}
    return found


def _of_acceptance(declared: Declarations, setting: Setting) -> dict[str, Position]:
    profile = declared.acceptance[setting.value]
    found = {"acceptance.validity_s": profile.at("validity"), "acceptance.revalidate": profile.at("revalidate")}
    found["acceptance.after"] = profile.at("after")
    found |= {f"acceptance.after.{done}": profile.at("after", done) for done in profile.spec.after}
    for at, phase in enumerate(profile.spec.phases):
        found[f"acceptance.phases.{at}"] = profile.at("phases", at)
        for number, test in enumerate(phase.tests):
            path, steps = f"acceptance.phases.{at}.tests.{number}", ("phases", at, "tests", number)
            found[path] = found[f"gate.tests.{test.name}"] = profile.at(*steps)
            found |= {f"{path}.{field}": profile.at(*steps, key) for field, key in _TEST.items()}
            found |= {f"{path}.args.{name}": profile.at(*steps, "args", name) for name in test.args}
            found |= {
                f"{path}.thresholds.{bar}": profile.at(*steps, "thresholds", bar) for bar in range(len(test.thresholds))
            }
    return found
