"""The action catalogue: one table, expanded for a node.

A row says what an action needs, what it brings about and what it undoes. `stages` leaves a condition that the next
action of its activation class consumes, so that firmware, BIOS and image share one drain and, where activations and
the profile's order allow, one reboot. `seconds` is a fixed cost: it decides between plans; estimates are told apart.

Adding a capability is adding a row here and a function of the same name in converge/actions.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.desired import Desired
from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import firmware_ok, firmware_staged

ACTIONS = (
    "mark", "drain", "set_bios", "set_boot", "update_firmware", "reset_bmc", "soft_restart", "power_cycle", "power_on",
    "reimage", "configure_host", "join", "check_trust", "run_gate", "set_gpu_mode", "set_labels", "admit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Staged:
    """What comes true when a staged condition is activated, and what that undoes."""

    condition: str
    activation: Activation
    achieves: str
    breaks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """`activates`: classes of staged settings that it consumes. `harmless`: may run on a node in service."""

    name: str
    concern: Concern
    requires: tuple[str, ...]
    achieves: tuple[str, ...]
    breaks: tuple[str, ...]
    disruption: Disruption
    seconds: float
    target: str = ""
    activates: frozenset[Activation] = frozenset()
    forbids: tuple[str, ...] = ()
    drains: int = 0
    reboots: int = 0
    harmless: bool = False

    @property
    def id(self) -> str:
        return f"{self.name}:{self.target}" if self.target else self.name


_BOOT = frozenset({Activation.REBOOT})
_POWER = frozenset({Activation.REBOOT, Activation.POWER_CYCLE})


@dataclass(frozen=True, slots=True)
class Catalogue:
    rows: tuple[Row, ...]
    staged: tuple[Staged, ...]


def catalogue(
    desired: Desired, *, clustered: bool, registered: bool, busy: bool, cordoned: bool, stuck: bool = False
) -> Catalogue:
    """The rows that make sense for this node.

    `clustered`: the node belongs to a cluster; `registered`: its node object exists now; `busy`: pods are bound to it,
    which start again as soon as it has power; `cordoned`: by somebody else, so that labels attract no work; `stuck`:
    its kubelet is stopped, so that no pod on it ends.
    """
    mig = desired.profile.gpu is not None and desired.profile.gpu.mig is not None
    lost_by_boot = (c.GPU,) if mig else ()
    marked = (c.MARKED,) if clustered else ()
    rows: list[Row] = []
    if clustered:
        rows.append(Row("mark", Concern.CLUSTER, (c.REGISTERED,), (c.MARKED,), (c.IN_SERVICE,), Disruption.NONE, 5))
    kubelet = (c.KUBELET,) if stuck else ()
    rows.append(
        Row(
            "configure_host", Concern.HOST, (c.HOST_UP, c.IMAGE), (c.HOST, *kubelet), (), Disruption.RESTART, 20,
            harmless=True,
        )
    )  # fmt: skip
    if stuck:
        # Alone, and whatever image runs: the drain for another image can't end without it.
        rows.append(
            Row(
                "configure_host", Concern.HOST, (c.HOST_UP,), kubelet, (), Disruption.RESTART, 20, target="kubelet",
                forbids=kubelet,
            )
        )  # fmt: skip
    rows.append(
        Row(
            "drain", Concern.CLUSTER, (*marked, *kubelet), (c.QUIESCED,), (), Disruption.DRAIN, 300, drains=1,
            forbids=(c.QUIESCED,),
        )
    )  # fmt: skip
    rows += _settings_rows()
    rows += _firmware_rows(desired)
    rows += _power_rows(marked if registered else (), lost_by_boot, busy)
    rows += _image_and_host_rows(desired, lost_by_boot)
    rows += _proof_rows(desired, marked if registered else ())
    rows += _gpu_rows(desired, mig)
    if clustered:
        rows += _service_rows(desired, cordoned)
    return Catalogue(tuple(rows), _staged(desired))


def _settings_rows() -> list[Row]:
    """Staged by the BMC; they need no operating system (pitfall D9)."""
    needs = (c.IDENTITY, c.QUIESCED)
    return [
        Row(
            "set_bios", Concern.BIOS, needs, (c.BIOS_STAGED,), (), Disruption.NONE, 30, forbids=(c.BIOS_STAGED, c.BIOS)
        ),
        Row(
            "set_boot", Concern.BOOT, needs, (c.BOOT_STAGED,), (), Disruption.NONE, 30, forbids=(c.BOOT_STAGED, c.BOOT)
        ),
    ]


def _firmware_rows(desired: Desired) -> list[Row]:
    rows = []
    for item in desired.profile.firmware:
        if item.url is None:
            continue  # nothing to flash from: the drift is reported, and the plan says that no action removes it
        earlier = tuple(firmware_ok(other.component) for other in desired.profile.firmware if other.stage < item.stage)
        done, staged = firmware_ok(item.component), firmware_staged(item.component)
        immediate = item.activation is Activation.IMMEDIATE
        rows.append(
            Row(
                "update_firmware",
                Concern.FIRMWARE,
                (c.IDENTITY, c.QUIESCED, *earlier),
                (done,) if immediate else (staged,),
                (c.GATE,) if immediate else (),
                Disruption.FIRMWARE,
                item.minutes * 60 + item.settle_s,
                target=item.component,
                forbids=(done, staged),
            )
        )
    return rows


def _staged(desired: Desired) -> tuple[Staged, ...]:
    """What waits for an activation. New firmware or settings void a certificate; BIOS firmware resets its settings."""
    rows = [
        Staged(c.BIOS_STAGED, Activation.REBOOT, c.BIOS, (c.GATE,)),
        Staged(c.BOOT_STAGED, Activation.REBOOT, c.BOOT),
    ]
    for item in desired.profile.firmware:
        breaks = (c.BIOS, c.GATE) if item.component == "bios" and desired.profile.bios else (c.GATE,)
        if item.activation is not Activation.IMMEDIATE:
            rows.append(Staged(firmware_staged(item.component), item.activation, firmware_ok(item.component), breaks))
    return tuple(rows)


def _power_rows(marked: tuple[str, ...], lost_by_boot: tuple[str, ...], busy: bool) -> list[Row]:
    return [
        Row(
            "reset_bmc", Concern.FIRMWARE, (c.IDENTITY, c.QUIESCED), (), (), Disruption.RESTART, 180,
            activates=frozenset({Activation.BMC_RESET}),
        ),
        Row(
            "soft_restart", Concern.HEALTH, (c.HOST_UP, c.POWER_ON, c.QUIESCED), (), lost_by_boot, Disruption.REBOOT,
            420, activates=_BOOT, reboots=1,
        ),
        Row(
            "power_cycle", Concern.HEALTH, (c.IDENTITY, c.POWER_ON, c.QUIESCED), (c.HOST_UP,), lost_by_boot,
            Disruption.POWER_CYCLE, 480, activates=_POWER, reboots=1,
        ),
        # A node that is off is out of service. It must be marked first, or it would serve as soon as it is up.
        Row(
            "power_on", Concern.HEALTH, (c.IDENTITY, *marked), (c.POWER_ON, c.HOST_UP),
            (*lost_by_boot, *((c.QUIESCED,) if busy else ())), Disruption.NONE, 420,
            forbids=(c.POWER_ON,), activates=_POWER, reboots=1,
        ),
    ]  # fmt: skip


def _image_and_host_rows(desired: Desired, lost_by_boot: tuple[str, ...]) -> list[Row]:
    rows = []
    if desired.profile.image is not None:
        rows.append(
            Row(
                "reimage",
                Concern.IMAGE,
                (c.IDENTITY, c.SIGNATURE, c.QUIESCED),
                (c.IMAGE, c.POWER_ON, c.HOST_UP),
                (c.HOST, *((c.MEMBER,) if desired.profile.membership else ()), c.TRUST, c.GATE, *lost_by_boot),
                Disruption.REIMAGE,
                1500,
                activates=_POWER,
                reboots=1,
                forbids=(c.IMAGE,),  # wiping is no way to restart a machine, nor to bring firmware in
            )
        )
    if desired.profile.membership is not None:
        rows.append(
            Row(
                "join",
                Concern.CLUSTER,
                (c.HOST_UP, c.IMAGE, c.HOST),
                (c.REGISTERED, c.MEMBER),
                (),
                Disruption.NONE,
                60,
                harmless=True,
                forbids=(c.MEMBER,),
            )
        )
    return rows


def _proof_rows(desired: Desired, marked: tuple[str, ...]) -> list[Row]:
    firmware = tuple(firmware_ok(item.component) for item in desired.profile.firmware)
    rows = [
        Row(
            "check_trust", Concern.TRUST, (c.HOST_UP, c.IMAGE, c.SIGNATURE, c.BOOT, *firmware), (c.TRUST,), (),
            Disruption.NONE, 10, harmless=True,
        )
    ]  # fmt: skip
    if desired.profile.acceptance is not None:
        # Attestation comes before any workload; diagnostics run on an idle node with MIG off (acceptance section 10).
        needs = (
            c.HOST_UP,
            c.IMAGE,
            c.HOST,
            c.BIOS,
            c.BOOT,
            *firmware,
            c.TRUST,
            c.GPU_PLAIN,
            c.QUIESCED,
            c.HEALTHY,
            c.HARDWARE,
        )
        rows.append(
            Row("run_gate", Concern.GATE, (*needs, *marked), (c.GATE,), (), Disruption.NONE, 1800, forbids=(c.GATE,))
        )
    return rows


def _gpu_rows(desired: Desired, mig: bool) -> list[Row]:
    needs = (c.HOST_UP, c.IMAGE, c.QUIESCED)
    if desired.profile.gpu is None:
        return []
    if not mig:
        return [Row("set_gpu_mode", Concern.GPU, needs, (c.GPU, c.GPU_PLAIN), (), Disruption.DRAIN, 60)]
    return [
        Row(
            "set_gpu_mode",
            Concern.GPU,
            needs,
            (c.GPU_PLAIN,),
            (c.GPU,),
            Disruption.DRAIN,
            60,
            target="off",
            forbids=(c.GPU_PLAIN,),
        ),
        Row("set_gpu_mode", Concern.GPU, (*needs, c.GATE), (c.GPU,), (c.GPU_PLAIN,), Disruption.DRAIN, 60),
    ]


def admission_requires(desired: Desired) -> tuple[str, ...]:
    """What must be known and true before a node may serve (invariant 6)."""
    firmware = tuple(firmware_ok(item.component) for item in desired.profile.firmware)
    return (
        c.IDENTITY, c.POWER_ON, c.HOST_UP, c.IMAGE, *firmware, c.BIOS, c.BOOT, c.HOST, c.GPU, c.HARDWARE,
        c.HEALTHY, c.MEMBER, c.LABELS, c.TRUST, c.GATE,
    )  # fmt: skip


def _service_rows(desired: Desired, cordoned: bool) -> list[Row]:
    serving = () if cordoned else (c.IN_SERVICE,)
    return [
        Row(
            "set_labels", Concern.CLUSTER, (c.REGISTERED, *serving), (c.LABELS,), (), Disruption.NONE, 5,
            harmless=True, forbids=(c.LABELS,),
        ),
        # Out of service, labels that attract work come last: after gate and GPU mode, just before admission.
        Row(
            "set_labels", Concern.CLUSTER, (c.REGISTERED, c.MARKED, c.GATE, c.GPU), (c.LABELS,), (), Disruption.NONE, 5,
            forbids=(c.LABELS,),
        ),
        Row(
            "admit", Concern.CLUSTER, (c.MARKED, *admission_requires(desired)), (c.IN_SERVICE,), (c.MARKED, c.QUIESCED),
            Disruption.NONE, 5, forbids=(c.IN_SERVICE,),
        ),
    ]  # fmt: skip
