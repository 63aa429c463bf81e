"""Combine sources: whose machine a BMC answers for, and whether a host is down, booting or absent.

The silence of one source proves nothing. `neighbours`: the failure domains, as "label=value", in which another node
answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.diff.normalise import same, text
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, HostFacts, Observed, RedfishHot, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import BootPhase, Power, UnknownReason
from reconciler.planner.node.actions import spec_of

BOOT_S = 1800.0  # POST of an 8-GPU server takes up to a quarter of an hour
_BOOTING = frozenset({BootPhase.POST, BootPhase.OS_BOOTING})
_OFF = Power.OFF
UUID_DIGITS = 32
INSTALL_S = 5400.0  # a large image on a slow network


def known_cause(system: RedfishHot | None, observed: Observed) -> tuple[str, str]:
    """Return the known cause of the host's silence and what to wait for; "" for what there is not."""
    if system is not None and system.power is _OFF:
        return "powered off", ""
    if system is not None and system.boot_phase in _BOOTING:
        if isinstance(observed.host, Silent):
            return f"in {system.boot_phase}", f"the machine is in {system.boot_phase}; look again when it has booted"
    elif isinstance(observed.host, Silent) and observed.host.reason is UnknownReason.EXPLAINED:
        return observed.host.detail or "explained", ""
    return "", ""


def boot_is_stuck(record: NodeRecord, now: datetime) -> bool:
    """Return whether the boot takes too long: it hangs in POST, finds no system, or the installer gave up.

    That an installer runs is told by our own attempt, which has not ended: to a BMC it is a system like others.
    """
    since = record.silent_since.get("ssh")
    installs = any(spec_of(one.action).installs and one.outcome == "started" for one in record.attempts)
    limit = timedelta(seconds=INSTALL_S if installs else BOOT_S)
    return since is not None and since <= now - limit


def not_installed(
    desired: Desired, observed: Observed, record: NodeRecord, now: datetime, neighbours: frozenset[str]
) -> bool:
    """Return whether nothing is installed: the machine is on, no host answers, and the cluster has no such node."""
    absent = isinstance(observed.member, Answered) and observed.member.value is None
    return isinstance(observed.host, Silent) and absent and host_down(desired, observed, record, now, neighbours)


def host_down(
    desired: Desired, observed: Observed, record: NodeRecord, now: datetime, neighbours: frozenset[str]
) -> bool:
    """Return whether sources agree that the host is down (DESIGN 5).

    The node must be not Ready and SSH silent for long enough, while its BMC and its neighbours answer. Only a source
    that is proved to be this node's counts: another machine's BMC answers whatever happens to this one.
    """
    policy = desired.profile.remediation
    silent, not_ready = record.silent_since.get("ssh"), record.silent_since.get("not_ready")
    if policy is None or silent is None or not_ready is None:
        return False
    if isinstance(observed.host, Silent) and observed.host.reason is UnknownReason.EXPIRED:
        return False  # its sshd answers
    if isinstance(observed.hot, Silent) or isinstance(observed.member, Silent):
        return False
    if observed.member.value is not None and observed.member.value.ready is not False:
        return False
    if unproved_source(desired, observed, record):
        return False
    domains = {f"{label}={value}" for label, value in desired.domains.items()}
    long_enough = max(silent, not_ready) <= now - timedelta(seconds=policy.host_down_after_s)
    # A BMC that says that no system runs yet needs no neighbour to show that the silence is the node's own.
    no_system = observed.hot.value.boot_phase is BootPhase.OS_BOOTING
    return long_enough and (no_system or not domains or bool(domains & neighbours))


def unproved_source(desired: Desired, observed: Observed, record: NodeRecord) -> str:
    """Return which source of a silent host is not proved to be this node's, and the remedy; "" if all are proved."""
    if isinstance(observed.hot, Silent) or isinstance(observed.member, Silent):
        return ""  # a silent source gives no evidence
    system, member = observed.hot.value, observed.member.value
    proved, why = identity(desired, system, None, record)
    if not proved:
        return why
    if member is None:
        return ""  # the cluster says that no node has this name
    if not member.system_uuid:
        return f"the node object {member.name} does not say which machine's it is (no nodeInfo.systemUUID)"
    known = [uuid for uuid in (desired.uuid, record.uuid, system.uuid) if uuid is not None]
    if not known:
        return (
            f"nothing shows that the node object {member.name} is this machine's: declare `uuid` for this node, or let "
            "its host answer once"
        )
    if not all(same_uuid(member.system_uuid, uuid) for uuid in known):
        return (
            f"the node object {member.name} is of the machine with UUID {member.system_uuid}, not of this one "
            f"({', '.join(dict.fromkeys(known))}): delete the object, or correct the node's addresses"
        )
    return ""


def same_uuid(one: str, other: str) -> bool:
    return one == other or canonical_uuid(one) == canonical_uuid(other)


def canonical_uuid(uuid: str) -> str:
    """Return the digits of a UUID in the first of its two byte orders.

    DMI stores three fields in little endian, and some BMCs show them so (SMBIOS 2.6, 7.2.1).
    """
    digits = text(uuid).replace("-", "")
    if len(digits) != UUID_DIGITS:
        return digits
    swapped = "".join(digits[at : at + 2] for at in (6, 4, 2, 0, 10, 8, 14, 12)) + digits[16:]
    return min(digits, swapped)


def identity(
    desired: Desired, system: RedfishHot | None, facts: HostFacts | None, record: NodeRecord
) -> tuple[bool | None, str]:
    """Return whether the BMC is this node's, and why not.

    True: the spec, the host or the ledger agrees. False: one of them contradicts. None: there is nothing to compare.
    Where the BMC gives no serial number, as on GB200, the UUID proves it alone.
    """
    if system is None:
        return None, "the BMC does not answer"
    if system.serial is None and system.uuid is None:
        return None, "the BMC gives neither serial number nor UUID"
    sources = {"the spec": (desired.serial, desired.uuid)}
    if facts is not None and (facts.serial if system.serial is not None else facts.uuid) is not None:
        sources["the host"] = (facts.serial, facts.uuid)
    else:
        sources["the ledger"] = (record.serial, record.uuid)
    agreed = False
    for source, (serial, uuid) in sources.items():
        for kind, said, wanted, equal in (
            ("serial", system.serial, serial, same), ("UUID", system.uuid, uuid, same_uuid),
        ):  # fmt: skip
            if wanted is not None and said is not None and not equal(said, wanted):
                return False, f"the BMC answers for {kind} {said}, {source} says {wanted}: is this the right machine?"
        agreed = agreed or (serial if system.serial is not None else uuid) is not None
    if agreed:
        now = system.serial or (facts.serial if facts else None), system.uuid or (facts.uuid if facts else None)
        why = unconfirmed(desired, now, record)
        return not why, why
    what, key = ("serial number", "serial") if system.serial is not None else ("UUID", "uuid")
    return None, f"nothing to compare the {what} with: declare `{key}` for the node, or let its host answer once"


def unconfirmed(desired: Desired, now: tuple[str | None, str | None], record: NodeRecord) -> str:
    """Return why a node is not known by (serial number, UUID), on which BMC and host agree; "" where it is.

    The ledger knows it by others, and no person has declared these: its mainboard was exchanged, or it is another
    machine. A new serial number that the spec declares vouches for the new UUID, too.
    """
    serial, uuid = now
    other_serial = serial is not None and record.serial is not None and not same(serial, record.serial)
    other_uuid = uuid is not None and record.uuid is not None and not same_uuid(uuid, record.uuid)
    declared = uuid is not None and desired.uuid is not None and same_uuid(uuid, desired.uuid)
    if declared or (other_serial and desired.serial is not None) or not (other_serial or other_uuid):
        return ""
    if other_serial:
        cause, was, key = (
            "it is another machine, or has a new mainboard without its serial number",
            record.serial,
            "serial",
        )
    else:
        cause, was, key = "its mainboard was exchanged, as its serial number is the same", record.uuid, "uuid"
    said = serial if other_serial else uuid
    return (
        f"BMC and host say {key} {said}, and the ledger knows it by {was}: {cause}; if that is right, declare "
        f"`{key}: {said}` for the node in the spec"
    )


def host_is_own(desired: Desired, observed: Observed) -> bool:
    """Return whether the serial number of the spec or of the BMC shows that the answering host is this node's.

    Where neither gives one, the UUID does.
    """
    if isinstance(observed.host, Silent):
        return False
    facts, bmc = observed.host.value, observed.hot.value if isinstance(observed.hot, Answered) else None
    serials = [one for one in (desired.serial, bmc.serial if bmc else None) if one is not None]
    if serials:
        return facts.serial is not None and all(same(facts.serial, one) for one in serials)
    uuids = [one for one in (desired.uuid, bmc.uuid if bmc else None) if one is not None]
    return bool(uuids) and facts.uuid is not None and all(same_uuid(facts.uuid, one) for one in uuids)


def tampered(desired: Desired, facts: HostFacts | None) -> str:
    """Return the evidence that a host claims the specified image with another digest; "" if it does not."""
    image = desired.profile.image
    if image is None or facts is None or facts.image is None:
        return ""
    found = facts.image
    if (found.image, found.version) == (image.name, image.version) and found.sha256 not in (None, image.sha256):
        return f"the host claims image {image.name} {image.version} with digest {found.sha256}"
    return ""
