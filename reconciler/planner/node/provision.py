"""Machines whose disk may be written before any system of theirs was read: half-installed ones, and blank ones.

A half-installed machine was read when our install began, and what was on its disk may be gone. A blank one has never
answered: only a person can know that nothing on it is wanted, and says so in the spec.
"""

from __future__ import annotations

from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, Observed, RedfishHot, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import BootPhase, Power, Provision, UnknownReason
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.conditions import Unread
from reconciler.planner.node.corroboration import known_cause
from reconciler.planner.node.possible import IN_PLACE

CONSENT = "provision: blank"
_OF_HOSTS = ("image.", "host.")  # before value paths that only a host tells
_NEVER = "no system of it has ever answered"
# Any other reason shows that a system answered, or that nobody asked.
_NOBODY_ANSWERS = frozenset({UnknownReason.UNREACHABLE, UnknownReason.TIMEOUT, UnknownReason.EXPLAINED})


def unread_disk(desired: Desired, observed: Observed, record: NodeRecord) -> Unread:
    """Return whether the disk of a silent machine may be written, or what the spec lacks for it."""
    hot = observed.hot.value if isinstance(observed.hot, Answered) else None
    if hot is None or desired.profile.image is None or not _nobody_answers(observed):
        return Unread()
    if half := _half_installed(record, hot, observed):
        return Unread(half)
    if not _is_new(desired, observed, record):
        return Unread()
    if hot.power is Power.ON and hot.boot_phase is BootPhase.OS_RUNNING:
        return Unread(remedy=f"{_NEVER}, and its BMC shows that one runs: let it answer over SSH, or power it off")
    if desired.provision is Provision.BLANK:
        at = desired.provenance.get("provision")
        return Unread(f"{CONSENT} ({at})" if at is not None else CONSENT)
    return Unread(remedy=_remedy(desired, hot))


def never_answered(record: NodeRecord) -> bool:
    """Return whether no host of the node has ever answered, as far as the ledger knows.

    A node that was in service is not blank again: what consent there was is spent.
    """
    known = (record.serial, record.uuid, record.certificate, record.nonce)
    converged = any(path.startswith(_OF_HOSTS) for path in record.applied)  # others may be of the BMC alone
    return not converged and all(one is None for one in known)


def _nobody_answers(observed: Observed) -> bool:
    return isinstance(observed.host, Silent) and observed.host.reason in _NOBODY_ANSWERS


def _half_installed(record: NodeRecord, hot: RedfishHot, observed: Observed) -> str:
    """Return how the last install ended, if not well.

    One without an end is waited for while the BMC shows that a system boots, as it shows installers. Where the BMC does
    not tell that, the next run goes on with it: its installer may wait for us, and nobody else serves it.
    """
    last = next((one for one in reversed(record.attempts) if spec_of(one.action).installs), None)
    if last is None or last.outcome in ("done", "refused") or last.target == IN_PLACE:
        return ""
    if last.outcome == "started":
        _, under_way = known_cause(hot, observed)
        return "" if under_way else "maybe half-installed: a run began to install it, and nobody saw the end"
    return f"maybe half-installed: {last.detail or last.outcome}"


def _is_new(desired: Desired, observed: Observed, record: NodeRecord) -> bool:
    """Return whether neither ledger nor cluster has ever seen the node."""
    member = observed.member
    if isinstance(member, Silent):
        absent = member.reason is UnknownReason.NOT_ASKED or desired.profile.membership is None
    else:
        absent = member.value is None
    return absent and never_answered(record)


def _remedy(desired: Desired, hot: RedfishHot) -> str:
    at = desired.provenance.get("node")
    where = f" ({at})" if at is not None else ""
    serial = f", with its `serial: {hot.serial}`" if hot.serial and not (desired.serial or desired.uuid) else ""
    return f"{_NEVER}; if its disk may be wiped, write `{CONSENT}` for it{serial}{where}"
