"""The drift kinds of scenarios: ways in which a lab machine can differ from its spec at the start.

A drift changes the draft of one node before its machine starts. It tells whether it applies: without labels in the
spec, for instance, none can be missing.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reconciler.lab.hardware import bios
from reconciler.lab.hardware.faults import FaultValue
from reconciler.lab.hardware.host_side import mig_profiles
from reconciler.lab.hardware.state import DiskImage, MachineState
from reconciler.lab.k3s import remove
from reconciler.model.desired import Desired
from reconciler.model.observed import Taint

SYSCTL_FILE = "/etc/sysctl.d/90-reconciler.conf"


@dataclass(slots=True)
class Draft:
    """The initial state of a node. `disk`: the image on its root disk; None = blank."""

    desired: Desired
    state: MachineState
    registry: bios.Registry
    disk: DiskImage | None
    root_disk: str
    labels: dict[str, str]
    taints: list[Taint]
    power: str = "on"
    member: bool = True
    cordoned: bool = False
    rng: random.Random = field(default_factory=random.Random)

    def put_disk(self) -> None:
        """Write the image to the root disk and boot from there."""
        if self.disk is None:
            return
        persisted = "".join(f"{key} = {value}\n" for key, value in sorted(self.disk.sysctls.items()))
        if persisted:
            self.disk.files[SYSCTL_FILE] = persisted
        self.state.disks[self.root_disk] = self.disk
        self.state.boot_disk = self.root_disk


Change = Callable[[Draft, Mapping[str, FaultValue]], bool]


@dataclass(frozen=True, slots=True)
class DriftKind:
    """A kind of drift. `apply` returns False when the spec has nothing that it could differ from."""

    description: str
    apply: Change
    parameters: Mapping[str, FaultValue] = field(default_factory=dict)


def older(version: str) -> str:
    """Return an older version: the last number that is not zero goes down by one."""
    numbers = list(re.finditer(r"\d+", version))
    for number in reversed(numbers):
        if int(number[0]):
            down = str(int(number[0]) - 1).zfill(len(number[0]))
            return version[: number.start()] + down + version[number.end() :]
    return f"{version}~rc1"


def _old_image(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    disk = draft.disk
    if draft.desired.profile.image is None or disk is None:
        return False
    disk.version, disk.sha256 = older(disk.version), disk.sha256[::-1]
    disk.kernel, disk.driver = older(disk.kernel), older(disk.driver)
    return True


def _no_slots(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    if draft.disk is None or not draft.disk.slot:
        return False
    draft.disk.slot, draft.disk.layout = "", {}
    return True


def _no_zstd(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    if draft.disk is None or not draft.disk.slot:
        return False
    draft.disk.lacks = ["zstd"]
    return True


def _bios_off(draft: Draft, parameters: Mapping[str, FaultValue]) -> bool:
    """Give these managed attributes (or `count` of all) another value that this BIOS accepts."""
    managed = sorted(draft.desired.profile.bios)
    chosen = [name for name in str(parameters["attributes"]).split(",") if name in managed]
    chosen = chosen or draft.rng.sample(managed, min(int(parameters["count"]), len(managed)))
    for name in chosen:
        current, attribute = draft.state.bios[name], draft.registry[name]
        if attribute.values:
            draft.state.bios[name] = next(value for value in attribute.values if value != current)
        else:
            draft.state.bios[name] = not current if isinstance(current, bool) else _other(current)
    return bool(chosen)


def _other(value: str | int) -> str | int:
    return value + 1 if isinstance(value, int) else f"{value}-was"


def _old_firmware(draft: Draft, parameters: Mapping[str, FaultValue]) -> bool:
    wanted = str(parameters["component"])
    found = [item for item in draft.desired.profile.firmware if wanted in ("*", item.component) and item.url]
    for item in found:
        draft.state.firmware[item.inventory_id].version = older(item.version)
    return bool(found)


def _wrong_mig(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    """Turn MIG on where it should be off, and off where it should be on."""
    gpu, gpus = draft.desired.profile.gpu, draft.state.gpus
    if gpu is None or not gpus:
        return False
    for board in gpus:
        board.mig_enabled = board.mig_pending = gpu.mig is None
        smallest = list(mig_profiles(board))[-1]
        board.mig_instances = [(smallest, f"MIG-{board.uuid[4:-2]}0{n}") for n in range(2)] if gpu.mig is None else []
    return True


def _powered_off(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    draft.power = "off"
    return True


def _missing_label(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    membership = draft.desired.profile.membership
    if membership is None or not membership.labels:
        return False
    draft.labels.pop(draft.rng.choice(sorted(membership.labels)))
    return True


def _sysctl_off(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    managed = sorted(draft.desired.profile.host.sysctls)
    if not managed or draft.disk is None:
        return False
    del draft.disk.sysctls[draft.rng.choice(managed)]
    return True


def _service_stopped(draft: Draft, parameters: Mapping[str, FaultValue]) -> bool:
    """Stop a service that should run. Without a name, any but the kubelet, so that the node stays in its cluster."""
    wanted = str(parameters["name"])
    running = [name for name, state in draft.desired.profile.host.services.items() if state == "running"]
    choice = [name for name in running if name == wanted or (not wanted and name != "kubelet")]
    if not choice or draft.disk is None:
        return False
    draft.disk.services[draft.rng.choice(sorted(choice))] = False
    return True


def _wrong_hostname(draft: Draft, parameters: Mapping[str, FaultValue]) -> bool:
    if draft.desired.hostname is None or draft.disk is None:
        return False
    draft.disk.hostname = str(parameters["name"])
    return True


def _wrong_boot_order(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    if not draft.desired.profile.boot_order or len(draft.state.boot_order) < 2:
        return False
    draft.state.boot_order = draft.state.boot_order[1:] + draft.state.boot_order[:1]
    return True


def _secure_boot_off(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    if draft.desired.profile.secure_boot is None:
        return False
    draft.state.secure_boot = not draft.desired.profile.secure_boot
    return True


def _not_a_member(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    if draft.desired.profile.membership is None or draft.disk is None:
        return False
    draft.disk.services["kubelet"] = False
    remove(draft.disk)
    draft.member = False
    return True


def _foreign_cordon(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    draft.cordoned = draft.desired.profile.membership is not None
    return draft.cordoned


def _blank(draft: Draft, _: Mapping[str, FaultValue]) -> bool:
    draft.disk = None
    draft.power = "off"
    draft.member = False
    draft.state.bios = bios.defaults(draft.registry)
    for gpu in draft.state.gpus:
        gpu.mig_enabled = gpu.mig_pending = False
        gpu.mig_instances = []
    return True


DRIFTS: Mapping[str, DriftKind] = {
    "old_image": DriftKind("an older version of the image, with its kernel and driver", _old_image),
    "no_slots": DriftKind(
        "a root disk without the layout of the image: an installer writes it only if it has to keep nothing", _no_slots
    ),
    "no_zstd": DriftKind("the host lacks zstd, so that only an installer can write it another image", _no_zstd),
    "bios_off": DriftKind("managed BIOS attributes have other values", _bios_off, {"count": 2, "attributes": ""}),
    "old_firmware": DriftKind(
        'the version before of a firmware component ("*": of all)', _old_firmware, {"component": "*"}
    ),
    "wrong_mig": DriftKind("MIG mode and layout other than the persona's", _wrong_mig),
    "powered_off": DriftKind("the machine is off", _powered_off),
    "missing_label": DriftKind("the cluster node lacks a label", _missing_label),
    "sysctl_off": DriftKind("a sysctl has the kernel's default", _sysctl_off),
    "service_stopped": DriftKind("a service is stopped and disabled", _service_stopped, {"name": ""}),
    "wrong_hostname": DriftKind("the host has another name", _wrong_hostname, {"name": "localhost"}),
    "wrong_boot_order": DriftKind("the boot order is another", _wrong_boot_order),
    "secure_boot_off": DriftKind("Secure Boot is not as specified", _secure_boot_off),
    "not_a_member": DriftKind("the host runs and has not joined its cluster", _not_a_member),
    "foreign_cordon": DriftKind("somebody has cordoned the node", _foreign_cordon),
    "blank": DriftKind("as it comes from the factory: off, no image, default BIOS, no member", _blank),
}


def parse_drift(kind: str, given: Mapping[str, FaultValue]) -> dict[str, FaultValue]:
    """Return the complete parameters of a drift. Raise ValueError for an unknown or mistyped one."""
    known = DRIFTS.get(kind)
    if known is None:
        close = difflib.get_close_matches(kind, DRIFTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(DRIFTS)}"
        raise ValueError(f"unknown drift {kind!r}; {hint}")
    for name, value in given.items():
        if name not in known.parameters or type(value) is not type(known.parameters[name]):
            shapes = ", ".join(f"{key}: {type(default).__name__}" for key, default in known.parameters.items())
            raise ValueError(f"drift {kind!r} takes {shapes or 'no parameters'}, not {name}: {value!r}")
    return {**known.parameters, **given}
