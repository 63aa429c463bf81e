"""The routes of /api/v1 that write. Each takes a role, and the journal shows who asked."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request

from reconciler.drivers.web.access import Caller
from reconciler.drivers.web.reads import needs
from reconciler.model.access_role import AccessRole
from reconciler.model.live import Done, FleetControl, NewApproval, NewHold, NewStop
from reconciler.model.records import is_wide

_CSRF: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "X-CSRF-Token",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "That of /session: for browsers behind a proxy, which send no token of their own.",
        }
    ]
}


def control_of(request: Request) -> FleetControl:
    found: FleetControl = request.app.state.control
    return found


Control = Annotated[FleetControl, Depends(control_of)]
Operator = Annotated[Caller, Depends(needs(AccessRole.OPERATOR))]
Admin = Annotated[Caller, Depends(needs(AccessRole.ADMIN))]
writes = APIRouter(prefix="/api/v1", tags=["writes"])


@writes.post("/approvals", openapi_extra=_CSRF)
def approve(wanted: NewApproval, control: Control, caller: Admin) -> Done:
    """Approve plans of nodes by the fingerprints that /approvals showed. Takes the role admin.

    All of them or none: 409 where one is another plan by now.
    """
    return control.approve(wanted, caller.name)


@writes.post("/holds", openapi_extra=_CSRF)
def hold(wanted: NewHold, control: Control, caller: Operator) -> Done:
    """Forbid all actions on a node or a pool, as `reconciler hold` does. Takes the role operator."""
    return control.hold(wanted, caller.name)


@writes.delete("/holds/{subject:path}", openapi_extra=_CSRF)
def release(subject: str, control: Control, caller: Operator) -> Done:
    """Release every hold of a node or a pool, as `reconciler release` does. Takes the role operator.

    What else is held takes the role admin: the stop, the storm brake, a signal that was retracted, and a machine that
    was decommissioned.
    """
    if is_wide(subject):
        caller.check(AccessRole.ADMIN)
    return control.release(subject, caller.name)


@writes.post("/stop", openapi_extra=_CSRF)
def stop(wanted: NewStop, control: Control, caller: Operator) -> Done:
    """Let nothing begin on the whole fleet, as `reconciler stop` does. Takes the role operator."""
    return control.stop(wanted, caller.name)


@writes.delete("/stop", openapi_extra=_CSRF)
def resume(control: Control, caller: Admin) -> Done:
    """Lift the stop and the storm brake, as `reconciler resume` does. Takes the role admin."""
    return control.resume(caller.name)
