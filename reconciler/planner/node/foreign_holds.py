"""Tell from a node object that somebody else maintains the node at present. It is waited for, and never touched.

NVIDIA's operators keep the state of an upgrade of theirs in labels (k8s-operator-libs, pkg/upgrade/consts.go); those of
medik8s, and KubeVirt's before them, taint what they drain or remediate. Both cordon by themselves. The objects by which
they are asked to (model/maintenance.py) hold a node from the beginning. Of Slurm, its driver tells by a taint of its
own what holds a node: states that are not ours to end, and reasons that people gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from reconciler.model.observed import HIDDEN, Answered, Member, Observed
from reconciler.model.slurm import HOLD

_NVIDIA: Final = re.compile(r"nvidia\.com/([a-z0-9]+)-driver-upgrade-state")
# Annotations that the same operators keep while an upgrade is under way.
_NVIDIA_UNDER_WAY: Final = re.compile(
    r"nvidia\.com/([a-z0-9]+)-driver-upgrade\.(node-initial-state\.unschedulable|driver-wait-for-safe-load)"
)
_NO_UPGRADE: Final = ("", "upgrade-done", HIDDEN)
# As k8s-mig-manager sets it (scripts of NVIDIA/mig-parted, deployments/container); then it is success or failed.
_MIG: Final = "nvidia.com/mig.config.state"
_MIG_AT_WORK: Final = ("pending", "rebooting")
_KUBEVIRT: Final = "kubevirt.io/drain"


def foreign_hold(observed: Observed) -> str:
    """Return who maintains the node, and by which sign; "" where nobody is known to."""
    member = observed.member.value if isinstance(observed.member, Answered) else None
    return "" if member is None else hold_of(member, answers=isinstance(observed.host, Answered))


def hold_of(member: Member, *, answers: bool = True) -> str:
    """Return the same from a node object. `answers`: whether the host does: on one that hangs, no manager works."""
    return "; ".join(_signs(member, answers))


def _signs(member: Member, answers: bool) -> Iterator[str]:
    for one in member.requests:
        said = [word for word in (one.name, one.state) if word and word != HIDDEN]
        yield f"{one.who} maintains it ({': '.join([' '.join([one.kind, *said[:1]]), *said[1:]])})"
    for key, state in member.labels.items():
        if (found := _NVIDIA.fullmatch(key)) and state not in _NO_UPGRADE:
            yield f"NVIDIA's operator upgrades the {found[1]} driver ({key}={state})"
        elif key == _MIG and state in _MIG_AT_WORK and answers:
            yield f"NVIDIA's MIG manager works on it ({key}={state})"
    for key, state in member.annotations.items():
        if (found := _NVIDIA_UNDER_WAY.fullmatch(key)) and state != HIDDEN:
            yield f"NVIDIA's operator upgrades the {found[1]} driver (annotation {key})"
    for taint in member.taints:
        if taint.key == HOLD:
            yield f"Slurm: {member.reasons.get(HOLD) or 'somebody keeps it out'}"
        if taint.key == _KUBEVIRT or taint.key.startswith("medik8s.io/"):
            yield f"{'KubeVirt' if taint.key == _KUBEVIRT else 'medik8s'} maintains it (taint {taint.key})"
