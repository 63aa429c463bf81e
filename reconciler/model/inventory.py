"""An inventory outside of the spec that knows the fleet's nodes, and how the spec differs from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.model.forge import SpecForge


class InventoryKind(StrEnum):
    ANSIBLE = "ansible"
    NETBOX = "netbox"
    IRONIC = "ironic"
    METAL3 = "metal3"
    TERRAFORM = "terraform"
    MAAS = "maas"


@dataclass(frozen=True, slots=True)
class InventoryPolicy:
    """The inventory that the spec is kept in step with. `place`: a file, or a URL with `secret`, the token's name.

    `names`: columns with the paths of their values, where these are not the usual ones. `pool`: of nodes for which the
    inventory names none; "" = such nodes are not added. `pools`: those that it knows the nodes of; () = all. `retire`,
    `change`: most nodes that one proposal may retire, or change, as a count or a share. `forge`: None = `run` proposes
    nothing.
    """

    kind: InventoryKind
    place: str
    secret: str = ""
    names: tuple[tuple[str, str], ...] = ()
    pool: str = ""
    pools: tuple[str, ...] = ()
    retire: str = "5%"
    change: str = "5%"
    interval_s: float = 3600.0
    forge: SpecForge | None = None


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """An edit of a node's value, such as endpoints.bmc, domains.rack or state. "" = none before."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step that brings one node of the spec in step with the inventory. `why`: the evidence, a sentence."""

    node: str
    pool: str
    edits: tuple[NodeEdit, ...]
    why: str


@dataclass(frozen=True, slots=True)
class InventoryDifference:
    """The ways in which a spec differs from an inventory. `left`: sentences on what only a person can settle, by node.

    `known`: number of nodes that the inventory names.
    """

    known: int
    added: tuple[NodeStep, ...] = ()
    changed: tuple[NodeStep, ...] = ()
    retired: tuple[NodeStep, ...] = ()
    left: tuple[tuple[str, str], ...] = ()

    @property
    def steps(self) -> tuple[NodeStep, ...]:
        return (*self.added, *self.changed, *self.retired)
