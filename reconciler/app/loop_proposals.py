"""Proposers of the loop: of the drift that passes find, and of the nodes that an inventory names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from reconciler.app.drift_report import drift_report
from reconciler.app.inventory.compare import compare
from reconciler.app.inventory.propose import inventory_change, left_to_you, policy_of, read_source
from reconciler.app.loop_proposer import LoopProposer
from reconciler.app.propose_drift import SeenDrift, proposed_change
from reconciler.app.proposing import ProposedChange
from reconciler.converge.events import LoopTold
from reconciler.converge.observation_pass import with_sightings
from reconciler.drivers.git import folder, read_revision
from reconciler.model.desired import Fleet
from reconciler.model.forge import SpecForge
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.vocab import DriftMode
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.render.redact import Redaction, names_of, redact
from reconciler.spec.edit.files import SpecFiles


def _files(fleet: Fleet) -> tuple[SpecFiles, str]:
    """Return the files of the spec as committed, and its folder in the repository."""
    directory = Path(fleet.source.directory)
    return SpecFiles(read_revision(directory, fleet.source.commit)[0], fleet.source.directory), folder(directory)


class DriftProposer(LoopProposer):
    """`drift.mode: propose`: the pull request that has the spec want what nodes have."""

    what: ClassVar[str] = "drift"

    def _forge(self, fleet: Fleet) -> SpecForge | None:
        return fleet.settings.drift_forge if fleet.settings.drift_mode is DriftMode.PROPOSE else None

    def _interval_s(self, fleet: Fleet) -> float:  # noqa: ARG002 - as `_interval_s` of the others, of which some have theirs in the spec
        return self._options.interval_s

    async def _change(self, fleet: Fleet, plan: Plan, observation: Observation) -> ProposedChange | None:
        if observer_outage(fleet, observation):
            return None
        seen = self._seen(fleet, plan, observation)
        now = self._workspace.clock.now()
        return await asyncio.to_thread(lambda: proposed_change(seen, *_files(fleet), now))

    def _seen(self, fleet: Fleet, plan: Plan, observation: Observation) -> SeenDrift:
        """Collect what a change is made of, on the loop's thread: the ledger is read there."""
        records = self._ledger.nodes(list(observation.nodes))
        acting = {node for _, node, *_ in self._ledger.unfinished()}
        hide = self._options.redact
        names = names_of(fleet, observation, records) if hide else {}
        since = {key: (first, observation.finished_at) for key, first in self._ledger.drift_since().items()}
        report = drift_report(with_sightings(plan, since), observation)
        report = redact(report, names, fleet) if hide else report
        return SeenDrift(fleet, report, observation, list(plan.nodes), records, acting, Redaction(names, strict=hide))


class InventoryProposer(LoopProposer):
    """`inventory` of the Fleet: the pull request that brings its nodes in step."""

    what: ClassVar[str] = "the inventory"
    _left: tuple[tuple[str, str], ...] = ()  # as told last

    def _forge(self, fleet: Fleet) -> SpecForge | None:
        return None if fleet.settings.inventory is None else fleet.settings.inventory.forge

    def _interval_s(self, fleet: Fleet) -> float:
        return max(self._options.interval_s, policy_of(fleet).interval_s)

    async def _change(self, fleet: Fleet, plan: Plan, observation: Observation) -> ProposedChange | None:  # noqa: ARG002 - as `_change` of the others
        policy = policy_of(fleet)
        rows = await read_source(policy, self._workspace.secrets)
        records = self._ledger.nodes(list(fleet.nodes))
        difference = await asyncio.to_thread(compare, fleet, policy, rows, records)
        for sentence in left_to_you(difference, self._left):  # there may be no pull request that has it
            self._progress(LoopTold("proposal", sentence, problem=True))
        self._left = difference.left
        return await asyncio.to_thread(lambda: inventory_change(fleet, difference, *_files(fleet)))
