"""Specify the actions: all that the reconciler knows of each of them, in one table.

`ACTIONS` is the only list of actions. Everything else that differs from action to action (what the storm brake stops,
what an approval covers, how a rehearsal makes it fail) is derived from it. To add an action, add its `ActionSpec` here
and the function of the same name in converge/actions.

The order of the table breaks ties between plans of equal cost. `seconds` decides between plans: it is fixed, so that
the same fleet is planned the same way every day, and estimates are told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from reconciler.health.table import Remedy, table_of
from reconciler.model.after import GPU_RESET, REBOOT
from reconciler.model.desired import Desired
from reconciler.model.observed import RedfishInventory
from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node import conditions as c
from reconciler.planner.node import possible
from reconciler.planner.node.action_spec import ActionSpec as ActionSpec
from reconciler.planner.node.admission import admission_requires as admission_requires
from reconciler.planner.node.admission import admit, await_operators, reserve, set_labels
from reconciler.planner.node.backups import back_up, restore_backup
from reconciler.planner.node.firmware_variants import staged_firmware, update_firmware
from reconciler.planner.node.k3s_variants import configure_k3s, install_k3s
from reconciler.planner.node.leaving_variants import (
    clear_tpm,
    erase,
    power_off,
    remove_node,
    revoke,
    tombstone,
)
from reconciler.planner.node.person_variants import await_reimage, hold_for_reimage
from reconciler.planner.node.possible import IN_PLACE
from reconciler.planner.node.power_variants import ac_cycle, boot, gpu_reset, power_on
from reconciler.planner.node.repair_variants import accept_parts, set_indicator, shut_down
from reconciler.planner.node.serving_variants import degrade_serving, in_a_group, sync_serving
from reconciler.planner.node.traits import NodeTraits as NodeTraits
from reconciler.planner.node.traits import Staged as Staged
from reconciler.planner.node.traits import Variant as Variant

# --- variants and staged conditions ---


def _where_due(node: NodeTraits) -> Iterable[Variant]:
    if node.rotates:
        yield Variant()


def _in_a_cluster(node: NodeTraits) -> Iterable[Variant]:
    if node.clustered:
        yield Variant()


def _configure_host(node: NodeTraits) -> Iterable[Variant]:
    yield Variant(requires=(c.IMAGE,), achieves=(c.HOST, *node.kubelet))
    if node.stuck:
        # Alone, and whatever image runs: the drain for another image can't end without it.
        yield Variant("kubelet", achieves=node.kubelet, forbids=node.kubelet, only_out_of_service=True)


def _drain(node: NodeTraits) -> Iterable[Variant]:
    if not node.at_stake:
        # In a cluster, the mark has ended its service already.
        yield Variant(requires=(*node.mark, *node.kubelet), breaks=() if node.clustered else (c.IN_SERVICE,))


def _restart_service(node: NodeTraits) -> Iterable[Variant]:
    """A restart of the kubelet disturbs no pod, and a drain can't end while it hangs; any other may end their work."""
    for unit in table_of(node.desired.profile).services():
        yield Variant(unit, requires=() if unit == KUBELET else (c.QUIESCED,))


def _reimage(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.profile.image is not None and not node.desired.by_person:
        breaks = node.lost_by_install
        if node.in_place:
            yield Variant(IN_PLACE, requires=(c.POWER_ON, c.HOST_UP, *node.saved), breaks=breaks)
        yield Variant(requires=node.saved, breaks=breaks, seconds=_INSTALLER_S)


def _join(node: NodeTraits) -> Iterable[Variant]:
    if node.desired.profile.membership is not None:
        yield Variant(requires=node.k3s)


def _check_trust(node: NodeTraits) -> Iterable[Variant]:
    yield Variant(requires=(*node.firmware, *node.asked_by_bmc))


def _run_gate(node: NodeTraits) -> Iterable[Variant]:
    """Attestation comes before any workload; diagnostics run on an idle node with MIG off (acceptance section 10)."""
    if node.desired.profile.acceptance is not None:
        needs = (*node.firmware, c.TRUST, c.GPU_PLAIN, c.QUIESCED, c.HEALTHY, c.HARDWARE)
        other = node.desired.other_tests
        yield Variant("" if other is None else other.name, requires=(*needs, *node.restored, *node.mark_if_registered))


def _set_gpu_mode(node: NodeTraits) -> Iterable[Variant]:
    if node.mig:
        lost = node.operators  # they see other devices then
        yield Variant("off", achieves=(c.GPU_PLAIN,), breaks=(c.GPU, *lost), forbids=(c.GPU_PLAIN,))
        yield Variant(requires=(c.GATE,), achieves=(c.GPU,), breaks=(c.GPU_PLAIN, *lost))
    elif node.desired.profile.gpu is not None:
        yield Variant(achieves=(c.GPU, c.GPU_PLAIN), breaks=node.operators)


KUBELET: Final = "kubelet"
_INSTALLER_S = 700.0  # two POSTs and the boot of an installer more than in place
_BOOT = frozenset({Activation.REBOOT})
_MAINS = frozenset({Activation.REBOOT, Activation.POWER_CYCLE, Activation.BMC_RESET, Activation.AC_CYCLE})
_POWER = frozenset({Activation.REBOOT, Activation.POWER_CYCLE})

# A boot covers `join`: the host answers before its kubelet is Ready. The other actions that one covers are what remains
# to do when a run died in the middle of it.
_SPECS = (
    ActionSpec(
        name="sync_serving", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=600,
        requires=(c.HOST_UP,), achieves=(c.SERVING_SYNCED,), forbids=(c.SERVING_SYNCED,), variants=sync_serving,
        on_others=True, fault="ssh_refused",
    ),
    # First, so that nothing is done to a node whose group does not serve without it. An ill node is marked before.
    ActionSpec(
        name="degrade_serving", concern=Concern.CLUSTER, disruption=Disruption.SERVICE_RESTART, seconds=120,
        achieves=(c.SERVING_DEGRADED,), breaks=(c.SERVING_RESTORED,), forbids=(c.SERVING_DEGRADED,),
        variants=degrade_serving, takes_out=True, on_others=True,
    ),
    ActionSpec(
        name="mark", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=5,
        requires=(c.REGISTERED,), achieves=(c.MARKED,), breaks=(c.IN_SERVICE,), variants=_in_a_cluster,
        marks=True, takes_out=True, fault="node_conflicts",
    ),
    ActionSpec(
        name="configure_host", concern=Concern.HOST, disruption=Disruption.SERVICE_RESTART, seconds=20,
        requires=(c.HOST_UP,), variants=_configure_host, marks=True, harmless=True, fault="ssh_refused",
    ),
    # It requires nothing of a host that can't be read since its certificate has expired.
    ActionSpec(
        name="renew_host_certificate", concern=Concern.TRUST, disruption=Disruption.NONE, seconds=15,
        achieves=(c.HOST_CERTIFICATE,), forbids=(c.HOST_CERTIFICATE,), harmless=True, fault="ssh_refused",
    ),
    ActionSpec(
        name="drain", concern=Concern.CLUSTER, disruption=Disruption.DRAIN, seconds=300,
        achieves=(c.QUIESCED,), forbids=(c.QUIESCED,), variants=_drain,
        drains=True, takes_out=True, retriable=False, fault="pdb_never_yields",
    ),
    # The BMC stages settings without an operating system (pitfall D9). New settings void the tests that depend on them.
    ActionSpec(
        name="set_bios", concern=Concern.BIOS, disruption=Disruption.NONE, seconds=30,
        requires=(c.IDENTITY, c.QUIESCED), achieves=(c.BIOS_STAGED,), forbids=(c.BIOS_STAGED, c.BIOS),
        stages=lambda node: [Staged(c.BIOS_STAGED, Activation.REBOOT, c.BIOS, node.gate_after_bios)],
        fault="bios_write_ignored", refusals=possible.bios,
    ),
    ActionSpec(
        name="set_boot", concern=Concern.BOOT, disruption=Disruption.NONE, seconds=30,
        requires=(c.IDENTITY, c.QUIESCED), achieves=(c.BOOT_STAGED,), forbids=(c.BOOT_STAGED, c.BOOT),
        stages=lambda _: [Staged(c.BOOT_STAGED, Activation.REBOOT, c.BOOT)], fault="bmc_503",
        refusals=possible.boot,
    ),
    ActionSpec(
        name="update_firmware", concern=Concern.FIRMWARE, disruption=Disruption.FIRMWARE, seconds=0,
        requires=(c.IDENTITY, c.QUIESCED), variants=update_firmware, stages=staged_firmware,
        flashes=True, undoes=frozenset({"set_bios", "check_trust", "run_gate"}), fault="firmware_fails",
        refusals=possible.firmware,
    ),
    ActionSpec(
        name="reset_bmc", concern=Concern.FIRMWARE, disruption=Disruption.SERVICE_RESTART, seconds=180,
        requires=(c.IDENTITY, c.QUIESCED), activates=frozenset({Activation.BMC_RESET}), fault="bmc_503",
        refusals=possible.bmc_reset, may_heal=lambda _: False,
    ),
    # It requires nothing of the BMC, which answers nobody.
    ActionSpec(
        name="reset_bmc_from_host", concern=Concern.HEALTH, disruption=Disruption.NONE, seconds=180,
        requires=(c.HOST_UP,), achieves=(c.BMC_ANSWERS,), forbids=(c.BMC_ANSWERS,), harmless=True, fault="ssh_refused",
    ),
    # The host does not notice, whatever becomes of its BMC.
    ActionSpec(
        name="rotate_bmc_password", concern=Concern.TRUST, disruption=Disruption.NONE, seconds=30,
        requires=(c.IDENTITY,), achieves=(c.BMC_PASSWORD,), forbids=(c.BMC_PASSWORD,), harmless=True,
        variants=_where_due, fault="password_change", is_evidence=True,
    ),
    # Rungs alone: nothing else plans them, as they achieve nothing but what a treatment does.
    ActionSpec(
        name="restart_service", concern=Concern.HEALTH, disruption=Disruption.SERVICE_RESTART, seconds=30,
        requires=(c.HOST_UP,), variants=_restart_service, fault="ssh_refused", retests=REBOOT,
        may_heal=lambda cure: bool(cure.service), of_service=True,
    ),
    ActionSpec(
        name="gpu_reset", concern=Concern.HEALTH, disruption=Disruption.DRAIN, seconds=60,
        requires=(c.HOST_UP, c.QUIESCED), variants=gpu_reset, undoes=frozenset({"set_gpu_mode"}),
        fault="gpu_reset_fails", retests=GPU_RESET, may_heal=lambda cure: cure.resets,
        destroys_evidence=True,
    ),
    ActionSpec(
        name="soft_restart", concern=Concern.HEALTH, disruption=Disruption.REBOOT, seconds=420,
        requires=(c.HOST_UP, c.POWER_ON, c.QUIESCED), variants=boot, activates=_BOOT, boots=True, proved_by_boot=True,
        covers=frozenset({"join"}), undoes=frozenset({"set_gpu_mode"}), fault="post_hang",
        retests=REBOOT,
        destroys_evidence=True,
    ),
    ActionSpec(
        name="power_cycle", concern=Concern.HEALTH, disruption=Disruption.POWER_CYCLE, seconds=480,
        requires=(c.IDENTITY, c.POWER_ON, c.QUIESCED), achieves=(c.HOST_UP,), variants=boot,
        activates=_POWER, boots=True, proved_by_boot=True, refusals=possible.power,
        covers=frozenset({"soft_restart", "power_on", "join"}), undoes=frozenset({"set_gpu_mode"}), fault="post_hang",
        retests=REBOOT,
        destroys_evidence=True,
    ),
    # Of a node whose outlets the spec names. The BMC has to answer before, or nothing proves that they are its own.
    ActionSpec(
        name="ac_cycle", concern=Concern.HEALTH, disruption=Disruption.AC_CYCLE, seconds=900,
        requires=(c.IDENTITY, c.POWER_ON, c.QUIESCED), achieves=(c.HOST_UP,), variants=ac_cycle,
        activates=_MAINS, boots=True, proved_by_boot=True, refusals=possible.mains,
        covers=frozenset({"power_cycle", "soft_restart", "power_on", "reset_bmc", "join"}),
        undoes=frozenset({"set_gpu_mode"}), fault="outlets_elsewhere", retests=REBOOT,
        destroys_evidence=True,
    ),
    ActionSpec(
        name="power_on", concern=Concern.HEALTH, disruption=Disruption.NONE, seconds=420,
        requires=(c.IDENTITY,), achieves=(c.POWER_ON, c.HOST_UP), forbids=(c.POWER_ON,), variants=power_on,
        activates=_POWER, boots=True, refusals=possible.power,
        covers=frozenset({"join"}), undoes=frozenset({"set_gpu_mode"}), fault="post_hang",
        retests=REBOOT,
    ),
    ActionSpec(
        name="back_up", concern=Concern.IMAGE, disruption=Disruption.NONE, seconds=600,
        requires=(c.HOST_UP, c.QUIESCED), achieves=(c.BACKED_UP,), forbids=(c.BACKED_UP,), variants=back_up,
        fault="ssh_refused", is_evidence=True,
    ),
    # It forbids what it achieves: wiping is no way to restart a machine, nor to bring firmware in. Both ways write the
    # same image to the same disk, so approving one covers the other, which follows when it fails.
    ActionSpec(
        name="reimage", concern=Concern.IMAGE, disruption=Disruption.REIMAGE, seconds=800,
        requires=(c.IDENTITY, c.SIGNATURE, c.QUIESCED), achieves=(c.IMAGE, c.POWER_ON, c.HOST_UP), breaks=(c.HOST,),
        forbids=(c.IMAGE,), variants=_reimage, activates=_POWER, boots=True, installs=True, boots_installer=True,
        refusals=possible.image,
        covers=frozenset({"soft_restart", "power_on", "power_cycle", "join", "reimage"}),
        undoes=frozenset({
            "set_gpu_mode", "configure_host", "restore_backup", "install_k3s", "configure_k3s", "join", "check_trust",
            "run_gate",
        }),
        fault="installer_fails", may_heal=lambda cure: cure.remedy is Remedy.LADDER,
        destroys_evidence=True,
    ),
    # Of a node without a BMC. No action of ours gives it power, takes it, or writes its disk.
    ActionSpec(
        name="hold_for_reimage", concern=Concern.IMAGE, disruption=Disruption.NONE, seconds=5,
        requires=(c.HOST_UP, c.SIGNATURE, c.QUIESCED), achieves=(c.HELD,), forbids=(c.HELD, c.IMAGE),
        variants=hold_for_reimage, fault="ssh_refused",
    ),
    ActionSpec(
        name="await_reimage", concern=Concern.IMAGE, disruption=Disruption.REIMAGE, seconds=3600,
        requires=(c.HOST_UP, c.SIGNATURE, c.QUIESCED, c.HELD), achieves=(c.IMAGE,), breaks=(c.HOST,),
        forbids=(c.IMAGE,), variants=await_reimage, installs=True, by_person=True, fault="ssh_refused",
        undoes=frozenset({
            "set_gpu_mode", "configure_host", "restore_backup", "install_k3s", "configure_k3s", "join", "check_trust",
            "run_gate",
        }),
        may_heal=lambda _: False,
    ),
    ActionSpec(
        name="restore_backup", concern=Concern.IMAGE, disruption=Disruption.NONE, seconds=600,
        requires=(c.HOST_UP, c.IMAGE, c.QUIESCED), achieves=(c.RESTORED,), forbids=(c.RESTORED,),
        variants=restore_backup, fault="ssh_refused", is_evidence=True,
    ),
    # Of a cluster that the reconciler installs. Servers are changed one at a time (planner/fleet/k3s_order.py).
    ActionSpec(
        name="install_k3s", concern=Concern.CLUSTER, disruption=Disruption.DRAIN, seconds=120,
        requires=(c.HOST_UP, c.IMAGE), achieves=(c.K3S_RELEASE,), forbids=(c.K3S_RELEASE,), variants=install_k3s,
        in_order=True, fault="ssh_refused",
    ),
    ActionSpec(
        name="configure_k3s", concern=Concern.CLUSTER, disruption=Disruption.SERVICE_RESTART, seconds=60,
        requires=(c.HOST_UP, c.IMAGE, c.K3S_RELEASE), achieves=(c.K3S,), forbids=(c.K3S,), variants=configure_k3s,
        harmless=True, fault="ssh_refused",
    ),
    ActionSpec(
        name="join", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=60,
        requires=(c.HOST_UP, c.IMAGE, c.HOST), achieves=(c.REGISTERED, c.MEMBER), forbids=(c.MEMBER,), variants=_join,
        in_order=True, marks=True, harmless=True, fault="ssh_refused",
    ),
    ActionSpec(
        name="check_trust", concern=Concern.TRUST, disruption=Disruption.NONE, seconds=10,
        requires=(c.HOST_UP, c.IMAGE, c.SIGNATURE, c.BOOT), achieves=(c.TRUST,), variants=_check_trust, harmless=True,
        refusals=possible.trust,
    ),
    ActionSpec(
        name="run_gate", concern=Concern.GATE, disruption=Disruption.NONE, seconds=1800,
        requires=(c.HOST_UP, c.IMAGE, c.HOST, c.BIOS, c.BOOT), achieves=(c.GATE,), forbids=(c.GATE,),
        variants=_run_gate,
    ),
    ActionSpec(
        name="set_gpu_mode", concern=Concern.GPU, disruption=Disruption.DRAIN, seconds=60,
        requires=(c.HOST_UP, c.IMAGE, c.QUIESCED), variants=_set_gpu_mode,
        undoes=frozenset({"set_gpu_mode"}), fault="ssh_refused",
    ),
    # A wait alone: operators do the work, as soon as the node is a member and they tolerate our mark.
    ActionSpec(
        name="await_operators", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=120,
        requires=(c.HOST_UP, c.MEMBER, c.GATE, c.GPU), achieves=(c.OPERATORS,), forbids=(c.OPERATORS,),
        variants=await_operators, fault="gpu_not_advertised",
    ),
    ActionSpec(
        name="set_labels", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=5,
        requires=(c.REGISTERED,), achieves=(c.LABELS,), forbids=(c.LABELS,), variants=set_labels,
        harmless=True, fault="node_conflicts",
    ),
    ActionSpec(
        name="admit", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=5,
        achieves=(c.IN_SERVICE,), breaks=(c.QUIESCED, c.RESERVED), forbids=(c.IN_SERVICE,),
        variants=admit, fault="node_conflicts",
    ),
    ActionSpec(
        name="restore_serving", concern=Concern.CLUSTER, disruption=Disruption.SERVICE_RESTART, seconds=120,
        requires=(c.HOST_UP, c.IN_SERVICE), achieves=(c.SERVING_RESTORED,), breaks=(c.SERVING_DEGRADED,),
        forbids=(c.SERVING_RESTORED,), variants=in_a_group, harmless=True, fault="ssh_refused",
    ),
    # A repair by a person: to the LED and off, and back as soon as what was put in is accepted.
    ActionSpec(
        name="set_indicator", concern=Concern.HARDWARE, disruption=Disruption.NONE, seconds=5,
        requires=(c.IDENTITY,), variants=set_indicator, repairs=True, fault="bmc_503",
    ),
    ActionSpec(
        name="shut_down", concern=Concern.HARDWARE, disruption=Disruption.POWER_CYCLE, seconds=120,
        requires=(c.IDENTITY, c.QUIESCED, c.INDICATED), achieves=(c.OFF,), breaks=(c.POWER_ON, c.HOST_UP),
        forbids=(c.OFF,), variants=shut_down, repairs=True, refusals=possible.power, fault="power_ignored",
        destroys_evidence=True,
    ),
    ActionSpec(
        name="accept_parts", concern=Concern.HARDWARE, disruption=Disruption.NONE, seconds=60,
        requires=(c.IDENTITY, c.POWER_ON), achieves=(c.PARTS_ACCEPTED,), breaks=(c.GATE,), variants=accept_parts,
        repairs=True, retriable=False, fault="bmc_503", is_evidence=True,
    ),
    # A spare has all that admission asks for, so that `admit` alone puts it to work.
    ActionSpec(
        name="reserve", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=5,
        requires=(c.MARKED,), achieves=(c.RESERVED,), forbids=(c.RESERVED, c.IN_SERVICE), variants=reserve,
        fault="node_conflicts",
    ),
    # Decommissioning, in its order: each step needs those before it, and destroys what nobody can bring back.
    ActionSpec(
        name="remove_node", concern=Concern.CLUSTER, disruption=Disruption.NONE, seconds=30,
        requires=(c.IDENTITY, c.QUIESCED, c.REGISTERED), achieves=(c.LEFT,),
        breaks=(c.REGISTERED, c.MEMBER, c.MARKED, c.IN_SERVICE), forbids=(c.LEFT,), variants=remove_node,
        undoes=frozenset({"mark", "drain"}), decommissions=True, fault="node_conflicts", is_evidence=True,
    ),
    ActionSpec(
        name="revoke", concern=Concern.TRUST, disruption=Disruption.NONE, seconds=5,
        requires=(c.QUIESCED, c.LEFT), achieves=(c.REVOKED,), breaks=(c.GATE, c.TRUST), forbids=(c.REVOKED,),
        variants=revoke, decommissions=True, is_evidence=True,
    ),
    ActionSpec(
        name="erase", concern=Concern.HARDWARE, disruption=Disruption.REIMAGE, seconds=1800,
        requires=(c.IDENTITY, c.QUIESCED, c.LEFT, c.REVOKED), breaks=(c.GATE,), variants=erase,
        decommissions=True, boots_installer=True, fault="sanitize_fails", is_evidence=True,
    ),
    ActionSpec(
        name="clear_tpm", concern=Concern.TRUST, disruption=Disruption.POWER_CYCLE, seconds=600,
        requires=(c.IDENTITY, c.QUIESCED, c.LEFT, c.REVOKED), achieves=(c.TPM,), breaks=(c.HOST_UP, c.OFF),
        forbids=(c.TPM,), variants=clear_tpm, activates=_POWER, decommissions=True, fault="bios_write_ignored",
        refusals=possible.power, is_evidence=True,
    ),
    ActionSpec(
        name="power_off", concern=Concern.HARDWARE, disruption=Disruption.POWER_CYCLE, seconds=120,
        requires=(c.IDENTITY, c.QUIESCED, c.LEFT, c.REVOKED), achieves=(c.OFF,), breaks=(c.POWER_ON, c.HOST_UP),
        forbids=(c.OFF,), variants=power_off, decommissions=True, refusals=possible.power, fault="power_ignored",
    ),
    ActionSpec(
        name="tombstone", concern=Concern.IDENTITY, disruption=Disruption.NONE, seconds=5,
        achieves=(c.BURIED,), variants=tombstone, decommissions=True, is_evidence=True,
    ),
)  # fmt: skip

ACTIONS: Final[Mapping[str, ActionSpec]] = {spec.name: spec for spec in _SPECS}
_JUDGED: Final = tuple(spec for spec in _SPECS if spec.refusals is not possible.none)
_UNKNOWN = ActionSpec(name="", concern=Concern.HOST, disruption=Disruption.NONE, seconds=0)


def impossible(desired: Desired, found: RedfishInventory, changes: Collection[str]) -> dict[str, str]:
    """Return the actions that this BMC can't do, by id, each with the reason. `changes`: value paths."""
    return {
        f"{spec.name}:{target}" if target else spec.name: why
        for spec in _JUDGED
        for target, why in spec.refusals(desired, found, changes).items()
    }


def spec_of(name: str) -> ActionSpec:
    """Return the spec of an action by its name.

    A name that only another version knew, as old journals may hold, gets a spec without any effect.
    """
    return ACTIONS.get(name, _UNKNOWN)
