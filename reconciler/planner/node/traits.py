"""The facts of a node that decide which variants of the actions it has, and what a variant adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.gate.after import tests_after_bios, tests_after_firmware
from reconciler.gate.attestation.expected import must_prove
from reconciler.model.desired import Desired
from reconciler.model.repairs import RepairPhase
from reconciler.model.vocab import Activation
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import firmware_ok

if TYPE_CHECKING:
    from reconciler.planner.node.decommission import Leaving


def operators_of(desired: Desired) -> tuple[str, ...]:
    """Return the condition that operators are done with a node, where its admission waits for them."""
    membership = desired.profile.membership
    return (c.OPERATORS,) if membership is not None and membership.waits_for_operators else ()


@dataclass(frozen=True, slots=True)
class NodeTraits:
    """Facts of a node that decide which variants of the actions it has.

    `clustered`: the node belongs to a cluster. `registered`: its node object exists now. `busy`: pods are bound to it,
    which start again as soon as it has power. `cordoned`: somebody else cordoned it, so labels attract no work.
    `stuck`: its kubelet is stopped, so no pod on it ends. `at_stake`: pods on it lose something for good when they are
    evicted, and the drain policy forbids that. `leaving`: what it has to lose, of a node that is decommissioned.
    `in_place`: it can write an image itself, into the slot that does not run. `repair`: how far a person's repair has
    come, which is under way. `k3s_stopped`: K3s does not run on its host, so that no pod on it ends, or is disturbed.
    `rotates`: the password of its BMC is to be changed now.
    """

    desired: Desired
    clustered: bool
    registered: bool
    busy: bool
    cordoned: bool
    stuck: bool = False
    at_stake: bool = False
    leaving: Leaving | None = None
    in_place: bool = False
    repair: RepairPhase | None = None
    k3s_stopped: bool = False
    rotates: bool = False

    @property
    def mig(self) -> bool:
        return self.desired.profile.gpu is not None and self.desired.profile.gpu.mig is not None

    @property
    def lost_by_boot(self) -> tuple[str, ...]:
        """Quotes of the TPM and signatures of components prove one boot, MIG ends with it, and operators begin anew."""
        measured = (c.TRUST,) if must_prove(self.desired.profile) else ()
        return (*measured, *self.operators, *((c.GPU,) if self.mig else ()))

    @property
    def lost_by_install(self) -> tuple[str, ...]:
        """The conditions that an installation ends: all that was on the root disk, and what one boot had proved."""
        member = (c.MEMBER,) if self.desired.profile.membership else ()
        return (*member, *self.k3s, *self.restored, c.TRUST, c.GATE, *self.lost_by_boot)

    @property
    def operators(self) -> tuple[str, ...]:
        """The condition that operators are done with the node, where its admission waits for them."""
        return operators_of(self.desired)

    @property
    def asked_by_bmc(self) -> tuple[str, ...]:
        """The condition that the BMC is this node's, where components are asked through it."""
        platform = self.desired.profile.measurements
        return (c.IDENTITY,) if platform is not None and platform.components else ()

    @property
    def k3s(self) -> tuple[str, ...]:
        """The conditions of K3s, on a node of a cluster that the reconciler installs."""
        return (c.K3S_RELEASE, c.K3S) if self.desired.profile.k3s is not None else ()

    @property
    def saved(self) -> tuple[str, ...]:
        """The condition that the node's own data is saved, where the spec declares some."""
        return (c.BACKED_UP,) if self.desired.profile.backup is not None else ()

    @property
    def restored(self) -> tuple[str, ...]:
        return (c.RESTORED,) if self.desired.profile.backup is not None else ()

    @property
    def served_without(self) -> tuple[str, ...]:
        """The condition that its serving group serves without the node, where it serves in one."""
        return (c.SERVING_DEGRADED,) if self.desired.serving is not None else ()

    @property
    def before_k3s(self) -> tuple[str, ...]:
        """The conditions for what takes the node away: a restart of a server, and another release of K3s."""
        return () if self.k3s_stopped else (c.QUIESCED, *self.mark_if_registered)

    def gate_after_firmware(self, component: str) -> tuple[str, ...]:
        """The gate, if new firmware of this component costs tests."""
        acceptance = self.desired.profile.acceptance
        return (c.GATE,) if acceptance is None or tests_after_firmware(acceptance, component) else ()

    @property
    def gate_after_bios(self) -> tuple[str, ...]:
        acceptance = self.desired.profile.acceptance
        return (c.GATE,) if acceptance is None or tests_after_bios(acceptance) else ()

    def gate_by_profile(self, action: str) -> tuple[str, ...]:
        """The gate, if the profile itself says that this action costs tests."""
        acceptance = self.desired.profile.acceptance
        return (c.GATE,) if acceptance is not None and acceptance.after.get(action) else ()

    @property
    def mark(self) -> tuple[str, ...]:
        """The condition that a node of a cluster is marked; empty for a node without a cluster."""
        return (c.MARKED,) if self.clustered else ()

    @property
    def mark_if_registered(self) -> tuple[str, ...]:
        """The same, and empty while no node object exists that could carry the mark."""
        return self.mark if self.registered else ()

    @property
    def kubelet(self) -> tuple[str, ...]:
        return (c.KUBELET,) if self.stuck else ()

    @property
    def firmware(self) -> tuple[str, ...]:
        return tuple(firmware_ok(item.component) for item in self.desired.profile.firmware)


@dataclass(frozen=True, slots=True)
class Variant:
    """Additions to a spec for one kind of node, or one target: the conditions and seconds are added to the spec's."""

    target: str = ""
    requires: tuple[str, ...] = ()
    achieves: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    seconds: float = 0.0
    only_out_of_service: bool = False  # overrides `harmless` of the spec


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged condition: which activation consumes it, which condition then becomes true, and which become false."""

    condition: str
    activation: Activation
    achieves: str
    breaks: tuple[str, ...] = ()
