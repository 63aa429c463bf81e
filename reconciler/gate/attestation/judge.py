"""Judge what a machine booted: a quote and its event log against the measurements that the spec declares.

The log's types and texts are written by whoever rules the host. So an event counts by its digest, which the quote
binds; its data count where their digest is the event's; what is neither declared nor known to be harmless is refused.
PCR 1 is replayed and not judged: boot entries and settings change it without anybody's mistake (keylime PR 1050).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.event_log import (
    EV_EFI_VARIABLE_AUTHORITY,
    EV_EFI_VARIABLE_DRIVER_CONFIG,
    EV_NO_ACTION,
    EV_SEPARATOR,
    Event,
    Variable,
    read_variable,
    replay,
)
from reconciler.model.measurements import (
    BootMeasurements,
    FirmwareReference,
    PlatformMeasurements,
    SecureBootKeys,
)

EXPLAINED: Final = range(8)  # PCRs that the firmware's log must explain
NEEDED: Final = frozenset({*EXPLAINED, 11})  # PCRs that a quote must be of
_TEXT: Final = 128  # bytes: a program is longer, and holds bytes that are no text
_GLOBAL, _SECURITY = "8be4df61-93ca-11d2-aa0d-00e098032b8c", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
_RULES: Final = {
    (_GLOBAL, "SecureBoot"): "secure_boot", (_GLOBAL, "PK"): "pk", (_GLOBAL, "KEK"): "kek",
    (_SECURITY, "db"): "db", (_SECURITY, "dbx"): "dbx",
}  # fmt: skip
_ON: Final = hashlib.sha256(b"\x01").hexdigest()


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a boot in the words of a spec, for a person to review before they become a reference."""

    pcrs: Mapping[str, str]
    applications: tuple[str, ...]
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BootJudgement:
    """`reasons`: why the boot is not the declared one; () when it is. `phase`: whose PCR 11 was quoted."""

    reasons: tuple[str, ...]
    phase: str = ""
    measured: Measured | None = None


def judge_boot(
    pcrs: Mapping[int, bytes],
    events: Sequence[Event],
    boot: BootMeasurements,
    platform: PlatformMeasurements,
    versions: Mapping[str, str] | None,
) -> BootJudgement:
    """Judge quoted PCRs and the log that explains them. `versions`: of firmware; None = any declared reference will do.

    Nothing is judged by a log that does not explain the PCRs.
    """
    missing = sorted(NEEDED - set(pcrs))
    if missing:
        return BootJudgement((f"the quote is not of {_pcrs(missing)}",))
    try:
        replayed = replay(events)
    except Malformed as error:
        return BootJudgement((str(error),))
    differing = [index for index in EXPLAINED if replayed[index] != pcrs[index]]
    if differing:
        return BootJudgement((f"the event log does not explain {_pcrs(differing)}: it was cut off or altered",))
    measured = _measured(pcrs, events)
    references = _references(platform, versions)
    phase = next((name for name, value in boot.pcr11.items() if value == pcrs[11].hex()), "")
    reasons = [*_secure_boot(events, platform.secure_boot), *_applications(measured, boot, references)]
    if not phase:
        reasons.append(f"PCR 11 is {pcrs[11].hex()}, which no phase of the declared image has")
    reasons += _firmware(measured, platform, references, versions)
    return BootJudgement(tuple(reasons), phase, measured)


def _pcrs(indices: Sequence[int]) -> str:
    return f"PCR{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"


def _measured(pcrs: Mapping[int, bytes], events: Sequence[Event]) -> Measured:
    variables: dict[str, tuple[str, ...]] = {}
    for kind, variable in _variables(events):
        known = variables.get(kind, ())
        content = hashlib.sha256(variable.data).hexdigest()
        variables[kind] = known if content in known else (*known, content)
    programs = tuple(event.digest.hex() for event in _of(events, 4) if not _harmless(event))
    return Measured({str(index): value.hex() for index, value in pcrs.items()}, programs, variables)


def _of(events: Sequence[Event], pcr: int) -> Iterator[Event]:
    return (event for event in events if event.pcr == pcr and event.type != EV_NO_ACTION)


def _harmless(event: Event) -> bool:
    """Return whether the event is a separator, or a short text of the firmware: no program has such bytes.

    That the data are what was measured is not enough. Of a program, too, bytes with its digest can be given.
    """
    if not event.measured:
        return False
    return event.data == bytes(4) or (len(event.data) <= _TEXT and all(32 <= byte < 127 for byte in event.data))


def _variables(events: Sequence[Event]) -> Iterator[tuple[str, Variable]]:
    for event in _of(events, 7):
        if event.type == EV_EFI_VARIABLE_DRIVER_CONFIG:
            try:
                variable = read_variable(event)
            except Malformed:
                continue
            kind = _RULES.get((variable.vendor, variable.name))
            if kind is not None:
                yield kind, variable


def _secure_boot(events: Sequence[Event], keys: SecureBootKeys | None) -> Iterator[str]:
    """Yield why Secure Boot was not on under the declared keys, by the events of PCR 7."""
    if keys is None:
        yield "no keys of Secure Boot are declared for its hardware"
        return
    allowed = {"secure_boot": (_ON,), "pk": keys.pk, "kek": keys.kek, "db": keys.db, "dbx": keys.dbx}
    seen, trusted = set(), b""
    for kind, variable in _variables(events):
        seen.add(kind)
        content = hashlib.sha256(variable.data).hexdigest()
        if content not in allowed[kind]:
            yield "Secure Boot was off" if kind == "secure_boot" else f"{kind} is {content}, which is not declared"
        elif kind == "db":
            trusted += variable.data
    for kind in allowed.keys() - seen:
        yield f"PCR 7 has no event of the variable {kind}"
    for event in _of(events, 7):
        problem = _unknown_in_pcr7(event, keys, trusted)
        if problem:
            yield problem


def _unknown_in_pcr7(event: Event, keys: SecureBootKeys, trusted: bytes) -> str:
    """Return why an event of PCR 7 can't be accepted; "" for one that can. `trusted`: the content of db."""
    if event.type == EV_SEPARATOR and event.measured and event.data == bytes(4):
        return ""
    try:
        variable = read_variable(event)
    except Malformed:
        return f"PCR 7 has an event of type {event.type:#x} with digest {event.digest.hex()}, which is not declared"
    if event.type == EV_EFI_VARIABLE_DRIVER_CONFIG and (variable.vendor, variable.name) in _RULES:
        return ""  # judged above
    content = hashlib.sha256(variable.data).hexdigest()
    if event.type == EV_EFI_VARIABLE_AUTHORITY:
        in_db = (variable.vendor, variable.name) == (_SECURITY, "db") and variable.data and variable.data in trusted
        if in_db or content in keys.authorities:
            return ""
        return f"a program was verified by {variable.name!a} {content}, which is not declared"
    return f"PCR 7 has the variable {variable.name!a}, which is not declared"


def _applications(measured: Measured, boot: BootMeasurements, references: Sequence[FirmwareReference]) -> Iterator[str]:
    """Yield why other programs were started than those of the image, by the events of PCR 4.

    Whatever was measured and is no text counts as a program: an event's type is a claim.
    """
    before = {digest for reference in references for digest in reference.applications} | set(boot.loaders)
    started = tuple(digest for digest in measured.applications if digest not in before)
    if started != boot.applications:
        others = [digest for digest in started if digest not in boot.applications]
        if others:
            yield f"an EFI program was started that is not declared: {', '.join(others)}"
        else:
            yield f"the EFI programs {', '.join(started) or 'none'} were started, not {', '.join(boot.applications)}"


def _references(platform: PlatformMeasurements, versions: Mapping[str, str] | None) -> tuple[FirmwareReference, ...]:
    if versions is None:
        return platform.firmware
    return tuple(reference for reference in platform.firmware if reference.fits(versions))


def _firmware(
    measured: Measured,
    platform: PlatformMeasurements,
    references: Sequence[FirmwareReference],
    versions: Mapping[str, str] | None,
) -> Iterator[str]:
    if not platform.firmware:
        return
    if not references:
        names = sorted({name for reference in platform.firmware for name in reference.versions})
        have = ", ".join(f"{name} {(versions or {}).get(name, 'of an unknown version')}" for name in names)
        yield f"no reference is declared for {have}"
    elif not any(all(measured.pcrs.get(i) == value for i, value in item.pcrs.items()) for item in references):
        judged = sorted({index for item in references for index in item.pcrs})
        found = ", ".join(f"PCR {index} {measured.pcrs.get(index, 'not quoted')}" for index in judged)
        yield f"the firmware is not the declared one: {found}"
