"""The spec of the small fleet and its edits: two pools in three racks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from reconciler.model import desired as d
from reconciler.model.records import FLEET
from reconciler.model.vocab import Activation, DrainProvider, NodeState, Provision, WindowKind
from tests import builders as b
from tests.converge.world import PROFILE, desired_node, fleet_of

ALL = tuple(f"n{at}" for at in range(12))
NAMES = ALL[:8]  # the machines of a usual fleet
POOL_OF = {name: "train" if at % 8 < 5 else "infer" for at, name in enumerate(ALL)}
POOLS = ("train", "infer")
SUBJECTS = (*NAMES, *(f"pool/{pool}" for pool in POOLS), FLEET)  # of holds
IMAGES = ("1", "2", "3")
NEW = "n7"  # a machine as it comes from the factory
UNSIGNED = "unsigned"
VALID_S = 20 * 86400.0  # short enough that certificates expire within an example
BIOS = ("SriovGlobalEnable", "NumaNodesPerSocket")  # the managed attributes
_DAILY = tuple(range(7))

BUDGETS: Mapping[str, tuple[d.BudgetLimit, ...]] = {
    "default": (),
    "all": (d.BudgetLimit("fleet", "100%"),),
    "half": (d.BudgetLimit("fleet", "50%"),),
    "one a rack": (d.BudgetLimit("fleet", "3"), d.BudgetLimit("rack", "1")),
    "one a pool": (d.BudgetLimit("fleet", "100%"), d.BudgetLimit("pool", "1")),
    "none": (d.BudgetLimit("fleet", "0"),),
}
WINDOWS: Mapping[str, tuple[d.Window, ...]] = {
    "none": (),
    "nights": (d.Window(WindowKind.ALLOW, d.Hours(_DAILY, 22 * 60, 6 * 60, "UTC")),),
    "not at noon": (d.Window(WindowKind.DENY, d.Hours(_DAILY, 11 * 60, 15 * 60, "Europe/Berlin")),),
    "training at weekends": (d.Window(WindowKind.ALLOW, d.Hours((5, 6), 0, 1440, "UTC"), ("train",)),),
}
ROLLOUTS: Mapping[str, d.RolloutPolicy] = {
    "default": d.RolloutPolicy(),
    "at once": d.RolloutPolicy(("100%",), bake_s=0.0),
    "slow": d.RolloutPolicy(("1", "2", "100%"), bake_s=7200.0, max_failures=1),
    "bold": d.RolloutPolicy(("50%", "100%"), bake_s=60.0, max_failures=2),
}
IGNORED: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "BIOS": ("bios.*",),
    "a sysctl": ("host.sysctls.vm.swappiness",),
}
REMEDIATION = d.Remediation(
    "standard", (d.Rung("soft_restart", 1), d.Rung("power_cycle", 1)), 86400.0,
    node_conditions=(d.NodeCondition("GpuUnhealthy"),),
)  # fmt: skip


@dataclass
class PoolSpec:
    image: str = "1"
    nodes_per_socket: str = "NPS1"
    nic: str = "2.0"
    bios: str = "2.0"
    label: str = "training"
    mig: bool = False
    rollout: str = "default"

    def profile(self) -> d.Profile:
        return _profile(self.image, self.nodes_per_socket, self.nic, self.bios, self.label, self.mig)


@dataclass
class Spec:
    """The current spec. `states`: of the nodes that it names."""

    pools: dict[str, PoolSpec] = field(default_factory=lambda: {pool: PoolSpec() for pool in POOLS})
    states: dict[str, NodeState] = field(
        default_factory=lambda: {name: NodeState.ACTIVE for name in NAMES if name not in ("n4", "n7")}
    )
    budgets: str = "half"
    windows: str = "none"
    ignored: str = "nothing"
    break_glass: d.BreakGlass | None = None
    holds: set[str] = field(default_factory=set)  # subjects

    def fleet(self) -> d.Fleet:
        nodes = [
            desired_node(
                name,
                ALL.index(name),
                pool=POOL_OF[name],
                state=state,
                domains={"rack": f"r{ALL.index(name) % 3}"},
                profile=self.pools[POOL_OF[name]].profile(),
                provision=Provision.BLANK if name == NEW else None,
            )
            for name, state in sorted(self.states.items(), key=lambda item: (POOL_OF[item[0]], item[0]))
        ]
        fleet = fleet_of(
            nodes,
            budgets=BUDGETS[self.budgets],
            windows=WINDOWS[self.windows],
            ignore=tuple(d.IgnoreRule(path, "the vendor's tool rewrites it") for path in IGNORED[self.ignored]),
            break_glass=self.break_glass,
        )
        return replace(
            fleet,
            rollouts={name: ROLLOUTS[pool.rollout] for name, pool in self.pools.items()},
            holds=tuple(
                d.SpecHold(subject, "see the ticket", "ops", None, "fleet.yaml:1:1") for subject in self._held()
            ),
        )

    def _held(self) -> list[str]:
        """Return the held subjects whose nodes exist."""
        return sorted(subject for subject in self.holds if subject in self.states or subject.startswith("pool/"))


def _firmware(component: str, stage: int, activation: Activation, version: str) -> d.DesiredFirmware:
    item = b.firmware(component, stage, activation, version)
    return replace(item, url=f"https://fw/{component}-{version}")


@cache
def _profile(image: str, nodes_per_socket: str, nic: str, bios: str, label: str, mig: bool) -> d.Profile:
    assert PROFILE.image is not None
    assert PROFILE.membership is not None
    return replace(
        PROFILE,
        digest=repr((image, nodes_per_socket, nic, bios, label, mig)),
        image=replace(PROFILE.image, version=image, sha256=sha(image)),
        inventory=d.DesiredInventory(gpus=2, nvlinks_per_gpu=18, drives=2),
        firmware=(
            _firmware("bmc", 1, Activation.BMC_RESET, "2.0"),
            _firmware("bios", 2, Activation.REBOOT, bios),
            _firmware("nic0", 3, Activation.POWER_CYCLE, nic),
        ),
        bios=dict(zip(BIOS, ("Enabled", nodes_per_socket), strict=True)),
        membership=replace(PROFILE.membership, labels={"workload": label}),
        gpu=d.DesiredGpu({"3g.40gb": 2} if mig else None),
        drain=d.DrainPolicy(DrainProvider.KUBERNETES, timeout_s=300.0),
        acceptance=replace(b.ACCEPTANCE, validity_s=VALID_S),
        remediation=REMEDIATION,
    )


def sha(image: str) -> str:
    return (image.encode().hex() * 64)[:64]


GOLDEN_IMAGES = {("ubuntu-gpu", image): PROFILE.image.contents for image in (*IMAGES, UNSIGNED) if PROFILE.image}
SIGNATURES = {("ubuntu-gpu", image): image != UNSIGNED for image in (*IMAGES, UNSIGNED)}
FIRMWARE_IMAGES = {
    f"https://fw/{component}-{version}": {component.upper(): version}
    for component in ("bmc", "bios", "nic0")
    for version in ("2.0", "2.1")
}
