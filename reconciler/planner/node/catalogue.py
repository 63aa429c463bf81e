"""Expand the table of actions for one node.

An action that stages something leaves a condition, which the next action of its activation class consumes. So
firmware, BIOS settings and image share one drain and, where activations and the profile's order allow, one reboot.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node.actions import ACTIONS, ActionSpec, NodeTraits, Staged, Variant
from reconciler.planner.node.conditions import QUIESCED


@dataclass(frozen=True, slots=True)
class Row:
    """One action of one node, as the search uses it."""

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


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All actions of one node, and the conditions that they may stage."""

    rows: tuple[Row, ...]
    staged: tuple[Staged, ...]

    def brings(self, row: Row) -> set[str]:
        """Return the conditions that an action makes true, at once or when what it staged is activated."""
        return set(row.achieves) | {staged.achieves for staged in self.staged if staged.condition in row.achieves}

    def without(self, ids: Container[str]) -> Catalogue:
        """Return the catalogue but for these actions."""
        return Catalogue(tuple(row for row in self.rows if row.id not in ids), self.staged)


def catalogue(node: NodeTraits) -> Catalogue:
    """Return all actions that make sense for the node, in the order of the table, which breaks ties."""
    # A node that leaves for good is neither flashed nor installed once more, not even to bring its host up.
    specs = [spec for spec in ACTIONS.values() if node.leaving is None or not spec.overwrites]
    rows = tuple(_row(spec, variant, node) for spec in specs for variant in spec.variants(node))
    return Catalogue(rows, tuple(staged for spec in ACTIONS.values() for staged in spec.stages(node)))


def _row(spec: ActionSpec, variant: Variant, node: NodeTraits) -> Row:
    requires = (*spec.requires, *variant.requires)
    if spec.drains or QUIESCED in requires:  # whatever may end its service
        requires = (*requires, *node.served_without)
    return Row(
        name=spec.name,
        concern=spec.concern,
        requires=requires,
        achieves=(*spec.achieves, *variant.achieves),
        breaks=(*spec.breaks, *variant.breaks, *node.gate_by_profile(spec.name)),
        disruption=spec.disruption,
        seconds=spec.seconds + variant.seconds,
        target=variant.target,
        activates=spec.activates,
        forbids=(*spec.forbids, *variant.forbids),
        drains=int(spec.drains),
        reboots=int(spec.boots),
        harmless=spec.harmless and not variant.only_out_of_service,
    )
