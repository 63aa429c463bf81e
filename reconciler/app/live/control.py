"""`LiveControl`: what people do through the API, in the words and by the means of the commands of the same names."""

from __future__ import annotations

from reconciler.app import holds
from reconciler.app.live.view import LiveFleet
from reconciler.app.workspace import Workspace
from reconciler.converge.node_approvals import check_approvable
from reconciler.model.errors import UsageError
from reconciler.model.live import Done, NewApproval, NewHold, NewStop
from reconciler.model.units import MAX_DURATION_S
from reconciler.model.vocab import DriftMode
from reconciler.render.text import count

_LONG = 500  # characters of a reason


class LiveControl:
    """Writes to the ledger, and approves plans that `view` shows. NotReady: before the first pass."""

    def __init__(self, view: LiveFleet) -> None:
        self._view = view

    def _workspace(self) -> Workspace:
        return self._view.workspace()

    def approve(self, wanted: NewApproval, by: str) -> Done:
        """Approve the plans of nodes that were shown, in the journal first: what nobody can be held to is not begun."""
        _check_reason(wanted.reason)
        workspace, plan = self._workspace(), self._view.plan()
        if workspace.fleet.settings.drift_mode is DriftMode.CORRECT:
            raise UsageError("the spec's drift mode is correct: nothing waits for an approval")
        check_approvable(plan, wanted.nodes)
        now = workspace.clock.now()
        with workspace.ledger() as ledger:
            for node, fingerprint in wanted.nodes.items():
                ledger.note(node, "approve", f"{by}: {fingerprint[:12]}: {wanted.reason}", now)
        self._view.approved.grant(plan, wanted.nodes, by, now)
        return Done(f"{count(len(wanted.nodes), 'plan')} approved: {wanted.reason}")

    def hold(self, wanted: NewHold, by: str) -> Done:
        _check_reason(wanted.reason)
        if wanted.for_s is not None and not 0 < wanted.for_s <= MAX_DURATION_S:
            raise UsageError(f"a hold lasts between 0 and {MAX_DURATION_S:g} seconds, or until it is released")
        until = holds.hold(self._workspace(), wanted.subject, wanted.reason, wanted.for_s, by)
        end = f" until {until:%Y-%m-%d %H:%M UTC}" if until else ""
        return Done(f"{wanted.subject} is held{end}: {wanted.reason}")

    def release(self, subject: str, by: str) -> Done:
        places = " and ".join(holds.release(self._workspace(), subject, by))
        again = f", but {places} holds it again from now on: remove the hold from the spec" if places else ""
        return Done(f"{subject} is released{again}")

    def stop(self, wanted: NewStop, by: str) -> Done:
        _check_reason(wanted.reason)
        workspace = self._workspace()
        with workspace.ledger() as ledger:
            done = holds.stop(workspace, ledger, wanted.reason, by)
        running = f"; {done.running[0].holder} finishes its actions first" if done.running else ""
        return Done(f"stopped: nothing begins any more{running}")

    def resume(self, by: str) -> Done:
        workspace = self._workspace()
        with workspace.ledger() as ledger:
            lifted = holds.resume(workspace, ledger, by)
        return Done(f"resumed; it was stopped for: {'; '.join(one.reason for one in lifted)}")


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError("give a reason: every plan and report shows it")
    if len(reason) > _LONG:
        raise UsageError(f"the reason is longer than {_LONG} characters")
